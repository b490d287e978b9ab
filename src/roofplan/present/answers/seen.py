"""The answers of ``roofplan measure`` and ``roofplan runs``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from roofplan.errors import unwrap
from roofplan.evidence.beside import Beside, Compared, warnings_of
from roofplan.inputs import CompareInputs, ImportInputs, MeasureInputs, RunsInputs, StabilityInputs
from roofplan.measure.figures import FORMULAS
from roofplan.measure.ledger import Kept
from roofplan.measure.sample import Sample
from roofplan.observe import Ledgered, Probed
from roofplan.present.answers.machine import MachineMember, machine_member
from roofplan.present.answers.record import ABSENT, Answer, Json, MetricMember, answered, members, metrics, view


@members
class ClientMember:
    """How exact the client was.

    Parameters
    ----------
    error_tpot, worst_tpot : median and greatest relative difference of the time per token from the server's own; null where it sends none [1].
    error_ttft : the most that it can be: median of the first token's time beyond the server's own time for the prompt, which holds the
        server's queue too; null where it sends none [s].
    cpu : share of one core; null where it is not known [1].
    lag : by how much the event loop was late, 99th percentile; null where it is not known [s].
    bunched : share of events that came together with the one before [1].
    tokens_per_event : above 1, the first and the last event may hold several tokens [1].
    late, connect : greatest lateness of a request, and median time to open a connection [s].
    same_host : whether client and server share a host.
    """

    error_tpot: float | None
    worst_tpot: float | None
    error_ttft: float | None
    cpu: float | None
    lag: float | None
    bunched: float
    tokens_per_event: float
    late: float
    connect: float
    same_host: bool


@members
class PredictedMember:
    """What is predicted for a run: the mean of each figure, whether the measured one is inside, and what binds it."""

    metrics: dict[str, MetricMember]
    inside: dict[str, bool]
    binds: dict[str, str]
    explains: list[str]


@members
class GoodputMember:
    """Requests that were answered inside all limits: their share of all, and how many a second."""

    share: float
    per_second: float


@members
class ObservedLimit:
    """A limit, and the measured time at its percentile; null where nothing was measured [s]."""

    figure: str
    limit: float
    percentile: str
    value: float | None
    holds: bool


@members
class RateMember:
    """A rate that another tool measured: its name, value and unit."""

    name: str
    value: float
    unit: str


@members
class RunMember:
    """A load that was put on an endpoint, and what its users felt.

    Parameters
    ----------
    id : in the ledger, null where it is not kept.
    requests, completed : that were planned, and that were answered [1].
    ttft, tpot, itl, e2e : mean, percentiles with the ends of their 90% intervals by ranks, and the formula; absent where no answer tells [s].
    failed : requests by the reason of their failure [1].
    input, output : mean lengths as the server counted, null where it does not [token].
    short, longer : answers that were shorter, and longer, than asked for [1].
    cached : share of prompt tokens that the server found in its cache, null where it does not say [1].
    goodput : requests that were answered inside all limits, null without limits.
    warnings : what makes the figures doubtful.
    notes : what the server would not do as asked.
    prediction : for the same load, null without a plan.
    """

    id: int | None
    url: str
    model: str
    software: str
    load: str
    requests: int
    completed: int
    interrupted: bool
    failed: dict[str, int]
    messages: dict[str, str]
    ttft: Json = ABSENT
    tpot: Json = ABSENT
    itl: Json = ABSENT
    e2e: Json = ABSENT
    seconds: float
    requests_per_second: float
    output_tokens_per_second: float
    input: float | None
    output: float | None
    asked_input: float
    asked_output: float
    short: int
    longer: int
    cached: float | None
    goodput: GoodputMember | None
    limits: list[ObservedLimit]
    notes: list[str]
    warnings: list[str]
    others: list[RateMember] = ABSENT
    client: ClientMember
    prediction: PredictedMember | None


@members
class MeasureAnswer(Answer):
    """What users of an endpoint felt under a load."""

    run: RunMember = ABSENT


def measure_answer(found: Beside, asked: MeasureInputs) -> MeasureAnswer:
    """Return the answer of ``roofplan measure endpoint``.

    Parameters
    ----------
    found : the run and what is predicted for it.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(MeasureAnswer, "measure endpoint", asked, run=run_member(found))


def run_member(found: Beside) -> RunMember:
    """Return a run as a member of an answer."""
    run, seen = found.run, found.seen
    worst = seen.error_tpot or (None, None)
    figures = {one.name: measured_member(one) for one in found.figures}
    return view(
        RunMember,
        seen,
        id=run.id,
        url=run.server.url,
        model=run.server.model,
        software=run.server.software,
        load=run.load,
        requests=run.planned,
        completed=seen.answered,
        interrupted=run.interrupted,
        **{name: figures.get(name, ABSENT) for name in FORMULAS},
        goodput=None
        if found.good is None
        else GoodputMember(share=found.good, per_second=found.good * len(run.samples) / (seen.seconds or 1.0)),
        warnings=warnings_of(found),
        limits=[
            ObservedLimit(
                figure=one.figure,
                limit=one.limit,
                percentile=one.percentile,
                value=found.at(one),
                holds=found.holds(one),
            )
            for one in found.objectives
        ],
        notes=run.notes,
        others=[view(RateMember, one) for one in seen.others] or ABSENT,
        client=view(
            ClientMember,
            seen,
            error_tpot=worst[0],
            worst_tpot=worst[1],
            error_ttft=seen.beyond_prompt,
            cpu=run.effort.share if run.effort.seconds else None,
            lag=run.effort.lag(0.99) if run.effort.lags else None,
            same_host=run.server.local,
        ),
        prediction=None if found.felt is None else _predicted(found),
    )


def measured_member(one: Compared) -> Json:
    """Return a measured figure: mean with the ends of its 90% interval, percentiles with theirs by ranks, and its formula."""
    of = one.measured.summary
    limits = {name: list(ends) for name, ends in one.measured.limits.items()}
    told = {"mean": of.mean, **of.quantiles, "count": of.count, "limits": limits, "few": sorted(one.measured.few)}
    mean = {"low": unwrap(of.mean) - of.error, "high": unwrap(of.mean) + of.error} if one.measured.limits else {}
    return {**told, **mean, "unit": "s", "formula": one.measured.formula}


def _predicted(found: Beside) -> PredictedMember:
    figures = [one for one in found.figures if one.predicted is not None]
    return PredictedMember(
        metrics=metrics({one.name: one.predicted for one in figures if one.predicted is not None}),
        inside={one.name: bool(one.inside) for one in figures},
        binds={one.name: one.binds for one in figures},
        explains=found.explains(),
    )


def sample_rows(samples: Sequence[Sample]) -> list[Json]:
    """Return every request as a row: when it was due, what was asked and given, and what its client felt [s].

    Parameters
    ----------
    samples : of a run.

    Returns
    -------
    One row per request; what is not known is empty.
    """
    names = ("number", "due", "late", "connect", "tls", "asked_input", "asked_output", "prompt", "tokens", "cached")
    more = ("ttft", "tpot", "e2e", "events", "reads", "reason", "message")
    rows = [{name: getattr(one, name) for name in (*names, *more)} for one in samples]
    return [{name: "" if value is None or _nan(value) else value for name, value in row.items()} for row in rows]


def _nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@members
class HourMember:
    """Probes of an hour of the day [s, 1]; null without answers."""

    hour: int
    probes: int
    median: float | None
    p99: float | None
    over: float
    failed: int


@members
class OverMember:
    """First tokens above a threshold: it [s], their share, and the ends of its 90% interval [1]."""

    threshold: float
    share: float | None
    low: float
    high: float


@members
class ChangeMember:
    """When first tokens became of another length (UTC), medians before and after [s], and how likely chance is [1]."""

    at: str
    before: float
    after: float
    chance: float


@members
class OutageMember:
    """Probes in a row that failed: when the first and last were due (UTC), how many, and why."""

    begin: str
    end: str
    probes: int
    reasons: list[str]


@members
class ProbesMember:
    """A row of probes.

    Parameters
    ----------
    id : in the ledger, null where it is not kept.
    probes, planned, lost : that were sent, of the schedule, and without an answer [1].
    failed : by reason [1].
    median, p99, max : of first tokens of answered probes, and when the greatest was due (UTC); null without answers [s].
    waited : longest time after which a probe was given up; null where none was [s].
    hours : by the hour of the day of this host.
    """

    id: int | None
    url: str
    model: str
    software: str
    probes: int
    planned: int
    lost: int
    failed: dict[str, int]
    over: OverMember
    median: float | None
    p99: float | None
    max: float | None
    max_at: str | None
    waited: float | None
    hours: list[HourMember]
    changes: list[ChangeMember]
    outages: list[OutageMember]
    limits: list[ObservedLimit]
    interrupted: bool
    notes: list[str]


@members
class StabilityAnswer(Answer):
    """What a day of probes says."""

    stability: ProbesMember = ABSENT


def stability_answer(probed: Probed, asked: StabilityInputs) -> StabilityAnswer:
    """Return the answer of ``roofplan measure stability``.

    Parameters
    ----------
    probed : the probes and what they say.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(StabilityAnswer, "measure stability", asked, stability=probes_member(probed))


def probes_member(probed: Probed) -> ProbesMember:
    """Return a row of probes as a member of an answer."""
    found, server = probed.found, probed.server
    low, high = found.over_ends
    return view(
        ProbesMember,
        found,
        id=probed.run,
        url=server.url,
        model=server.model,
        software=server.software,
        over=OverMember(threshold=found.threshold, share=found.over, low=low, high=high),
        max=found.greatest,
        max_at=None if found.greatest_at is None else utc(found.greatest_at),
        hours=[view(HourMember, one) for one in found.hours],
        changes=[view(ChangeMember, one, at=utc(one.at)) for one in found.changes],
        outages=[
            view(OutageMember, one, begin=utc(one.begin), end=utc(one.end), reasons=list(one.reasons))
            for one in found.outages
        ],
        limits=[
            ObservedLimit(
                figure=one.figure,
                limit=one.limit,
                percentile=one.percentile,
                value=value if math.isfinite(value) else None,
                holds=inside,
            )
            for one, value, inside in probed.limits
        ],
        interrupted=probed.interrupted,
        notes=probed.notes,
    )


def utc(seconds: float) -> str:
    """Return seconds of the epoch as a moment (UTC)."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@members
class KeptMember:
    """A run of the ledger: what was measured and how, when it began (UTC), and how it ended."""

    id: int
    kind: str
    started: str
    status: Literal["complete", "interrupted", "unfinished", "running"]
    requests: int
    completed: int
    url: str = ABSENT
    model: str = ABSENT
    load: str = ABSENT


@members
class RunsAnswer(Answer):
    """What the ledger holds; of one run, what was measured too."""

    ledger: str = ABSENT
    runs: list[KeptMember] = ABSENT
    run: RunMember = ABSENT
    stability: ProbesMember = ABSENT
    machine: MachineMember = ABSENT


def runs_answer(found: Ledgered, asked: RunsInputs) -> RunsAnswer:
    """Return the answer of ``roofplan runs``.

    Parameters
    ----------
    found : what the ledger holds.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(
        RunsAnswer,
        "runs",
        asked,
        ledger=found.place,
        runs=[kept_member(each) for each in found.kept],
        run=ABSENT if found.one is None else run_member(found.one),
        stability=ABSENT if found.probes is None else probes_member(found.probes),
        machine=ABSENT if found.machine is None else machine_member(found.machine),
    )


def kept_member(one: Kept) -> KeptMember:
    """Return a run of the ledger as a member of an answer.

    Parameters
    ----------
    one : the run.

    Returns
    -------
    The member.
    """
    server = one.about.get("server", {})
    told = {"url": server.get("url"), "model": server.get("model"), "load": one.about.get("load")}
    return view(KeptMember, one, **{name: ABSENT if value is None else value for name, value in told.items()})


@members
class ImportAnswer(Answer):
    """Runs that were taken over from another tool."""

    runs: list[KeptMember] = ABSENT


def import_answer(kept: Sequence[Kept], asked: ImportInputs) -> ImportAnswer:
    """Return the answer of ``roofplan import``.

    Parameters
    ----------
    kept : the runs as they are kept.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(ImportAnswer, "import", asked, runs=[kept_member(one) for one in kept])


@members
class CompareAnswer(Answer):
    """A run beside a plan."""

    run: RunMember = ABSENT


def compare_answer(found: Beside, asked: CompareInputs) -> CompareAnswer:
    """Return the answer of ``roofplan compare``.

    Parameters
    ----------
    found : the run and what is predicted for it.
    asked : inputs of the command.

    Returns
    -------
    The answer.
    """
    return answered(CompareAnswer, "compare", asked, run=run_member(found))

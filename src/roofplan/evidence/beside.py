"""A measured run beside what is predicted for it: figure by figure, and what explains the difference."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import numpy as np

from roofplan.errors import InputError, unwrap
from roofplan.evidence.inference import FIXED
from roofplan.inputs import MeasureInputs, SimulateInputs
from roofplan.load.requests import Lengths
from roofplan.load.statistics import Objective
from roofplan.measure.endpoint import Run
from roofplan.measure.figures import Figure, Seen
from roofplan.measure.imports import read
from roofplan.records import units
from roofplan.serving.plan import bounds
from roofplan.simulation.felt import Felt
from roofplan.timing.figures import Metric

DIFFERS = 0.1
"""Relative difference of lengths from which they explain a difference of times [1]."""

SINGLE = 1.02
"""Tokens of an event below which it counts as one [1]."""

ALIKE = 1.25
"""Ratio of two factors up to which they count as one [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure, measured and predicted.

    Parameters
    ----------
    name : of `SEEN`.
    measured : its distribution over requests.
    predicted : its mean with the 90% interval, None without a prediction.
    binds : what the predicted time is spent on, empty without a prediction.
    """

    name: str
    measured: Figure
    predicted: Metric | None
    binds: str

    @property
    def inside(self) -> bool | None:
        """Whether the measured mean lies in the interval; None without a prediction."""
        mean = self.measured.summary.mean
        return None if self.predicted is None or mean is None else self.predicted.low <= mean <= self.predicted.high

    @property
    def ratio(self) -> float | None:
        """Measured over predicted mean, None without a prediction [1]."""
        mean = self.measured.summary.mean
        return mean / self.predicted.value if self.predicted is not None and mean and self.predicted.value else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A run, what it says, and what is predicted for it.

    Parameters
    ----------
    run : the run.
    seen : what it says.
    felt : the plan under the same load, None without one.
    objectives : limits that were asked for.
    warmup : first requests that are left out [1].
    good : share of all requests that were answered inside them, None without limits [1].
    """

    run: Run
    seen: Seen
    felt: Felt | None
    objectives: tuple[Objective, ...]
    good: float | None
    warmup: int = 0

    @property
    def figures(self) -> list[Compared]:
        """Every measured figure with its prediction."""
        simulated = {} if self.felt is None else self.felt.simulation.figures
        # where an event is a token, a gap between events is a time per token
        single = self.seen.tokens_per_event < SINGLE and not (self.felt is not None and self.felt.plan.workload.drafted)
        of = {"itl": "tpot" if single else "none"}
        return [
            Compared(
                name=name,
                measured=one,
                predicted=simulated[of.get(name, name)].metric if of.get(name, name) in simulated else None,
                binds=self._binds(name),
            )
            for name, one in self.seen.figures.items()
        ]

    def _binds(self, name: str) -> str:
        """Return what the predicted time of a figure is spent on."""
        if self.felt is None:
            return ""
        found, plan = self.felt.simulation.figures, self.felt.plan
        waits, first = unwrap(found["waiting"].summary.mean), found["ttft"].summary.mean or inf
        if name == "ttft" and waits > 0.5 * first:
            front = float(plan.rates.front + plan.rates.delay)
            return "the server's front end" if front > 0.5 * waits else "waiting for a seat"
        limits = bounds(plan)
        limit, _ = limits["decode"] if name != "ttft" and "decode" in limits else limits["prefill"]
        return limit.replace("_", " ")

    @property
    def kept(self) -> bool:
        """Whether every request was answered and all limits hold."""
        return not self.seen.failed and not self.run.interrupted and all(self.holds(one) for one in self.objectives)

    def at(self, limit: Objective) -> float | None:
        """Return the measured time at a limit's percentile, None where nothing was measured [s]."""
        told = self.seen.figures.get(limit.figure)
        if told is None or limit.percentile in told.summary.quantiles or not self.run.samples:
            return None if told is None else told.summary.quantiles.get(limit.percentile)
        counted = [one for one in self.run.samples if one.answered and one.number >= self.warmup]
        known = [value for one in counted if (value := getattr(one, limit.figure)) is not None]
        return float(np.quantile(known, limit.quantile))

    def holds(self, limit: Objective) -> bool:
        """Return whether the measured time at a limit's percentile is inside it."""
        value = self.at(limit)
        return value is not None and value <= limit.limit

    def explains(self) -> list[str]:
        """Return what explains the difference between measurement and prediction, the plainest first."""
        return list(self._reasons())

    def _reasons(self) -> Iterable[str]:
        seen, felt = self.seen, self.felt
        if seen.failed:
            yield f"{sum(seen.failed.values()):,} requests failed and are in no figure"
        if felt is None:
            return
        for what, found, planned in (
            ("prompts", seen.input, felt.asked.input),
            ("answers", seen.output, felt.asked.output),
        ):
            if found is not None and abs(found / planned - 1.0) > DIFFERS:
                yield f"{what} have {found:,.0f} tokens, {planned:,.0f} were predicted"
        if seen.cached:
            taken = ", as the prediction takes it" if felt.plan.workload.prefix_hit else ""
            yield f"the server found {seen.cached:.0%} of the prompts in its cache{taken}"
        ratios = {one.name: one.ratio for one in self.figures if one.ratio is not None and one.name in {"ttft", "tpot"}}
        outside = [one.name for one in self.figures if one.inside is False]
        if not outside or len(ratios) < 2:
            return
        first, token = ratios["ttft"], ratios["tpot"]
        if first is None or token is None:
            return
        if max(first, token) / min(first, token) < ALIKE:
            yield f"all steps take {token:.2g} times what is predicted: roofplan calibrate learns that"
        elif first > token:
            yield f"tokens take {token:.2g} times what is predicted, first tokens {first:.2g} times: waiting, or the server's front end"
        else:
            yield f"first tokens take {first:.2g} times what is predicted, tokens {token:.2g} times: other users' prompts, or decode steps"


def pins_of(given: MeasureInputs) -> Pins | None:
    """Return what pins the plan of a run: one in a file, or a machine and a model that are named; None where neither is.

    Parameters
    ----------
    given : inputs of ``roofplan measure endpoint``.

    Returns
    -------
    Inputs of `simulate` without a load; without a model, the server's id is it.

    Raises
    ------
    InputError : no plan in the file, or both ways at once.
    """
    if given.plan is not None and (given.on or given.config or given.engine):
        raise InputError("--plan and --on, --config, --engine exclude each other", argument="--plan", value=given.plan)
    if given.plan is not None:
        return planned_in(given.plan)
    if not given.on:
        if given.config or given.engine:
            raise InputError("--config and --engine: on which machine? Example: --on h100-sxm:8", argument="--on")
        return None
    return {"model": given.config, "on": list(given.on), "engine": given.engine}


Pins = dict[str, object]
"""What pins a plan: inputs of `simulate` without a load."""


def planned_in(path: str, argument: str = "--plan") -> Pins:
    """Return what pins the first plan of a JSON answer of ``serve`` or ``simulate``.

    Parameters
    ----------
    path : of the file.
    argument : that it was given as, for a refusal.

    Returns
    -------
    Inputs of `simulate` without a load.

    Raises
    ------
    InputError : no such file, or no plan in it.
    """
    try:
        document = json.loads(read(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "holds no JSON"
        raise InputError(f"{argument}: {path}: {why}", argument=argument, value=path) from None
    found = document if isinstance(document, dict) else {}
    plan = (found.get("plans") or [found])[0]
    if found.get("command") not in {"serve", "simulate"} or "strategy" not in plan:
        message = f"{argument}: {path} holds no plan: roofplan serve MODEL --on MACHINE --json > {path} writes one"
        raise InputError(message, argument=argument, value=path)
    asked = {name: value for name, value in found["inputs"].items() if name in KEPT and value is not None}
    pins = ",".join(f"{name}={value}" for name, value in plan["strategy"].items())
    return asked | {"on": (plan.get("machine") or found["machine"])["text"], "strategy": pins, "engine": plan["engine"]}


KEPT = ("model", "context", "precision", "kv_precision", "prefix_hit", "set", "draft", "price")
"""Inputs of a plan that a prediction of its run keeps."""


def under(pins: Pins, run: Run, seen: Seen, given: MeasureInputs) -> SimulateInputs:
    """Return what `simulate` is asked for a run: the plan, the load as it was put, and lengths and cached share as the server counted them.

    Parameters
    ----------
    pins : the plan.
    run, seen : the run and what it says.
    given : inputs that it was measured with.

    Returns
    -------
    Inputs of `simulate`.
    """
    load = {
        name: getattr(given, name) for name in ("rate", "burst", "trace", "burstiness", "lengths", "seed", "warmup")
    }
    if given.rate is None and given.burst is None and given.trace is None:
        load["clients"] = given.clients or "1"
    if given.trace is None:
        load["input"] = str(round(seen.input or seen.asked_input))
        load["output"] = str(max(2, round(seen.output or seen.asked_output)))
        if seen.cached is not None:
            load["prefix_hit"] = f"{min(seen.cached, MOST_CACHED):.4f}"
    if given.burst is None:
        load["requests"] = str(run.planned)
    model = {"model": pins.get("model") or run.server.model}
    return SimulateInputs.of({name: value for name, value in {**pins, **load, **model}.items() if value is not None})


MOST_CACHED = 0.99
"""Largest share of a prompt that a prediction takes as cached: its last token is always computed [1]."""


def row_of(found: Beside, pins: Pins, month: str) -> dict[str, str]:
    """Return a run with its plan as a row of the table that ``validate`` and ``calibrate`` read.

    Parameters
    ----------
    found : a run with a prediction.
    pins : its plan.
    month : in which it was measured, such as 2026-11.

    Returns
    -------
    Columns and cells.

    Raises
    ------
    InputError : no plan, or nothing that was measured.
    """
    felt, run = found.felt, found.run
    if felt is None or "tpot" not in found.seen.figures:
        why = "names no plan: roofplan compare PLAN RUN keeps one" if felt is None else "has no time per token"
        raise InputError(f"run {run.id}: {why}", argument="--with", value=f"run:{run.id}")
    plan, asked = felt.plan, felt.asked
    version = plan.engine.id.removeprefix(f"{plan.engine.name}-")
    stored = plan.model.quantization
    checkpoint = plan.model.dtype if stored is None else stored.format
    weights = checkpoint if plan.precision == "checkpoint" else plan.precision
    means = {name: one.summary.mean for name, one in found.seen.figures.items()}
    told: dict[str, object] = {
        "id": f"run-{run.id}",
        "source_key": "own runs",
        "model_name": pins.get("model") or plan.named or plan.model.id,
        "accel_norm": plan.machine.name or plan.machine.device.id,
        "count": plan.machine.count,
        **plan.strategy.as_dict(),
        "engine_name": plan.engine.name,
        "engine_version": version,
        "weight_precision": weights,
        "kv_precision": plan.kv_precision,
        "input_len": max(
            1, round(asked.input * (1.0 - plan.workload.prefix_hit))
        ),  # what was computed, not found in a cache
        "output_len": round(asked.output),
        "client_concurrency": asked.clients or "",
        "request_rate": "inf" if asked.burst else asked.rate or "",
        "queued_requests": asked.count,
        "lengths": FIXED if asked.lengths == Lengths() else "",
        "max_num_seqs": felt.simulation.deployment.seats() * felt.simulation.deployment.replicas,
        "metric_kind": "serving",
        "tpot_ms": 1e3 * (means["tpot"] or 0.0),
        "ttft_ms": 1e3 * (means.get("ttft") or 0.0) or "",
        "month": month,
    }
    return {name: str(value) for name, value in told.items()}


BUNCHES = 0.02
"""Share of events that came with the one before from which a warning is due [1]."""


BUSY = 0.8
"""Share of a core from which the client may be what is measured [1]."""


LATE = 0.005
"""Lateness of the client from which a warning is due [s]."""


def warnings_of(found: Beside) -> list[str]:
    """Return what makes the figures of a run doubtful.

    Parameters
    ----------
    found : the run.

    Returns
    -------
    A line each.
    """
    run, seen = found.run, found.seen
    out = list(run.notes)
    if run.server.local:
        out.append("client and server share this host: a busy host moves both")
    if run.effort.share > BUSY or run.effort.lag(0.99) > LATE:
        out.append("the client is busy: gaps and first tokens may be its own; use fewer streams")
    if seen.late > LATE and run.effort.lag(0.99) <= LATE:
        out.append(f"a request was sent {units.show(seen.late, 's')} late: its times count from when it was due")
    if seen.bunched > BUNCHES:
        out.append("events come in bunches: gaps say little, TPOT is exact only over the whole answer")
    if seen.tokens_per_event > 1.0 + BUNCHES:
        each = units.significant(seen.tokens_per_event)
        out.append(
            f"an event holds {each} tokens: TPOT may be off by the share of those in the first and the last event"
        )
    if any(one.whole for one in run.samples):
        out.append("answers came as one document, not as a stream: TTFT, TPOT and ITL are not known")
    for count, how in ((seen.short, "shorter"), (seen.longer, "longer")):
        if count:
            out.append(f"{count:,} answers were {how} than asked for")
    return out

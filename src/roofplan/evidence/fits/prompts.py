"""Fit the prefill rate of an engine, and the time of its front end per request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean, geometric_mean, median
from typing import NamedTuple

import numpy as np

from roofplan import catalogue
from roofplan.catalogue import format_entry
from roofplan.evidence.fits.engines import LEAST, steady_run
from roofplan.evidence.fits.fitting import entry, merged, spread
from roofplan.evidence.fits.runs import REMEMBERED, At, usable
from roofplan.evidence.inference import LARGEST_QUEUE, InferenceCase, tells_latency
from roofplan.evidence.rows import Skipped
from roofplan.evidence.serving_figures import simulated
from roofplan.operations import STATE_SCAN
from roofplan.records.calibration import Constant, Fit
from roofplan.records.engine import EAGER
from roofplan.records.terms import Term
from roofplan.serving import leaves, limit_of
from roofplan.serving.step import pieces, replayed
from roofplan.simulation.replicas import Served
from roofplan.timing.figures import scopes_by_vendor
from roofplan.timing.rates import Rates, at_home


def fit_prefill(fit: Fit) -> list[Constant]:
    """Fit, per engine and per vendor of its devices, the share of the published kernels' compute rate that its prefill reaches.

    The rows are prompts timed alone, and offline runs whose prompts are much longer than their answers. Subtracting memory passes and
    launches from a measured time leaves the compute time, which gives the share; the median over publishers of the medians of their
    runs counts. An engine's kernels for one vendor's devices are not those for another's, so that they have shares of their own. Where
    publishers are few, the share is shrunk, that of a version towards its engine's and that of an engine towards the median over engines,
    which count as `PRIOR_PUBLISHERS`. Block products without rows take the share of 16-bit products.
    """
    ratios: dict[str, dict[str, dict[str, list[float]]]] = {
        name: defaultdict(lambda: defaultdict(list)) for name in SHARES
    }
    versions_seen, publishers = set(), set()
    engine_of: dict[str, str] = {}
    for case in usable(fit.excluded, own_kernels=True):
        known = _timed(At(case, fit))
        if known is None:
            continue
        name = "block_share" if in_blocks(case, fit) else "compute_share"
        now = fit.find("engine", name, scopes_by_vendor(case.engine, case.machine.device))
        left = known.left(known.computing)
        if known.hosted or left is None:
            continue
        publisher, share = case.row["source_key"], known.computing / left * now.value
        publishers.add(publisher)
        if own := case.engine.own_kernels:
            ratios[name][own][publisher].append(share)
            continue
        versions_seen.add(case.engine.id)
        version, engine = case.engine.id, case.engine.name if not case.engine.eager else EAGER
        for on in ("", f"/{case.machine.device.vendor}"):
            ratios[name][engine + on][publisher].append(share)
            ratios[name][version + on][publisher].append(share)
            engine_of[version + on] = engine + on
    out = []
    source = f"published times of prompts alone, or of prompts longer than answers: {', '.join(sorted(publishers))}"
    for name, found in ratios.items():
        medians = {scope: [median(values) for values in each.values()] for scope, each in found.items()}
        versions = [median(each) for scope, each in medians.items() if scope in versions_seen]
        middle = min(1.0, median(versions)) if versions else 1.0
        shares: dict[str, float] = {}
        for scope in sorted(medians, key=lambda one: (one in engine_of, one)):
            each, prior = medians[scope], shares.get(engine_of.get(scope, ""), middle)
            weight = len(each) / (len(each) + PRIOR_PUBLISHERS)
            share = shares[scope] = min(1.0, median(each) ** weight * prior ** (1.0 - weight))
            rows = sum(map(len, found[scope].values()))
            out.append(entry("engine", name, scope, share, "1", _spread(list(found[scope].values())), rows, source))
        every = {scope: each for scope, each in found.items() if scope in versions_seen}
        if every:
            note = f"median of {len(versions)} engines' medians"
            rows = sum(len(values) for each in every.values() for values in each.values())
            off = _spread([values for each in every.values() for values in each.values()])
            out.append(entry("engine", name, "any", middle, "1", off, rows, source, note))
        elif name == "block_share":
            out += as_16_bit_products(out)
        else:
            note = "no engine has rows: taken to reach the published kernels"
            out.append(entry("engine", name, "any", 1.0, "1", 0.3, 0, note, kind="guess"))
        note = "training's frameworks have shares of their own"
        out.append(entry("engine", name, "training", 1.0, "1", 0.2, 0, note, kind="definition"))
    return merged([*out, *_scans(fit)])


def _spread(publishers: Sequence[Sequence[float]]) -> float:
    """Return the robust relative spread of shares between publishers; of one publisher that of its runs [1]."""
    return spread(publishers[0] if len(publishers) == 1 else map(median, publishers))


def _scans(fit: Fit) -> list[Constant]:
    """Return, per engine that loops over the tokens of a prompt, the share of the vector units that its loops reach."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case in usable(fit.excluded):
        known = _timed(At(case, fit)) if case.engine.kernels.scans else None
        left = known and known.left(known.scanning)
        if known and left:
            now = fit.find("engine", "scan_share", case.engine.scopes).value
            found[case.engine.name][case.row["source_key"]].append(known.scanning / left * now)
    out = []
    for scope, by_publisher in sorted(found.items()):
        share = median(median(values) for values in by_publisher.values())
        off = spread(value / share for values in by_publisher.values() for value in values)
        rows = sum(map(len, by_publisher.values()))
        source = f"published times of prompts alone of models with a recurrence: {', '.join(sorted(by_publisher))}"
        out.append(entry("engine", "scan_share", scope, share, "1", off, rows, source))
    return out


def as_16_bit_products(found: Sequence[Constant]) -> list[Constant]:
    """Return the shares of block products where no engine has rows: those of 16-bit products."""
    note = "no engine has rows: taken to lose what its products in 16 bits do"
    return [
        entry("engine", "block_share", one.scope, one.value, "1", 0.3, 0, note, kind="guess")
        for one in found
        if one.name == "compute_share" and one.scope != "training"
    ]


class _Timed(NamedTuple):
    """A measured run dominated by prompts beside its prediction.

    Parameters
    ----------
    predicted, whole : predicted and measured time [s].
    computing : its compute-bound part whose rate depends on one of `SHARES` [s].
    scanning : its loops over tokens [s].
    hosted : whether it waits for its host's launches.
    """

    predicted: float
    whole: float
    computing: float
    scanning: float
    hosted: bool

    def left(self, part: float) -> float | None:
        """Return the measured time less everything predicted but a part, None where that part is too small to determine a rate [s]."""
        left = self.whole - (self.predicted - part)
        return left if min(part / self.predicted, left / self.whole) >= COMPUTING else None


@lru_cache(maxsize=REMEMBERED)
def _timed(at: At) -> _Timed | None:
    known = prompts_of(at.case, at.fit)
    if known is None:
        return None
    term, whole = known
    scanning = sum(value for leaf, value in leaves(term) if leaf.name == STATE_SCAN)
    return _Timed(float(term.value), whole, _computing(term), scanning, term.find("host launches") is not None)


def prompts_of(case: InferenceCase, fit: Fit) -> tuple[Term, float] | None:
    """Return predicted and measured time of a run dominated by prompts [s], None for other runs."""
    if case.regime == "static batch" and case.users is not None:
        seconds, rate = case.measured.get("ttft"), case.measured.get("prefill_tokens_per_second")
        if rate is not None and not tells_latency(case):
            seconds = case.users * case.prompt / rate
        return None if seconds is None else (case.prompts_term(fit), seconds)
    if case.regime != "offline" or case.workload.input < LONG_PROMPTS * case.workload.output:
        return None
    known = steady_run(case, fit)
    return None if known is None else (known[2], known[1])


LONG_PROMPTS = 2.0
"""Prompt over answer length above which an offline run is used for the prefill rate [1]."""


def fit_front(fit: Fit) -> list[Constant]:
    """Fit, per engine version and engine, the front end's time per request and its latency, and the host's time of a launch.

    The time per request is the extra TTFT of a burst over its requests, of bursts with short prompts and enough
    requests, so that the computation takes little of it. The latency is by how much the first tokens of few clients, or at
    a rate that keeps few requests running, are later than simulated: the median over publishers of the median over their
    runs. Both come from devices on which the engine is at home: elsewhere first tokens are late because prompts are slow.
    What is late by many kernels, and not where long prompts keep the device busy, is the host's time of a launch.
    """
    found: dict[str, list[float]] = defaultdict(list)
    few_clients: dict[str, list[_First]] = defaultdict(list)
    publishers = set()
    for case in usable(fit.excluded):
        seconds = case.measured.get("ttft")
        few = (case.clients or 0.0) <= FEW_CLIENTS and case.regime in {"closed loop", "open loop"}
        if seconds is None or not (few or _is_burst(case)) or not at_home(case.engine, case.machine.device):
            continue
        seen = _first_token(At(case, fit, queues=True))
        if seen is None or (few and seen[0] > FEW_CLIENTS):
            continue
        late, r = seconds - seen[1], case.rates(fit)
        for scope in {case.engine.id, case.engine.name}:
            if few:
                few_clients[scope].append(_first(case, fit, seconds, late + float(r.delay)))
            elif case.requests:
                publishers.add(case.row["source_key"])
                found[scope].append(late / case.requests + float(r.front))
    out = fronts(found, f"first tokens of published bursts: {', '.join(sorted(publishers))}")
    host = host_launch({name: few_clients[name] for name in sorted(_engines() & few_clients.keys())})
    waits: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for scope, runs in few_clients.items():
        for run in runs:
            waits[scope][run.publisher].append(run.late(host.value))
    return [*out, *latencies(waits), host]


@lru_cache(maxsize=REMEMBERED)
def _first_token(at: At) -> tuple[float, float] | None:
    """Return the requests that run in the mean [1] and the time to the first token [s] of a simulated run, None where memory is short."""
    try:
        seen, _ = simulated(at.case, at.fit)
    except Skipped:
        return None
    return running(seen), at.case.statistic.of(seen.figure("ttft"))


class _First(NamedTuple):
    """A measured first token of few clients.

    Parameters
    ----------
    publisher : who measured it.
    seconds : published time [s].
    behind : by how much it was later than simulated, the front end's latency aside [s].
    kernels : kernels of a prompt that are started from Python [1].
    device : time of a prompt on the device [s].
    launch : host's time of a launch with which it was simulated [s].
    """

    publisher: str
    seconds: float
    behind: float
    kernels: float
    device: float
    launch: float

    def late(self, launch: float) -> float:
        """Return by how much it is later than simulated with another time of a launch [s]."""
        with_it, then = (max(0.0, self.kernels * each - self.device) for each in (launch, self.launch))
        return self.behind + then - with_it


def _first(case: InferenceCase, fit: Fit, seconds: float, behind: float) -> _First:
    """Return a measured first token of few clients."""
    r, term = case.rates(fit), case.prompts_term(fit)
    spent: dict[str, float] = defaultdict(float)
    for leaf, value in leaves(term):
        spent[leaf.name] += value
    return _First(
        publisher=case.row["source_key"],
        seconds=seconds,
        behind=behind,
        kernels=_started(case, term, spent["launches"], r) if case.engine.kernels.from_python and r.gap else 0.0,
        device=float(term.value) - spent["engine step"] - spent["host launches"],
        launch=float(r.launch),
    )


def _started(case: InferenceCase, term: Term, launches: float, r: Rates) -> float:
    """Return the kernels of a prompt that its host starts, from the time of all launches [s] between them [1]."""
    kernels = launches / float(r.gap)
    passes = next(float(leaf.numbers["passes"]) for leaf, _ in leaves(term) if leaf.name == "engine step")
    if case.prompt / passes > replayed(case.model, case.strategy, r.machine, r.engine):
        return kernels
    return min(kernels, float(pieces(case.model, case.strategy) * case.strategy.pp) * passes)


def _engines() -> set[str]:
    """Return the names of engines."""
    return {catalogue.engine(name).name for name in catalogue.ids("engines")}


def host_launch(found: Mapping[str, Sequence[_First]]) -> Constant:
    """Return the host's time of a launch from Python with which first tokens of few clients are nearest to what was measured.

    Publishers count alike, over all engines: each engine's front end has a latency of its own, fitted anew for each time that is tried.

    Parameters
    ----------
    found : first tokens of few clients, by engine.

    Returns
    -------
    The constant [s].
    """
    started = {name: mine for name, runs in found.items() if (mine := [run for run in runs if run.kernels])}
    publishers = sorted({run.publisher for runs in started.values() for run in runs})
    count = sum(map(len, started.values()))
    if count < LEAST_RUNS or len(publishers) < LEAST_PUBLISHERS:
        return entry("kernel", "launch", "any", 0.0, "s", LAUNCH_SPREAD, 0, "no first tokens tell", kind="guess")

    def off(launch: float) -> float:
        errors: dict[str, list[float]] = defaultdict(list)
        for runs in started.values():
            late: dict[str, list[float]] = defaultdict(list)
            for run in runs:
                late[run.publisher].append(run.late(launch))
            front = max(LEAST_FRONT, median(map(median, late.values())))
            for run in runs:
                predicted = max(LEAST_FRONT, run.seconds - run.late(launch) + front)
                errors[run.publisher].append(abs(math.log(predicted / run.seconds)))
        return fmean(map(fmean, errors.values()))

    value = min(map(float, np.arange(0.0, MOST_LAUNCH, LAUNCH_STEP)), key=off)
    note = "least mean error of first tokens, with the front end's latency; a kernel as counted is several launches from Python"
    source = f"first tokens of few clients: {', '.join(publishers)}"
    return entry("kernel", "launch", "any", value, "s", LAUNCH_SPREAD, count, source, note)


MOST_LAUNCH, LAUNCH_STEP = 2e-4, 5e-6
"""Host's times of a launch that are tried [s]."""


LAUNCH_SPREAD = 0.5
"""Spread of a host's time of a launch: hosts, and how many launches a counted kernel stands for, differ [1]."""


LEAST_PUBLISHERS = 3
"""Least publishers whose first tokens tell the time of a launch [1]."""


def running(seen: Served) -> float:
    """Return the mean number of requests between arrival and last token [1]."""
    return float(seen.figure("e2e").sum() / (seen.last.max() - seen.arrivals.min()))


def _is_burst(case: InferenceCase) -> bool:
    """Return whether a run is a burst of short prompts, large enough to tell the front end's time per request."""
    if case.regime != "burst" or case.requests is None or case.prompt > SHORT_PROMPT:
        return False
    return LEAST_BURST <= case.requests <= LARGEST_QUEUE * max(1, case.book().max_concurrency)


def latencies(waits: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Constant]:
    """Return the front end's latency for engines with enough runs, and their geometric mean, or a guess, for others.

    That of a version is the geometric mean of its publishers' and, once, its engine's.

    Parameters
    ----------
    waits : by scope and publisher, by how much first tokens were late [s].

    Returns
    -------
    Constants [s].
    """
    rows = {scope: sum(map(len, by_publisher.values())) for scope, by_publisher in sorted(waits.items())}
    medians = {
        scope: [max(median(late), LEAST_FRONT) for late in waits[scope].values()]
        for scope, count in rows.items()
        if count >= LEAST_RUNS
    }
    engines = _engines()
    known = {scope: median(each) for scope, each in medians.items() if scope in engines}
    for scope in sorted(medians.keys() - engines):
        known[scope] = geometric_mean([*medians[scope], known[catalogue.engine(scope).name]])
    if not known:
        note = "before the first token and outside its step, by BLIS's defaults of August 2026"
        return [entry("front_end", "latency", "any", GUESSED_LATENCY, "s", LATENCY_SPREAD, 0, note, kind="guess")]
    named = sorted({name for by_publisher in waits.values() for name in by_publisher})
    source = f"first tokens of few clients: {', '.join(named)}"
    middle = geometric_mean(value for scope, value in known.items() if scope in engines)
    scopes = [*known.items(), ("any", middle)]
    return merged(
        [
            entry(
                "front_end", "latency", scope, value, "s", LATENCY_SPREAD, rows.get(scope, sum(rows.values())), source
            )
            for scope, value in scopes
        ]
    )


LEAST_RUNS = 5
"""Least runs of few clients from which an engine gets a latency of its own [1]."""


FEW_CLIENTS = 16
"""Most clients, or requests that run, whose first tokens tell the front end's latency: more of them queue [1]."""


GUESSED_LATENCY = 0.0156
"""Latency of a front end where no run tells [s]."""


LATENCY_SPREAD = 0.8
"""Spread of a front end's latency: publishers differ by host, client and length of prompts [1]."""


SHORT_PROMPT = 512.0
"""Longest prompt of a burst used for the front end's time: for longer ones the computation dominates [token]."""


LEAST_BURST = 200.0
"""Least number of requests in such a burst [1]."""


def fronts(found: Mapping[str, list[float]], source: str = "") -> list[Constant]:
    """Return the front end's time per request for engines with enough rows, and their geometric mean, or a guess, for others [s]."""
    known = {
        scope: max(median(late), LEAST_FRONT)
        for scope, late in sorted(found.items())
        if len(late) >= LEAST and _bursts_agree(late)
    }
    out = [
        entry("front_end", "request", scope, value, "s", FRONT_SPREAD, len(found[scope]), source)
        for scope, value in known.items()
    ]
    if not known:
        note = "next to nothing, where no burst tells"
        return [entry("front_end", "request", "any", LEAST_FRONT, "s", 0.7, 0, note, kind="guess")]
    middle = geometric_mean(known.values())
    rows = sum(len(late) for late in found.values())
    every = entry("front_end", "request", "any", middle, "s", 0.7, rows, source, "geometric mean of the engines")
    return merged([*out, every])


def _bursts_agree(late: Sequence[float]) -> bool:
    """Return whether an engine's bursts agree on its front end's time; otherwise first tokens were late for another reason."""
    low, high = np.quantile(np.maximum(late, LEAST_FRONT), (0.25, 0.75))
    return bool(high <= AGREEING * low)


AGREEING = 6.0
"""Largest ratio between the quartiles of an engine's bursts [1]."""


LEAST_FRONT = 5e-4
"""Lower bound of a front end's time per request [s]."""


FRONT_SPREAD = 0.5
"""Spread of a front end's time: bursts of one engine lie between a third and three times the value, since models and hosts differ [1]."""


COMPUTING = 0.4
"""Least share of a prompt's time spent in products and attention for it to determine their rate [1]."""


def _computing(term: Term) -> float:
    """Return the compute-bound part of a time whose rate depends on one of `SHARES` [s]."""

    def shared(leaf: Term) -> bool:
        return any(isinstance(one, Constant) and one.name in SHARES for one in leaf.sources)

    return sum(value for leaf, value in leaves(term) if limit_of(leaf) == "compute" and shared(leaf))


SHARES = ("compute_share", "block_share")
"""Shares of the kernels' rate that prefill reaches: for 16 and 8 bits, and for GGUF blocks."""


PRIOR_PUBLISHERS = 3.0
"""Publishers that a prior counts for, besides those of a version or an engine [1]."""


def in_blocks(case: InferenceCase, fit: Fit) -> bool:
    """Return whether a case's products run on GGUF blocks at a rate of their own."""
    plan = case.model.quantization
    blocks = plan is not None and format_entry(plan.format)["kernel"] == "blocks"
    return blocks and case.rates(fit).peak["gguf"] != case.rates(fit).peak["fp16"]

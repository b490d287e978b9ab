"""Fit what an engine adds to kernels: gaps between them, host time per step, and achieved bandwidth of experts and GEMV.

The fits use end-to-end rows with a known batch size, over all models and devices at once. Kernels keep the constants
fitted to their own tables.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from roofplan.evidence.fits import hierarchy
from roofplan.evidence.fits.fitting import NOT_FOR_FITTING, Excluded, entry, merged, spread
from roofplan.evidence.fits.hierarchy import Block, Prior
from roofplan.evidence.inference import LARGEST_QUEUE, InferenceCase, clean_cases
from roofplan.records.calibration import Constant, Fit
from roofplan.records.engine import AHEAD, COMPILED
from roofplan.records.model import Mixture
from roofplan.records.terms import Term
from roofplan.serving import leaves, limit_of
from roofplan.timing.kernels import ROOFLINE


@dataclass(slots=True)
class Decode:
    """One measured decode step and the parts of its prediction that do not depend on the fitted constants.

    Parameters
    ----------
    fixed : predicted time without launches, experts and host [s].
    reads : reads of matrix-vector kernels at full memory bandwidth [s].
    native, blocks : their entries over the rate of the vector units, by storage of the weights [s].
    kernels : kernel launches in the step [1].
    experts : time of the experts at full memory bandwidth [s].
    stored : weight format of the experts.
    sequences : sequences per group [1].
    measured : published time [s].
    """

    case: InferenceCase
    fixed: float
    kernels: float
    experts: float
    stored: str
    reads: float
    native: float
    blocks: float
    sequences: float
    measured: float
    engine: str
    scope: str


def usable(excluded: Excluded, *, prompts: bool = False) -> list[InferenceCase]:
    """Return the published runs that may be fitted on: those of described engines, without software that another stands in for.

    Of `prompts` also those of such software whose own kernels compute them.
    """
    gone = NOT_FOR_FITTING | excluded
    allowed = (one for one in clean_cases() if gone.isdisjoint(one.origin.names))
    return [one for one in allowed if not one.engine.stands_for or (prompts and one.engine.prompt_kernels)]


def decodes(fit: Fit) -> list[Decode]:
    """Return the measured decode steps with a known batch size that a fit does not exclude."""
    return [found for case in usable(fit.excluded) if (found := _decode(case, fit)) is not None]


def steady_run(case: InferenceCase, fit: Fit) -> tuple[float, float, Term] | None:
    """Return batch size, time per token [s] and the Term that it measures; offline runs have as many sequences as memory admits."""
    if case.running is not None and case.tpot is not None:
        return case.running, case.tpot, case.measured_term(case.steady(case.running, fit))
    rate = case.measured.get("output_tokens_per_second")
    if rate is None or case.regime != "offline" or not case.in_flight:
        return None
    book = case.book()
    if book.max_concurrency < 1 or (case.requests is not None and case.requests < LARGEST_QUEUE * book.max_concurrency):
        return None
    users = float(book.max_concurrency)
    return users, users / rate, case.steady(users, fit).cycle


def _decode(case: InferenceCase, fit: Fit) -> Decode | None:
    known = steady_run(case, fit)
    if known is None:
        return None
    users, measured, term = known
    r = case.rates(fit)
    named = _named(term)
    launches, experts, host = named["launches"], named["routed experts"], named["engine step"]
    gap, stored = float(r.gap), expert_format(case)
    bandwidth = float(r.bandwidth[f"experts.{stored}" if f"experts.{stored}" in r.bandwidth else "experts"])
    vector = _vector_parts(term)
    varies = vector["time"] + launches + experts + host
    return Decode(
        case=case,
        fixed=float(term.value) - varies,
        kernels=launches / gap,
        reads=vector["reads"] / float(r.wire),
        native=vector["native"],
        blocks=vector["blocks"],
        experts=experts * bandwidth / float(r.wire),
        stored=stored,
        sequences=_group(case, users),
        measured=measured,
        engine=case.engine.name,
        scope=case.engine.id,
    )


def _named(term: Term) -> dict[str, float]:
    """Return seconds by leaf name; compute-bound experts are separate, since bandwidth does not affect them."""
    out: dict[str, float] = defaultdict(float)
    for leaf, value in leaves(term):
        if leaf.law == VECTOR_LAW:
            continue
        computes = leaf.name == "routed experts" and limit_of(leaf) == "compute"
        out["computed experts" if computes else leaf.name] += value
    return out


def expert_format(case: InferenceCase) -> str:
    """Return the format of a model's routed experts, empty where it has none."""
    for layer, _ in case.model.decoder.kinds():
        for feed in layer.feed_forwards:
            if isinstance(feed, Mixture):
                stored = feed.expert[0][0].format
                return "bf16" if stored == "fp16" else stored
    return ""


VECTOR_LAW = "roofline.serial_time"
"""Law of leaves that are matrix-vector kernels."""


def _vector_parts(term: Term) -> dict[str, float]:
    """Return the sums over a step's matrix-vector kernels: bytes read, entries over the vector rate, and time."""
    out: dict[str, float] = defaultdict(float)
    for leaf, value in leaves(term):
        if leaf.law != VECTOR_LAW:
            continue
        moved, memory_rate, _, rate = (leaf.numbers[name][0] for name in ROOFLINE)
        entries, factor = leaf.numbers["entries"], value / float(leaf.value) * leaf.numbers["layers"]
        out["reads"] += factor * moved
        out["native" if leaf.numbers["how"] == "native" else "blocks"] += factor * entries / rate
        out["time"] += factor * (moved / memory_rate + entries * leaf.numbers["unpacking"] / rate)
    return out


def _group(case: InferenceCase, users: float) -> float:
    return max(1.0, users / (case.groups * int(case.strategy.pp)))


LEAST = 12
"""Least number of rows for an engine version to get constants of its own."""

RECENT = "2025"
"""Year from which versions count as recent in the scope of an engine."""


class Number(NamedTuple):
    """Prior of a constant.

    Parameters
    ----------
    middle, spread : median, and one standard deviation of the logarithm.
    least, most : physical bounds.
    """

    law: str
    name: str
    unit: str
    middle: float
    spread: float
    least: float
    most: float


EXPERTS = Number("experts", "bandwidth", "1", 0.6, 0.4, 0.15, 1.0)
NUMBERS = (
    Number("kernel", "gap", "s", 1.5e-6, 0.7, 2e-7, 3e-5),
    Number("engine_step", "base", "s", 5e-4, 1.0, 5e-5, 3e-2),
    Number("engine_step", "per_sequence", "s", 5e-6, 1.0, 1e-7, 2e-4),
    EXPERTS,
    Number("vector", "bandwidth", "1", 0.85, 0.2, 0.3, 1.0),
    Number("vector", "unpacking.native", "FLOP", 2.0, 1.5, 0.1, 60.0),
    Number("vector", "unpacking.blocks", "FLOP", 4.0, 1.5, 0.1, 60.0),
)
"""Constants that are fitted together. Bounds: a gap is shorter than an eager launch, host time per step is at most 30 ms, a share is at
most one, and unpacking a weight takes at most 60 operations."""

GAP, BASE, PER_SEQUENCE = 0, 1, 2
"""Index in `NUMBERS` of the gap between kernels, the host time per step and the host time per sequence."""

EAGER_GAP, EAGER_BASE = 1.5e-5, 3e-3
"""Priors for engines that launch every kernel from Python: 10 to 20 us a kernel, as in eager PyTorch, and a few milliseconds a step [s]."""

ERR_TOGETHER = -0.5
"""Exponent of the number of rows that gives their weight: errors of a publisher are correlated, so n rows count as sqrt(n) independent ones [1]."""

MOST_CAPTURED = 3.4e-6
"""Upper bound of the gap between kernels of a captured graph, or launched from C++: one launch takes 1.3 us on an H100
(hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles), and engines that run one sequence from a graph without a scheduler need 2.9
(gpt-fast) to 3.4 (llama.cpp), including the fill and drain of a kernel [s]."""

PYTHON_SEQUENCE = 2.8e-5
"""Prior of the scheduling time per sequence in Python: 4 to 13 ms per step at vLLM's 256 sequences, the geometric
mean over them (github.com/vllm-project/vllm/issues/6854, 2024-07) [s]."""


def _depends_on(row: Decode, law: str, name: str, own: Sequence[str]) -> bool:
    """Return whether a row depends on a constant; experts of formats with their own share do not depend on the common one."""
    if law == "experts":
        stored = name.partition(".")[2]
        return row.experts > 0 and (row.stored == stored if stored else row.stored not in own)
    return (
        law != "vector"
        or {"bandwidth": row.reads, "native": row.native, "blocks": row.blocks}[name.rsplit(".", maxsplit=1)[-1]] > 0
    )


def _time(p: Sequence[float], row: Decode, own: Sequence[str] = ()) -> float:
    gap, base, each, experts, share, native, blocks = p[: len(NUMBERS)]
    if row.stored in own:
        experts = p[len(NUMBERS) + own.index(row.stored)]
    host = row.kernels * gap + base + each * row.sequences
    return row.fixed + host + row.experts / experts + row.reads / share + native * row.native + blocks * row.blocks


def own_formats(found: Sequence[Decode]) -> list[str]:
    """Return the expert formats with enough rows for a bandwidth share of their own."""
    stored = [row.stored for row in found if row.experts > 0]
    return sorted(name for name in set(stored) if stored.count(name) >= LEAST)


def _numbers(found: Sequence[Decode]) -> list[Number]:
    """Return the constants to fit: those of `NUMBERS`, then a bandwidth share for each expert format with enough rows."""
    out = list(NUMBERS)
    if _all_captured(found) or found[0].case.engine.runtime == "c++":
        out[GAP] = out[GAP]._replace(most=MOST_CAPTURED)
    if found[0].case.engine.eager:
        out[GAP], out[BASE] = (
            out[place]._replace(middle=middle) for place, middle in ((GAP, EAGER_GAP), (BASE, EAGER_BASE))
        )
    if found[0].case.engine.runtime == "python":
        out[PER_SEQUENCE] = out[PER_SEQUENCE]._replace(middle=PYTHON_SEQUENCE)
    return out + [EXPERTS._replace(name=f"bandwidth.{stored}") for stored in own_formats(found)]


def _all_captured(found: Iterable[Decode]) -> bool:
    """Return whether all rows come from engines that run captured graphs."""
    return all(row.case.engine.raw.get("cuda_graphs") for row in found)


class Host(NamedTuple):
    """Fitted constants in the order of `numbers`; which of them the rows determine, and which lie at a bound."""

    numbers: list[Number]
    values: list[float]
    told: frozenset[int]
    bounded: frozenset[int]

    def time(self, row: Decode) -> float:
        """Return the time of a decode step [s]."""
        stored = [one.name.partition(".")[2] for one in self.numbers[len(NUMBERS) :]]
        return _time(self.values, row, stored)


def _fit(found: Sequence[Decode], held: Mapping[int, float] = MappingProxyType({})) -> Host:
    """Return the best-fitting constants; those beyond a bound are fixed at it and the others fitted again."""
    numbers, own = _numbers(found), own_formats(found)
    free = [place for place in range(len(numbers)) if place not in held]
    priors = {place: Prior(math.log(numbers[place].middle), numbers[place].spread) for place in free}

    def values(p: Mapping[str, float]) -> list[float]:
        return [held[place] if place in held else p[str(place)] for place in range(len(numbers))]

    def errors(p: Mapping[str, float]) -> np.ndarray:
        here = values(p)
        return np.log([_time(here, row, own) / row.measured for row in found])

    weight = len(found) ** ERR_TOGETHER
    best = hierarchy.fit(
        [Block(numbers={str(place): (place,) for place in free}, errors=errors, weight=weight)], priors
    )
    whole = values({str(place): best.number([place]) for place in free})
    within = [min(max(value, one.least), one.most) for value, one in zip(whole, numbers, strict=True)]
    beyond = {place: within[place] for place in free if within[place] != whole[place]}
    if beyond:
        return _fit(found, {**held, **beyond})
    told = {place for place in free if best.told(place, priors[place])}
    return Host(numbers, whole, frozenset(told | set(held)), frozenset(held))


CONTRADICTORY = 0.32
"""Spread of residuals above which the rows of a version contradict each other and give no constants: that of a borrowed figure [1]."""


def contradictory(found: Sequence[Decode]) -> bool:
    """Return whether no constants explain the rows of a version together, as when unpublished settings differ."""
    host = _fit(found)
    return spread(host.time(row) / row.measured for row in found) > CONTRADICTORY


def runs_of(rows: Iterable[Decode]) -> str:
    """Return the source text of constants: the publishers of the rows."""
    publishers = sorted({row.case.row["source_key"] for row in rows})
    return f"published serving runs with a known running batch, or kept full: {', '.join(publishers)}"


GUESSES = (
    (
        "kernel",
        "gap",
        COMPILED,
        2e-7,
        "s",
        0.7,
        "kernels of one compiled program follow each other; a shorter gap than any captured graph needs",
    ),
    (
        "engine",
        "scan_share",
        "any",
        0.015,
        "1",
        0.7,
        "a loop over tokens keeps few of the vector units busy: each token waits for the state of the one before it",
    ),
    (
        "engine_step",
        "base",
        "hf-transformers-4.57",
        3e-3,
        "s",
        0.7,
        "generate() chooses a token, tests whether to stop and prepares the next inputs, in Python: a few milliseconds",
    ),
    ("memory", "bandwidth", "any", 0.75, "1", 0.15, "elementwise passes stream at three quarters of the wire rate"),
)
"""Constants that no row determines: law, name, scope, value, unit, spread and reason."""


def fit_engines(fit: Fit) -> list[Constant]:
    """Fit, per engine version and engine, the gap between kernels, host time a + b x sequences, and shares of bandwidth."""
    scopes = _scopes(fit)
    engines = {row.engine for rows in scopes.values() for row in rows}
    out = [item for scope, found in sorted(scopes.items()) for item in _scope_entries(scope, found)]
    every = _over_engines(out, engines, runs_of(row for rows in scopes.values() for row in rows))
    return merged([*out, *every, *(entry(*guess[:-1], 0, guess[-1], kind="guess") for guess in GUESSES)])


def _scopes(fit: Fit) -> dict[str, list[Decode]]:
    """Return the decode steps by engine version, by engine over recent versions, and by runtime over recent engines.

    Versions with contradictory rows are left out.
    """
    versions: dict[str, list[Decode]] = defaultdict(list)
    for row in decodes(fit):
        versions[row.scope].append(row)
    sound = {scope: found for scope, found in versions.items() if not contradictory(found)}
    scopes: dict[str, list[Decode]] = defaultdict(list, sound)
    for row in (row for found in sound.values() for row in found):
        if row.case.engine.released[:4] >= RECENT or row.engine == "llama.cpp":
            runtime = row.case.engine.runtime
            for scope in (AHEAD,) if runtime == AHEAD else (row.engine, runtime):
                scopes[scope].append(row)
    return {scope: found for scope, found in scopes.items() if len(found) >= LEAST}


def _scope_entries(scope: str, found: list[Decode]) -> list[Constant]:
    """Return the constants of one scope; those that its rows do not determine are guesses."""
    host, own = _fit(found), own_formats(found)
    out = []
    for place, (one, value) in enumerate(zip(host.numbers, host.values, strict=True)):
        rows = [row for row in found if _depends_on(row, one.law, one.name, own)]
        if len(rows) < LEAST:
            continue
        off = spread(host.time(row) / row.measured for row in rows)
        if place not in host.told:
            why = "the rows hardly depend on it"
            out.append(entry(one.law, one.name, scope, value, one.unit, off, 0, why, kind="guess"))
            continue
        note = "at its bound" if place in host.bounded else ""
        out.append(entry(one.law, one.name, scope, value, one.unit, off, len(rows), runs_of(rows), note))
    return out


def _over_engines(out: list[Constant], engines: set[str], runs: str) -> list[Constant]:
    """Return constants for engines without rows: medians over engines with rows, whose source is `runs`."""
    every = []
    own = sorted({(item.law, item.name, item.unit) for item in out if item.name.startswith("bandwidth.")})
    middles = {(one.law, one.name): one.middle for one in NUMBERS}
    for law, name, unit in (*((one.law, one.name, one.unit) for one in NUMBERS), *own):
        values = [item for item in out if item.law == law and item.name == name and item.scope in engines]
        if not values:  # fall back on the formats with a share of their own
            values = [item for item in out if item.law == law and item.name.startswith(name) and item.scope in engines]
        if not values:
            guess = middles.get((law, name))
            if guess is not None:
                every.append(
                    entry(law, name, "any", guess, unit, 0.4, 0, "no engine has rows that depend on it", kind="guess")
                )
            continue
        middle = float(np.median([v.value for v in values]))
        sure = sum(v.rows > 0 for v in values) * 2 > len(values)
        rows = sum(v.rows for v in values) if sure else 0
        source = runs if sure else "the rows of most engines hardly depend on it"
        note = "median of the engines"
        every.append(entry(law, name, "any", middle, unit, 0.4, rows, source, note, "fit" if sure else "guess"))
    return every

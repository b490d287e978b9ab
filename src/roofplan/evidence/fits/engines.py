"""Fit what an engine adds to kernels: gaps between them, host time per step, and achieved bandwidth of experts and GEMV.

The fits use end-to-end rows with a known batch size, over all models and devices at once. Kernels keep the constants
fitted to their own tables.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from roofplan import laws
from roofplan.evidence.fits import hierarchy
from roofplan.evidence.fits.fitting import entry, merged, spread
from roofplan.evidence.fits.hierarchy import Block, Numbers, Prior
from roofplan.evidence.fits.runs import REMEMBERED, At, usable
from roofplan.evidence.inference import LARGEST_QUEUE, InferenceCase, decodes_apart
from roofplan.laws import batching
from roofplan.operations.table import EXTRA_KERNELS, ROUTED_EXPERTS
from roofplan.records.calibration import Constant, Fit
from roofplan.records.engine import AHEAD, COMPILED
from roofplan.records.model import Mixture
from roofplan.records.terms import Term
from roofplan.serving import leaves, limit_of
from roofplan.timing.kernels import ROOFLINE
from roofplan.timing.rates import Rates, at_home


@dataclass(frozen=True, slots=True)
class Decode:
    """One measured decode step and the parts of its prediction that do not depend on the fitted constants.

    Parameters
    ----------
    fixed : predicted time without launches, experts and host [s].
    reads : reads of matrix-vector kernels at full memory bandwidth [s].
    native, blocks : their entries over the rate of the vector units, by storage of the weights [s].
    multiplied : their multiply-adds over that rate [s].
    kernels : kernel launches in the step, as counted [1].
    layers : layers with operations of `EXTRA_KERNELS`, by operation, as often as the step passes them [1].
    experts : time of the experts at full memory bandwidth [s].
    stored : weight format of the experts.
    sequences : sequences per group [1].
    measured : published time [s].
    whose : whose kernels it runs: those of software that has its own, or those for a vendor's devices.
    """

    case: InferenceCase
    fixed: float
    kernels: float
    layers: dict[str, float]
    experts: float
    stored: str
    reads: float
    native: float
    blocks: float
    multiplied: float
    sequences: float
    measured: float
    engine: str
    scope: str
    whose: str


def decodes(fit: Fit) -> list[Decode]:
    """Return the measured decode steps with a known batch size that a fit does not exclude, on devices on which the engine is at home."""
    home = (case for case in usable(fit.excluded, own_kernels=True) if at_home(case.engine, case.machine.device))
    return [found for case in home if (found := _decode(At(case, fit))) is not None]


def steady_run(case: InferenceCase, fit: Fit) -> tuple[float, float, Term] | None:
    """Return batch size, time per token [s] and the Term that it measures, None where they are not known.

    Static batches tell it by their token rate too. Offline runs have as many sequences as memory admits.
    """
    if case.running is not None and case.tpot is not None:
        return case.running, case.tpot, case.measured_term(case.steady(case.running, fit))
    rate = case.measured.get("output_tokens_per_second")
    if rate is not None and case.regime == "static batch":
        return _of_batch(case, rate, fit)
    if rate is None or case.regime != "offline" or not case.in_flight:
        return None
    book = case.book()
    if book.max_concurrency < 1 or (case.requests is not None and case.requests < LARGEST_QUEUE * book.max_concurrency):
        return None
    users = float(book.max_concurrency)
    return users, users / rate, case.steady(users, fit).cycle


def _of_batch(case: InferenceCase, rate: float, fit: Fit) -> tuple[float, float, Term] | None:
    """Return batch size, time per token [s] and its Term from a static batch's token rate [1/s], None where prompts take much of its time."""
    users, answer = case.at_once, float(case.workload.output)
    if decodes_apart(case.row, case.engine):
        return users, users / rate, case.measured_term(case.steady(users, fit))
    whole, prompts = users * answer / rate, float(case.prompts_term(fit).value)
    if answer < 2.0 or prompts > PROMPTS_AT_MOST * whole:
        return None
    step = float(batching.static_batch_step(whole, prompts, answer - 1.0))
    return users, step, case.measured_term(case.steady(users, fit))


PROMPTS_AT_MOST = 0.4
"""Share of a batch's time in its prompts above which its rate does not tell its decode steps [1]."""


@lru_cache(maxsize=REMEMBERED)
def _decode(at: At) -> Decode | None:
    case, fit = at.case, at.fit
    known = steady_run(case, fit)
    if known is None:
        return None
    users, measured, term = known
    r = case.rates(fit)
    named = _named(term)
    launches, experts, host = named["launches"], named[ROUTED_EXPERTS], named["engine step"]
    gap, stored = float(r.gap), expert_format(case)
    if not gap:
        return None  # a processor
    bandwidth = float(r.bandwidth[f"experts.{stored}" if f"experts.{stored}" in r.bandwidth else "experts"])
    vector = _vector_parts(term)
    varies = vector["time"] + launches + experts + host
    layers = extra_layers(term, r)
    return Decode(
        case=case,
        fixed=float(term.value) - varies,
        kernels=launches / gap - sum(count * r.extra_kernels[name] for name, count in layers.items()),
        layers=layers,
        reads=vector["reads"] / float(r.wire),
        native=vector["native"],
        blocks=vector["blocks"],
        multiplied=vector["multiplied"],
        experts=experts * bandwidth / float(r.wire),
        stored=stored,
        sequences=_group(case, users),
        measured=measured,
        engine=case.engine.name,
        scope=case.engine.id,
        whose=case.engine.own_kernels or case.machine.device.vendor,
    )


def extra_layers(term: Term, r: Rates) -> dict[str, float]:
    """Return how often a step passes operations that launch more kernels than are counted, by operation [1]."""
    out = dict.fromkeys(EXTRA_KERNELS, 0.0)
    for leaf, value in leaves(term):
        if leaf.name == "launches" and leaf.value and "kernels" in leaf.numbers:
            for name in leaf.numbers.keys() & out.keys():
                out[name] += value / float(leaf.value) * leaf.numbers[name] / r.extra_kernels[name]
    return out


def _named(term: Term) -> dict[str, float]:
    """Return seconds by leaf name; compute-bound experts are separate, since bandwidth does not affect them."""
    out: dict[str, float] = defaultdict(float)
    for leaf, value in leaves(term):
        if leaf.law == VECTOR_LAW:
            continue
        computes = leaf.name == ROUTED_EXPERTS and limit_of(leaf) == "compute"
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
        moved, memory_rate, work, rate = (leaf.numbers[name][0] for name in ROOFLINE)
        entries, factor = leaf.numbers["entries"], value / float(leaf.value) * leaf.numbers["layers"]
        out["reads"] += factor * moved
        out["native" if leaf.numbers["how"] == "native" else "blocks"] += factor * entries / rate
        out["multiplied"] += factor * work / 2.0 / rate
        out["time"] += factor * (moved / memory_rate + entries * leaf.numbers["unpacking"] / rate)
        out["time"] += factor * work / 2.0 * leaf.numbers["each"] / rate
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
    whose : whose kernels it holds for, as in `Decode`, empty for all.
    """

    law: str
    name: str
    unit: str
    middle: float
    spread: float
    least: float
    most: float
    whose: str = ""

    @property
    def key(self) -> Key:
        """What tells it from the other constants of a scope."""
        return self.law, self.name, self.whose


Key = tuple[str, str, str]
"""Law and name of a constant, and whose kernels it holds for."""

GAP = Number("kernel", "gap", "s", 1.5e-6, 0.7, 2e-7, 3e-5)
BASE = Number("engine_step", "base", "s", 5e-4, 1.0, 5e-5, 3e-2)
PER_SEQUENCE = Number("engine_step", "per_sequence", "s", 5e-6, 1.0, 1e-7, 2e-4)
MULTIPLYING = Number("vector", "multiplying", "FLOP", 3.0, 0.7, 0.5, 60.0)
EXPERTS = Number("experts", "bandwidth", "1", 0.6, 0.4, 0.15, 1.0)
NUMBERS = (
    GAP,
    *(Number("kernel", name, "1", 4.0, 1.0, 0.1, 60.0) for name in EXTRA_KERNELS),
    BASE,
    PER_SEQUENCE,
    EXPERTS,
    Number("vector", "bandwidth", "1", 0.85, 0.2, 0.3, 1.0),
    Number("vector", "unpacking.native", "FLOP", 2.0, 1.5, 0.1, 60.0),
    Number("vector", "unpacking.blocks", "FLOP", 4.0, 1.5, 0.1, 60.0),
    MULTIPLYING,
)
"""Constants that are fitted together. Bounds: a gap is shorter than an eager launch, expert and recurrent layers launch at most 60 kernels
more than are counted, host time per step is at most 30 ms, a share is at most one, and unpacking a weight or multiplying by it takes at
most 60 operations: 2 where inputs wait in registers, half of one with instructions that multiply four bytes."""

EAGER_GAP, EAGER_BASE = 1.5e-5, 3e-3
"""Priors for engines that launch every kernel from Python: 10 to 20 us a kernel, as in eager PyTorch, and a few milliseconds a step [s]."""

ERR_TOGETHER = -0.5
"""Exponent of the number of a publisher's rows that gives the weight of each: its errors are correlated, so n rows count as sqrt(n)
independent ones [1]."""

MOST_CAPTURED = 3.4e-6
"""Upper bound of the gap between kernels of a captured graph, or launched from C++, with the fill and drain of a kernel; a guess. One launch
takes 1.3 us on an H100 (hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles); engines that run one sequence from a graph without a
scheduler need 1.6 (llama.cpp) to 2.0 (gpt-fast) by their runs [s]."""

SUBMITTED = 5e-6
"""Prior of the gap between kernels that are submitted one by one from C++, without captured graphs: 2 to 10 us [s]."""

PYTHON_SEQUENCE = 2.8e-5
"""Prior of the scheduling time per sequence in Python: 4 to 13 ms per step at vLLM's 256 sequences, the geometric
mean over them (github.com/vllm-project/vllm/issues/6854, 2024-07) [s]."""


def _depends_on(row: Decode, one: Number, own: Sequence[str]) -> bool:
    """Return whether a row depends on a constant; experts of formats with their own share do not depend on the common one."""
    if one.law == "experts":
        stored = one.name.partition(".")[2]
        return row.experts > 0 and (row.stored == stored if stored else row.stored not in own)
    if one.name in row.layers:
        return row.layers[one.name] > 0
    if one.law == "vector":
        parts = {"bandwidth": row.reads, "native": row.native, "blocks": row.blocks, "multiplying": row.multiplied}
        return parts[one.name.rsplit(".", maxsplit=1)[-1]] > 0 and one.whose in {"", row.whose}
    return one.whose in {"", row.whose}


class Columns:
    """Decode steps as arrays of shape (steps, 1), whose times are computed at once.

    Parameters
    ----------
    found : decode steps.
    """

    def __init__(self, found: Sequence[Decode]) -> None:
        self.of = {name: _column(found, name) for name in COLUMNS}
        self.layers = {name: np.array([[row.layers[name]] for row in found]) for name in EXTRA_KERNELS}
        self.gap = [("kernel", "gap", row.whose) for row in found]
        self.multiplying = [(*MULTIPLYING.key[:2], row.whose) for row in found]
        self.share = [("experts", f"bandwidth.{row.stored}", "") for row in found]

    def times(self, p: Mapping[Key, laws.Number]) -> np.ndarray:
        """Return the times of the steps at constants that are floats or arrays of shape (n,), as an array of shape (steps, n) [s]."""
        of = self.of
        kernels = of["kernels"] + sum(count * p["kernel", name, ""] for name, count in self.layers.items())
        host = kernels * _of_each(p, self.gap, GAP.key) + p[BASE.key] + p[PER_SEQUENCE.key] * of["sequences"]
        unpacked = sum(p["vector", f"unpacking.{kind}", ""] * of[kind] for kind in ("native", "blocks"))
        multiplied = of["multiplied"] * _of_each(p, self.multiplying, MULTIPLYING.key)
        read = of["experts"] / _of_each(p, self.share, EXPERTS.key) + of["reads"] / p["vector", "bandwidth", ""]
        times: np.ndarray = of["fixed"] + host + read + unpacked + multiplied
        return times

    def off(self, p: Mapping[Key, laws.Number]) -> np.ndarray:
        """Return predicted over measured times, of the same shape [1]."""
        off: np.ndarray = self.times(p) / self.of["measured"]
        return off


COLUMNS = ("fixed", "kernels", "experts", "reads", "native", "blocks", "multiplied", "sequences", "measured")
"""Fields of a decode step that its time is computed from."""


def _column(found: Sequence[Decode], name: str) -> np.ndarray:
    return np.array([[getattr(row, name)] for row in found])


def _of_each(p: Mapping[Key, laws.Number], keys: Sequence[Key], common: Key) -> np.ndarray:
    """Return each step's own constant, or the common one where it has none, as an array of shape (steps, n) or (steps, 1)."""
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    values = np.broadcast_arrays(*(np.atleast_1d(p[key] if key in p else p[common]) for key in places))
    return np.stack(values)[[places[key] for key in keys]]


def own_formats(found: Sequence[Decode]) -> list[str]:
    """Return the expert formats with enough rows for a bandwidth share of their own."""
    stored = [row.stored for row in found if row.experts > 0]
    return sorted(name for name in set(stored) if stored.count(name) >= LEAST)


def _numbers(found: Sequence[Decode]) -> list[Number]:
    """Return the constants to fit: those of `NUMBERS`, and a bandwidth share for each expert format with enough rows.

    An engine that tells vendors apart has a gap for each of them.
    """
    engine = found[0].case.engine
    gap, base, each = GAP, BASE, PER_SEQUENCE
    if _all_captured(found) or engine.runtime == "c++":
        gap = gap._replace(most=MOST_CAPTURED)
    if engine.eager:
        gap, base = gap._replace(middle=EAGER_GAP), base._replace(middle=EAGER_BASE)
    if engine.runtime == "python":
        each = each._replace(middle=PYTHON_SEQUENCE)
    gaps, multiplying = [gap], [MULTIPLYING]
    if all(row.case.engine.kernels.tells_vendors for row in found):
        submitted = GAP._replace(middle=SUBMITTED)
        every = sorted({row.whose for row in found})
        gaps = [(gap if name in engine.kernels.captured else submitted)._replace(whose=name) for name in every]
        multiplying = [MULTIPLYING._replace(whose=name) for name in every]
    changed = {BASE: base, PER_SEQUENCE: each}
    others = [changed.get(one, one) for one in NUMBERS if one not in {GAP, MULTIPLYING}]
    return [
        *gaps,
        *multiplying,
        *others,
        *(EXPERTS._replace(name=f"bandwidth.{stored}") for stored in own_formats(found)),
    ]


def _all_captured(found: Iterable[Decode]) -> bool:
    """Return whether all rows come from engines that run captured graphs."""
    return all(row.case.engine.raw.get("cuda_graphs") for row in found)


class Host(NamedTuple):
    """Fitted constants by their keys in the order of `numbers`; which of them the rows determine, and which lie at a bound."""

    numbers: list[Number]
    values: dict[Key, float]
    told: frozenset[Key]
    bounded: frozenset[Key]

    def off(self, found: Sequence[Decode]) -> float:
        """Return the robust spread of predicted over measured times of decode steps [1]."""
        return spread(Columns(found).off(self.values)[:, 0])


def _fit(found: Sequence[Decode], held: Mapping[Key, float] = MappingProxyType({})) -> Host:
    """Return the best-fitting constants; those beyond a bound are fixed at it and the others fitted again."""
    numbers = {one.key: one for one in _numbers(found)}
    free = [key for key in numbers if key not in held]
    priors = {key: Prior(math.log(numbers[key].middle), numbers[key].spread) for key in free}
    names = {" ".join(key): key for key in free}
    columns = Columns(found)

    def errors(p: Numbers) -> np.ndarray:
        logs: np.ndarray = np.log(columns.off({**held, **{key: p[name] for name, key in names.items()}}))
        return logs if any(map(np.ndim, p.values())) else logs[:, 0]

    rows_of = Counter(row.case.row["source_key"] for row in found)
    weights = np.array([rows_of[row.case.row["source_key"]] ** ERR_TOGETHER for row in found])
    block = Block(numbers={name: (key,) for name, key in names.items()}, errors=errors, weight=weights, at_once=True)
    best = hierarchy.fit([block], priors)
    whole = {**held, **{key: best.number([key]) for key in free}}
    within = {key: min(max(whole[key], numbers[key].least), numbers[key].most) for key in free}
    beyond = {key: value for key, value in within.items() if value != whole[key]}
    if beyond:
        return _fit(found, {**held, **beyond})
    told = {key for key in free if best.told(key, priors[key])}
    return Host(list(numbers.values()), whole, frozenset(told | set(held)), frozenset(held))


CONTRADICTORY = 0.32
"""Spread of residuals above which the rows of a version contradict each other and give no constants: that of a borrowed figure [1]."""


def contradictory(found: Sequence[Decode]) -> bool:
    """Return whether no constants explain the rows of a version together, as when unpublished settings differ."""
    return _fit(found).off(found) > CONTRADICTORY


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
    """Fit, per engine version and engine, gaps between kernels, further kernels, host time a + b x sequences, and shares of bandwidth."""
    scopes, apart = _scopes(fit)
    hosts = {scope: _fit(found) for scope, found in scopes.items()}
    engines = {row.engine for rows in scopes.values() for row in rows}
    out = [item for scope, found in sorted(scopes.items()) for item in _scope_entries(scope, found, hosts[scope])]
    for name, found in sorted(apart.items()):
        if found[0].engine in hosts and len(found) >= LEAST:
            out += _own_kernels(name, found, hosts[found[0].engine])
    every = _over_engines(out, engines, runs_of(row for rows in scopes.values() for row in rows))
    return merged([*out, *every, *(entry(*guess[:-1], 0, guess[-1], kind="guess") for guess in GUESSES)])


def _scopes(fit: Fit) -> tuple[dict[str, list[Decode]], dict[str, list[Decode]]]:
    """Return the decode steps by engine version, by engine over recent versions, and by runtime over recent engines; and by own kernels.

    Versions with contradictory rows are left out. A runtime is told by devices of which no vendor is apart.
    """
    versions: dict[str, list[Decode]] = defaultdict(list)
    apart: dict[str, list[Decode]] = defaultdict(list)
    for row in decodes(fit):
        own = row.case.engine.own_kernels
        (apart[own] if own else versions[row.scope]).append(row)
    sound = {scope: found for scope, found in versions.items() if not contradictory(found)}
    scopes: dict[str, list[Decode]] = defaultdict(list, sound)
    for row in (row for found in sound.values() for row in found):
        engine = row.case.engine
        if engine.released[:4] >= RECENT or row.engine == "llama.cpp":
            for scope in (AHEAD,) if engine.runtime == AHEAD else (row.engine, engine.runtime):
                if scope == row.engine or row.whose in engine.kernels.captured or not engine.kernels.tells_vendors:
                    scopes[scope].append(row)
    return {scope: found for scope, found in scopes.items() if len(found) >= LEAST}, dict(apart)


def _scope_entries(scope: str, found: list[Decode], host: Host) -> list[Constant]:
    """Return the constants of one scope; those that its rows do not determine are guesses.

    Where vendors have gaps of their own, another vendor's is their geometric mean.
    """
    own = own_formats(found)
    out, apart = [], defaultdict(list)
    for one in host.numbers:
        value, rows = host.values[one.key], [row for row in found if _depends_on(row, one, own)]
        place = f"{scope}/{one.whose}" if one.whose else scope
        if len(rows) < LEAST:
            continue
        if one.whose:
            apart[one.law, one.name, one.unit].append(value)
        off = host.off(rows)
        if one.key not in host.told:
            why = "the rows hardly depend on it"
            out.append(entry(one.law, one.name, place, value, one.unit, off, 0, why, kind="guess"))
            continue
        note = "at its bound" if one.key in host.bounded else ""
        out.append(entry(one.law, one.name, place, value, one.unit, off, len(rows), runs_of(rows), note))
    why = "a vendor without rows of its own: mean of the vendors that have"
    for (law, name, unit), values in apart.items() if scope == found[0].engine else ():
        out.append(entry(law, name, scope, geometric_mean(values), unit, BETWEEN, 0, why, kind="guess"))
    return out


def _own_kernels(name: str, found: list[Decode], host: Host) -> list[Constant]:
    """Return what software with kernels of its own has of its own; it has the other constants of the engine that it is planned as."""
    common = host.values[EXPERTS.key]
    own = {GAP.name, MULTIPLYING.name}
    mine = _fit(found, {one.key: host.values.get(one.key, common) for one in _numbers(found) if one.name not in own})
    free = [one for one in mine.numbers if one.name in own and (one.key in mine.told or one.name == GAP.name)]
    off, runs = mine.off(found), runs_of(found)
    return [entry(one.law, one.name, name, mine.values[one.key], one.unit, off, len(found), runs) for one in free]


BETWEEN = 0.4
"""Spread of a constant between engines or vendors, where no rows tell it; a guess [1]."""


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
                    entry(
                        law, name, "any", guess, unit, BETWEEN, 0, "no engine has rows that depend on it", kind="guess"
                    )
                )
            continue
        middle = float(np.median([v.value for v in values]))
        sure = sum(v.rows > 0 for v in values) * 2 > len(values)
        rows = sum(v.rows for v in values) if sure else 0
        source = runs if sure else "the rows of most engines hardly depend on it"
        note = "median of the engines"
        every.append(entry(law, name, "any", middle, unit, BETWEEN, rows, source, note, "fit" if sure else "guess"))
    return every

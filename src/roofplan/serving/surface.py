"""The time of any serving step as a sum of tables, for simulators that ask for it millions of times.

Each operation of a step depends on few of its numbers: weight products on the tokens, the head on the sampled rows,
attention on the cached tokens. Which ones is found by moving the numbers one by one. Operations that depend on the same
numbers share a table, and the laws fill it. So the surface holds no formula of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from roofplan.errors import UnsupportedFeature
from roofplan.laws import Number, batching
from roofplan.operations.table import ACTIVATION_BYTES, Split, Step
from roofplan.records.engine import Engine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.serving.prompts import stages_at_once, turns_of
from roofplan.serving.step import beyond, pieces, replayed, schedules_ahead, stage_counts, stalled, step_operations
from roofplan.timing.hops import mean_hop
from roofplan.timing.kernels import kernels_of, operation_time, started_of
from roofplan.timing.rates import Rates

Array = np.ndarray

Values = Any
"""Numbers in order, or rows of them: lists for plain Python, which reads them faster, and arrays for numpy and compiled code."""

COARSE = 8
"""Points per factor of two of a table over lengths [1]."""

DENSE, FINE = 2048, 64
"""Tokens of a step up to which each count has its own point, and the points per factor of two beyond [token, 1]."""

TOLERANCE = 5e-4
"""Interpolation error, relative to the whole step, up to which points of the context axis are left out [1]."""


class Surface(NamedTuple):
    """Tables of the time of a step of one group [s].

    A step has D decoding sequences, T tokens in all, R sampled rows, and pieces of prompts: new tokens after cached
    ones; the parts of its time stand in tables of their own. What depends on decoding sequences alone is the time
    through all pipeline stages. So is the rest, unless stages work on different batches at once: then prompts are all
    in one of the batches, and what they add is the time of the one stage that they pass in a round of all batches.

    Groups that share experts or feed-forwards step together. What they share depends on the mean tokens of all of them, and
    stands in a table of its own; the other tables are then of the group alone.

    Parameters
    ----------
    decodes : shape (D,), of decoding sequences alone, without their attention.
    prompts, mixed : shape (T,), of all tokens, without and with decoding sequences among them, pieces excepted.
    prompt_rows, mixed_rows : shape (R,), on top of them.
    contexts : cached tokens per decoding sequence at which attention is tabulated [token].
    attention, growth : shape (D, context), attention and host time of decoding sequences, and its growth to the next context [s, s/token].
    news, pasts, pieces : new and cached tokens of a piece, and its attention and host time, shape (new, past).
    reads, reading : tokens computed or read again, and the time that depends on their sum; empty where nothing does.
    states_tokens, states_rows, states : tokens and rows, and the time that depends on both; empty where nothing does.
    encoders : shape (n,), time that depends on the number of prompts; empty where nothing does.
    each : tokens of a decoding sequence in a step, above 1 where drafts are verified [token].
    shared : shape (T,), of the mean tokens of groups that step together; empty where nothing is shared.
    waits : share of a decode step without attention in which batches of a pipeline wait for each other, by its sequences [1].
    lag : further stages that a prompt passes after its round, above 0 where stages work on different batches [1].
    launching : least time of a step with prompts, in which the host starts its kernels: without decoding sequences, with them, and where
        captured graphs hold all but its attention; zeros where it does not count [s].
    hosting : the host's time for each sequence and piece of a step [s].
    replayed : tokens of the largest step with prompts that such graphs hold, 0 for none [token].
    ahead : one where the host starts a step while the device computes the one before, else zero [1].
    """

    decodes: Values
    prompts: Values
    mixed: Values
    prompt_rows: Values
    mixed_rows: Values
    contexts: Values
    attention: Values
    growth: Values
    news: Values
    pasts: Values
    pieces: Values
    reads: Values
    reading: Values
    states_tokens: Values
    states_rows: Values
    states: Values
    encoders: Values
    shared: Values
    each: float
    lag: float
    waits: Array
    launching: Values
    hosting: float
    replayed: float
    ahead: float


TOKENS, ROWS, STATES, READS, DECODE, PIECE, PROMPTS = "tokens", "rows", "states", "reads", "decode", "piece", "prompts"
"""What an operation's time depends on: the tokens of a step; its sampled rows; both; the tokens computed and those read again; decoding
sequences and their context; the pieces of prompts; their number."""

CLASS_OF = {
    frozenset[str](): TOKENS,
    frozenset({"sequences", "new"}): TOKENS,
    frozenset({"sequences", "requests"}): ROWS,
    frozenset({"sequences", "new", "requests"}): STATES,
    frozenset({"sequences", "new", "past"}): READS,
    frozenset({"sequences", "new", "past", "requests"}): READS,
    frozenset({"sequences"}): DECODE,
    frozenset({"context"}): DECODE,
    frozenset({"sequences", "context"}): DECODE,
    frozenset({"new"}): PIECE,
    frozenset({"past"}): PIECE,
    frozenset({"requests"}): PROMPTS,
    frozenset({"new", "past"}): PIECE,
    frozenset({"new", "requests"}): PIECE,
    frozenset({"past", "requests"}): PIECE,
    frozenset({"new", "past", "requests"}): PIECE,
}
"""Numbers of a step that move an operation's time -> its class."""

BASES, MOVED, SHIFT = 64, 1.37, 1e-6
"""Random steps at which dependence is sought, the factor that moves each of their numbers, and the least relative change that counts [1]."""


@dataclass(frozen=True, slots=True)
class _Timed:
    """Operations of a step: their keys, and for one layer their times [s], launches [s] and kernels that a host starts [1]."""

    keys: list[tuple[int, str, int]]
    seconds: list[Array]
    launches: list[Array]
    started: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    """A model on a machine, in a layout, served by an engine."""

    model: Model
    strategy: Strategy
    r: Rates
    kv_bytes: float
    drafted: int

    @property
    def each(self) -> float:
        """Tokens of a decoding sequence in a step [token]."""
        return 1.0 + self.drafted

    @property
    def share(self) -> float:
        """Batches into which pipeline stages divide decoding sequences, one in each stage at once [1]."""
        engine = self.r.engine
        return float(self.strategy.pp) if isinstance(engine, Engine) and engine.pipeline_kind == "microbatch" else 1.0

    @property
    def beside(self) -> float | None:
        """Stages that work on decoding sequences and prompts at the same time, None where all do [1]."""
        return None if self.share > 1.0 else 1.0

    @property
    def alone(self) -> Number | None:
        """Stages that work on prompts without decoding sequences at the same time, None where all do [1]."""
        engine = self.r.engine
        return stages_at_once(engine) if isinstance(engine, Engine) else None

    @property
    def passed(self) -> float:
        """Stages that a prompt passes in a step [1]."""
        return float(self.strategy.pp) / self.share

    def hops(self, tokens: Array) -> Array:
        """Return the time in which tokens pass from a stage to the next [s]."""
        pp = 1.0 * self.strategy.pp
        if pp == 1.0:
            return 0.0 * tokens
        sent = tokens * self.model.hidden * ACTIVATION_BYTES
        return np.asarray(mean_hop(sent, 1.0 * self.strategy.tp, pp, self.r.network))

    def timed(self, **numbers: Any) -> _Timed:
        """Return the operations of a step on one stage; `numbers` are the fields of `Step`."""
        step = Step(each=self.each, **numbers)
        drafted = self.drafted if step.decodes else 0
        tables = step_operations(self.model, self.strategy, step, self.r, kv_bytes=self.kv_bytes, drafted=drafted)
        keys, seconds, launches, started = [], [], [], []
        gap = self.r.engine.kernels.launches * self.r.gap
        for k, table in enumerate(tables):
            seen: dict[str, int] = {}
            for op in table:
                seen[op.name] = seen.get(op.name, 0) + 1
                keys.append((k, op.name, seen[op.name]))
                seconds.append(np.asarray(operation_time(op, self.r), float))
                launches.append(np.asarray(kernels_of(op, self.r) * gap, float))
                started.append(self.r.engine.kernels.launches * float(started_of(op, self.r)))
        return _Timed(keys, seconds, launches, started)

    def classes(self, seats: float, budget: float, longest: float) -> dict[tuple[int, str, int], str]:
        """Return the class of each operation, from how its time moves with each number of random steps.

        Raises
        ------
        UnsupportedFeature : an operation that depends on numbers that no table has together.
        """
        random = np.random.default_rng(0)
        spans = {"sequences": (2.0, seats), "context": (8.0, longest), "new": (8.0, budget), "past": (4.0, longest)}
        base = {
            name: np.exp(random.uniform(np.log(low), np.log(max(high, 2.0 * low)), BASES))
            for name, (low, high) in {**spans, "requests": (1.0, 8.0)}.items()
        }
        traded = (MOVED - 1.0) * np.minimum(base["new"], base["sequences"] * self.each)
        moves = {name: {name: values * MOVED} for name, values in base.items()}
        # as many tokens, of other requests
        moves["tokens"] = {"sequences": base["sequences"] + traded / self.each, "new": base["new"] - traded}
        here = self.timed(**base)
        found: list[set[str]] = [set() for _ in here.keys]
        for name, moved in moves.items():
            there = self.timed(**{**base, **moved})
            for on, a, b in zip(found, here.seconds, there.seconds, strict=True):
                if np.any(np.abs(b - a) > SHIFT * np.abs(a)):
                    on.add(name)
        out = {}
        for key, on in zip(here.keys, found, strict=True):
            # a threshold may lie where one number alone crosses it
            numbers = frozenset[str]() if on in ({"sequences"}, {"new"}) else frozenset(on - {"tokens"})
            if numbers not in CLASS_OF:
                said = f"{self.model.id}: the time of {key[1]} depends on {', '.join(sorted(on))} at once"
                raise UnsupportedFeature(f"{said}, which is not simulated yet", argument="MODEL", value=self.model.id)
            out[key] = CLASS_OF[numbers]
        return out

    def shared(self, classes: dict[tuple[int, str, int], str]) -> frozenset[tuple[int, str, int]]:
        """Return the operations whose time depends on the tokens of other groups too; none where stages work on different batches."""
        if Split.of(self.strategy).groups <= 1.0 or self.share > 1.0:
            return frozenset()
        tokens = np.geomspace(1.0, 4096.0, BASES)
        alike, alone = (self.timed(new=tokens, past=0.0 * tokens, requests=1.0, others=share) for share in (1.0, 0.0))
        pairs = zip(alike.keys, alike.seconds, alone.seconds, strict=True)
        return frozenset(
            key for key, a, b in pairs if classes[key] == TOKENS and np.any(np.abs(b - a) > SHIFT * np.abs(a))
        )


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over the operations of steps, by class; each layer is counted as often as the stage that sets the pace has it."""

    system: _System
    classes: dict[tuple[int, str, int], str]
    shared: frozenset[tuple[int, str, int]]

    def of(self, wanted: set[str], launching: set[str], at_once: Number | None = None, **numbers: Any) -> Array:
        """Return the time of operations of some classes, and the launches of some, through one stage [s].

        `at_once` stages work at the same time, None where all do.
        """
        timed = self.system.timed(**numbers)
        counts = self.counts(timed, at_once)
        out = np.zeros(())
        for (k, name, n), seconds, launch in zip(timed.keys, timed.seconds, timed.launches, strict=True):
            kind = self.classes[k, name, n]
            if kind in wanted and (k, name, n) not in self.shared:
                out = out + seconds * counts[k]
            if kind in launching and not self.ahead:
                out = out + launch * counts[k]
        return out if at_once is None else out * (1.0 + stalled(at_once, self.system.r))

    @property
    def ahead(self) -> bool:
        """Whether launches take time only where they outlast what they start."""
        return self.system.r.engine.kernels.ahead

    def late(self, at_once: Number | None = None, **numbers: Array) -> Array:
        """Return by how much launches outlast the kernels of a step, zero where they are counted with them [s]."""
        if not self.ahead:
            return np.zeros(())
        timed = self.system.timed(**numbers)
        kernels: dict[int, Array] = {}
        launches: dict[int, Array] = {}
        for (k, _, _), seconds, launch in zip(timed.keys, timed.seconds, timed.launches, strict=True):
            kernels[k] = kernels.get(k, np.zeros(())) + seconds
            launches[k] = launches.get(k, np.zeros(())) + launch
        counts = self.counts(timed, at_once)
        whole = np.asarray(sum(beyond(launches[k], kernels[k]) * counts[k] for k in kernels))
        return whole if at_once is None else whole * (1.0 + stalled(at_once, self.system.r))

    def of_shared(self, tokens: Array) -> Array:
        """Return the time of what groups share, at so many tokens in each, through all stages [s]."""
        if not self.shared:
            return np.zeros(0)
        timed = self.system.timed(new=tokens, past=0.0 * tokens, requests=1.0 + 0.0 * tokens)
        counts = self.counts(timed)
        rows = zip(timed.keys, timed.seconds, strict=True)
        return np.asarray(sum(one * counts[key[0]] for key, one in rows if key in self.shared) * self.system.passed)

    def counts(self, timed: _Timed, at_once: Number | None = None) -> list[Any]:
        """Return how often each table runs on the stage that sets the pace [1]."""
        sums: list[Any] = [0.0] * (1 + max(k for k, _, _ in timed.keys))
        for (k, _, _), seconds, launch in zip(timed.keys, timed.seconds, timed.launches, strict=True):
            sums[k] = sums[k] + seconds + launch
        pp = self.system.strategy.pp
        shaped = [one + 0.0 for one in np.broadcast_arrays(*(np.asarray(one) for one in sums))]
        return stage_counts(self.system.model, pp, shaped, at_once)


EVERY = {TOKENS, ROWS, STATES, READS, DECODE, PIECE, PROMPTS}


def surface(
    model: Model,
    strategy: Strategy,
    r: Rates,
    *,
    kv_bytes: float,
    seats: int,
    budget: int,
    longest: int,
    drafted: int = 0,
) -> Surface:
    """Return the step times of one group of a layout.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    r : achieved rates of the machine under the engine.
    kv_bytes : bytes of one cached number [B].
    seats : limit of running requests of the group [1].
    budget : tokens that one step may compute [token].
    longest : most tokens of a request, prompt and answer together [token].
    drafted : tokens drafted for each decoding sequence [1].

    Returns
    -------
    Tables as numpy arrays.

    Raises
    ------
    UnsupportedFeature : an operation that depends on numbers that no table has together.
    """
    system = _System(model=model, strategy=strategy, r=r, kv_bytes=kv_bytes, drafted=drafted)
    classes = system.classes(float(seats), float(budget), float(longest))
    sums = _Sums(system, classes, system.shared(classes))
    most = int(budget + seats * system.each)
    mixed, prompts, decodes = _by_tokens(sums, most, seats, 0.5 * longest)
    rows = int(seats * (system.each + 1.0))
    mixed_rows, prompt_rows = _by_rows(sums, rows)
    contexts, attention = _attention(sums, decodes, seats, longest)
    growth = np.diff(attention, axis=1) / np.diff(contexts)
    mixed, prompts = _in_passes(system, mixed, prompts)
    return Surface(
        decodes=decodes,
        prompts=prompts,
        mixed=mixed,
        prompt_rows=prompt_rows,
        mixed_rows=mixed_rows,
        contexts=contexts,
        attention=attention,
        growth=np.concatenate([growth, growth[:, -1:]], axis=1),
        **_pieces(sums, min(budget, longest), longest),
        **_reading(sums, _points(most), longest),
        **_states(sums, most, rows),
        encoders=_encoders(sums, seats),
        shared=_shared(sums, most),
        each=system.each,
        lag=system.share - 1.0,
        waits=_waits(system, seats),
        launching=_launching(sums, most),
        hosting=float(r.step_each) / system.share,
        replayed=float(replayed(model, strategy, r.machine, r.engine)),
        ahead=float(schedules_ahead(r.engine)),
    )


def _launching(sums: _Sums, most: int) -> Array:
    """Return the time in which the host starts the kernels of a step with prompts, and its time of the step [s].

    The first is that without decoding sequences, the second that with some, the last that of captured graphs and attention; zeros where the
    host's launches do not count.
    """
    r, system = sums.system.r, sums.system
    if not r.launch:
        return np.zeros(3)
    alone = {"new": np.asarray([float(most)]), "past": np.zeros(1), "requests": np.ones(1)}
    started = []
    for at_once, step in (
        (system.alone, alone),
        (system.beside, alone | {"sequences": np.ones(1), "context": np.ones(1)}),
    ):
        timed = system.timed(**step)
        counts = sums.counts(timed, at_once)
        each = sum(kernels * counts[k] for (k, _, _), kernels in zip(timed.keys, timed.started, strict=True))
        started.append(float(np.max(each)))
    started.append(min(*started, float(pieces(system.model, system.strategy))))
    return np.asarray(started) * system.passed * float(r.launch) + float(r.step_base) / system.share


def _waits(system: _System, seats: int) -> Array:
    """Return the share of a decode step that is waiting in a pipeline, by the sequences that decode [1]."""
    share = stalled(np.clip(np.arange(seats + 1.0), 1.0, system.share), system.r) + np.zeros(seats + 1)
    return np.asarray(share / (1.0 + share))


def _by_tokens(sums: _Sums, most: int, seats: int, middle: float) -> tuple[Array, Array, Array]:
    """Return what depends on the tokens of a step: with prompts and decoding sequences, with prompts, with sequences alone.

    Launches of all operations are counted here, and the host's time of a step.

    Parameters
    ----------
    most : tokens [token].
    seats : decoding sequences [1].
    middle : context at which launches are counted [token].
    """
    system, tokens = sums.system, _points(most)
    share, each, passed, base = system.share, system.each, system.passed, float(system.r.step_base)
    hops = system.hops(tokens)
    beside = np.minimum(tokens / 2.0, each) / each  # any split of the tokens: their sum alone counts
    prompts = {"new": tokens, "past": 0.0 * tokens, "requests": 1.0 + 0.0 * tokens}
    mixed = prompts | {
        "sequences": beside,
        "context": middle + 0.0 * tokens,
        "new": tokens - beside * each,
    }
    inner, outer = {TOKENS, READS}, EVERY - {ROWS}
    alone = sums.of(inner, outer, system.alone, **prompts) + sums.late(system.alone, **prompts)
    d = _points(seats)
    held = np.maximum(d / share, np.minimum(d, 1.0))  # a batch holds a sequence at least
    at_once = np.clip(d, 1.0, share)
    decodes = sums.of(EVERY - {DECODE}, EVERY, at_once, sequences=held, context=middle + 0.0 * d)
    return (
        _spread(tokens, (sums.of(inner, outer, system.beside, **mixed) + hops) * passed + base / share),
        _spread(tokens, (alone + hops) * passed + base / share),
        _spread(d, (decodes + np.interp(held * each, tokens, hops)) * float(system.strategy.pp) + base),
    )


def _by_rows(sums: _Sums, most: int) -> tuple[Array, Array]:
    """Return what depends on the sampled rows of a step, with decoding sequences and without."""
    each, passed, rows = sums.system.each, sums.system.passed, _points(most)
    half, none = rows / 2.0, 0.0 * rows
    mixed = {"sequences": half / each, "context": 1.0 + none, "new": half, "requests": half, "past": none}
    prompts = {"new": rows, "requests": rows, "past": none}
    system = sums.system
    with_sequences, alone = (
        _spread(rows, sums.of({ROWS}, {ROWS}, at_once, **one) * passed)
        for at_once, one in ((system.beside, mixed), (system.alone, prompts))
    )
    return with_sequences, alone


def _pieces(sums: _Sums, most: float, longest: float) -> dict[str, Array]:
    """Return the time of a piece of a prompt by its new and cached tokens, and the host's time of it."""
    host = float(sums.system.r.step_each) / sums.system.share
    news, pasts = _lengths(most), np.concatenate([[0.0], _lengths(longest)])
    n, p = np.broadcast_arrays(news[:, None], pasts)
    one = sums.of({PIECE}, set(), sums.system.alone, new=n, past=p, requests=np.ones(n.shape)) * sums.system.passed
    table = np.concatenate([np.zeros((1, len(pasts))), np.broadcast_to(one, n.shape)]) + host
    return {"news": np.concatenate([[0.0], news]), "pasts": pasts, "pieces": table}


def _spread(points: Array, values: Array) -> Array:
    """Return values at all whole numbers up to the last point."""
    return np.asarray(np.interp(np.arange(points[-1] + 1.0), points, np.broadcast_to(values, points.shape)))


def _points(most: int) -> Array:
    """Return whole numbers from 0 to `most`, each up to `DENSE`, `FINE` per factor of two beyond."""
    dense = np.arange(min(most, DENSE) + 1.0)
    if most <= DENSE:
        return np.concatenate([[EMPTY], dense[1:]])
    count = int(np.ceil(FINE * np.log2(most / DENSE))) + 1
    return np.unique(np.concatenate([[EMPTY], dense[1:], np.round(np.geomspace(DENSE, most, count))]))


EMPTY = 1e-6
"""Stands for 0 where a law divides by tokens [token]."""


def _lengths(most: float, fine: int = 1) -> Array:
    """Return lengths from 1 to `most`, `fine` times `COARSE` per factor of two [token]."""
    count = int(fine * COARSE * np.log2(max(2.0, most))) + 1
    return np.unique(np.concatenate([[1.0], np.geomspace(1.0, max(2.0, most), count)]))


def _attention(sums: _Sums, decodes: Array, seats: int, longest: float) -> tuple[Array, Array]:
    """Return contexts, few where attention is linear, and its time with the host's at each number of sequences and context."""
    share, pp = sums.system.share, float(sums.system.strategy.pp)
    contexts = _lengths(longest, 4 if sums.ahead else 1)  # launches ahead of kernels hide attention up to a context
    d = np.unique(np.round(np.geomspace(1.0, max(2.0, seats), 6 * COARSE)))
    d = np.union1d(d, np.arange(1.0, min(share, seats) + 1.0))  # each batch more in the stages waits for the others
    n, c = np.broadcast_arrays(d[:, None], contexts)
    decoding, at_once = {"sequences": np.maximum(n / share, 1.0), "context": c}, np.clip(n, 1.0, share)
    fine = sums.of({DECODE}, set(), at_once, **decoding) + sums.late(at_once, **decoding)
    fine = np.broadcast_to(fine * pp, n.shape)
    whole = fine + np.interp(d, np.arange(seats + 1.0), decodes)[:, None]
    kept = [0, len(contexts) - 1]
    while True:
        at = np.stack([np.interp(contexts, contexts[kept], row[kept]) for row in fine])
        error = np.max(np.abs(at - fine) / whole, axis=0)
        if float(np.max(error)) <= TOLERANCE:
            break
        kept = sorted({*kept, int(np.argmax(error))})
    every = np.arange(seats + 1.0)
    wide = np.stack([np.interp(every, np.concatenate([[0.0], d]), [0.0, *fine[:, k]]) for k in kept])
    return contexts[kept], wide.T + float(sums.system.r.step_each) * every[:, None]


def _in_passes(system: _System, mixed: Array, prompts: Array) -> tuple[Array, Array]:
    """Return step times of an engine that runs the layers with at most a micro-batch of tokens at once."""
    engine, most = system.r.engine, len(mixed) - 1
    if not isinstance(engine, Engine) or engine.pass_tokens(float(most)) >= most:
        return mixed, prompts
    size = int(engine.pass_tokens(float(most)))
    mixed, prompts = mixed.copy(), prompts.copy()
    for start in range(size + 1, most + 1, size):
        part = slice(start, min(start + size, most + 1))
        rest = np.arange(part.start, part.stop) - size
        prompts[part] = prompts[size] + prompts[rest]
        mixed[part] = mixed[size] + prompts[rest]
    # stages may work on several of the passes at once
    stages, tokens = float(system.strategy.pp), np.arange(1.0, most + 1.0)
    passes = np.asarray(batching.passes(tokens, float(size)))
    turns = np.asarray(turns_of(system.model, engine, system.r, stages, passes)) / (passes * stages)
    prompts[1:] *= turns
    mixed[1:] *= turns
    return mixed, prompts


def _reading(sums: _Sums, tokens: Array, longest: float) -> dict[str, Array]:
    """Return the time that depends on the tokens computed and those read again together."""
    if READS not in sums.classes.values():
        return {"reads": np.zeros(0), "reading": np.zeros(0)}
    reads = np.concatenate([tokens, tokens[-1] * np.geomspace(1.1, max(2.0, longest), int(COARSE * np.log2(longest)))])
    again = np.maximum(reads - tokens[-1], 0.0)
    one = sums.of({READS}, set(), sums.system.alone, new=reads - again, past=again, requests=np.ones(reads.shape))
    return {"reads": reads, "reading": np.broadcast_to(one * sums.system.passed, reads.shape)}


def _encoders(sums: _Sums, most: int) -> Array:
    """Return the time that depends on the number of prompts in a step."""
    if PROMPTS not in sums.classes.values():
        return np.zeros(0)
    n = np.arange(1.0, most + 1.0)
    one = sums.of({PROMPTS}, set(), sums.system.alone, new=n, past=0.0 * n, requests=n) * sums.system.passed
    return np.concatenate([[0.0], np.broadcast_to(one, n.shape)])


def _shared(sums: _Sums, most: int) -> Array:
    """Return what depends on the mean tokens of groups that step together."""
    points = _points(most)
    seconds = sums.of_shared(points)
    return _spread(points, seconds) if len(seconds) else seconds


def _states(sums: _Sums, tokens: int, rows: int) -> dict[str, Array]:
    """Return the time that depends on the tokens of a step and on its sampled rows at once."""
    if STATES not in sums.classes.values():
        return {"states_tokens": np.zeros(0), "states_rows": np.zeros(0), "states": np.zeros((0, 0))}
    t, n = _lengths(float(tokens)), _lengths(float(rows))
    wide, long = np.broadcast_arrays(t[:, None], n)
    one = sums.of({STATES}, set(), sums.system.alone, new=np.maximum(wide, long), past=0.0 * wide, requests=long)
    out = one * sums.system.passed
    return {"states_tokens": t, "states_rows": n, "states": np.broadcast_to(out, wide.shape)}

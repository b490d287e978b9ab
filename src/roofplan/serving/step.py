"""Time of one serving step of the pipeline stage that sets the pace, as a Term whose parts are groups of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roofplan.catalogue import format_entry
from roofplan.laws import Number, larger, smaller, where
from roofplan.laws.roofline import serial_time
from roofplan.operations import draft_operations, encoder_operations, head_operations, layer_operations, stage_contents
from roofplan.operations.table import ROUTED_EXPERTS, Operation, Split, Step
from roofplan.records.engine import AHEAD, Engine, Software
from roofplan.records.hardware import Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.terms import Numbers, Term, total
from roofplan.timing.kernels import (
    PRODUCTS,
    ROOFLINE,
    kernels_of,
    on_device,
    operation_time,
    roofline_numbers,
    rows_of,
    vector_work,
    waits,
)
from roofplan.timing.messages import message_term
from roofplan.timing.network import MESSAGES, Ranks
from roofplan.timing.rates import Rates
from roofplan.timing.vectors import Vector

GROUP_OF = {
    "matmul": "weight matmuls",
    "experts": ROUTED_EXPERTS,
    "prefill_attention": "attention",
    "decode_attention": "attention",
    "memory": "memory passes",
    "all_reduce": "all-reduce",
    "gather": "all-reduce",
    "exchange": "expert exchange",
}


_SOURCE_OF = {
    "decode_attention": "attention",
    "prefill_attention": "prefill_attention",
    "memory": "memory",
    "experts": "experts",
}


def step_term(
    name: str,
    model: Model,
    strategy: Strategy,
    step: Step,
    r: Rates,
    *,
    kv_bytes: float,
    drafted: int = 0,
    at_once: Number | None = None,
) -> Term:
    """Return the time of one step of the pipeline stage that sets the pace.

    Each kind of layer is computed once and multiplied by its count on that stage.

    Parameters
    ----------
    name : name of the time.
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    step : tokens of the step; its fields may be arrays.
    r : achieved rates of the machine under the engine.
    kv_bytes : bytes of one cached number [B].
    drafted : tokens drafted for each sequence [1].
    at_once : stages that work at the same time, None where all do [1].

    Returns
    -------
    The time with its parts [s].
    """
    timed, launches = _timed(model, strategy, step, r, kv_bytes, drafted)
    counts = stage_counts(model, strategy.pp, _sums(timed, launches), at_once)
    alone = _grouped(name, timed, launches, counts, r)
    one_stage = isinstance(strategy.pp, int) and strategy.pp == 1
    if at_once is None or not r.stall or step.prefills or one_stage:
        return alone  # what a batch with prompts waits is what it waits without them
    share = stalled(at_once, r)
    waits = Term(
        WAITS,
        share * alone.value,
        "s",
        law="stall x (1 - 1 / batches)",
        text="{share} of {alone}, with {batches} batches in the stages",
        numbers={"share": share, "alone": (alone.value, "s"), "batches": at_once},
        sources=r.sources["stall"],
    )
    return total(name, [*alone.parts, waits], "s")


WAITS = "waits between stages"
"""Part of a step in which a batch waits for the others in a pipeline."""


def stalled(at_once: Number, r: Rates) -> Number:
    """Return the share by which batches in the stages of a pipeline wait for each other, none for a single batch [1].

    Parameters
    ----------
    at_once : batches in the stages [1].
    r : achieved rates of the machine under the engine.

    Returns
    -------
    What it adds to the time of a stage [1].
    """
    return r.stall * (1.0 - 1.0 / larger(1.0, 1.0 * at_once))


def launched(step: Term, tokens: Number, model: Model, strategy: Strategy, r: Rates, *, before: Number = 0.0) -> Term:
    """Return a step with prompts, which takes at least as long as the host needs to start its kernels one by one.

    Captured graphs hold decode steps, and with some engines all but the attention of short prompts. Else the host starts each kernel, and
    runs ahead of the device: where it schedules a step while the device computes the one before, from the start of that.

    Parameters
    ----------
    step : a step of `step_term`, with what its stage sends.
    tokens : tokens of the step [token].
    model : its layers.
    strategy : degrees of parallelism.
    r : achieved rates of the machine under the engine.
    before : time of the step before it on the device [s].

    Returns
    -------
    The step, with the wait for the host as a further part where there is one [s].
    """
    launches = next((part for part in step.parts if part.name == "launches"), None)
    if launches is None or not r.launch:
        return step
    slow = launches.numbers.get(ROUTED_EXPERTS, 0.0) * (1.0 - 1.0 / r.routed_kernels)
    kernels = launches.value / r.gap - slow
    kernels = where(
        tokens <= replayed(model, strategy, r.machine, r.engine), smaller(kernels, pieces(model, strategy)), kernels
    )
    before = before * schedules_ahead(r.engine)
    wait = Term(
        "host launches",
        beyond(kernels * r.launch, step.value + before),
        "s",
        law="roofline.kernel_time",
        text="{kernels} kernels started by the host in {each} each, beyond the time of what they do"
        + (" and the {before} of the step before" if np.any(before > 0.0) else ""),
        numbers={"kernels": kernels, "each": (r.launch, "s"), "before": (before, "s")},
        sources=r.sources["launch"],
    )
    return total(step.name, [*step.parts, wait], "s") if np.any(wait.value > 0.0) else step


def schedules_ahead(engine: Software) -> bool:
    """Return whether an engine schedules and starts a step while the device computes the one before.

    Parameters
    ----------
    engine : engine or training framework.

    Returns
    -------
    Whether it does.
    """
    return isinstance(engine, Engine) and engine.runtime == AHEAD


def replayed(model: Model, strategy: Strategy, machine: Machine, engine: Software) -> Number:
    """Return the tokens of the largest step with prompts that captured graphs hold, attention aside.

    Parameters
    ----------
    model : whether its cache is latent counts.
    strategy : degrees of parallelism.
    machine : devices, of whose vendor the graphs may be.
    engine : engine that captures them.

    Returns
    -------
    Tokens, 0 where prompts run from no graph [token].
    """
    kernels = engine.kernels
    if machine.device.vendor not in kernels.prompt_graphs:
        return 0.0
    tokens = kernels.latent_prompt_tokens if model.latent else kernels.prompt_tokens
    apart = kernels.prompt_graphs_whole * (strategy.pp * strategy.attention_dp - 1.0)
    return where(apart > 0.0, 0.0, tokens)


def pieces(model: Model, strategy: Strategy) -> Number:
    """Return the launches of a step whose graphs hold all but attention, on one pipeline stage.

    Parameters
    ----------
    model : its layers.
    strategy : degrees of parallelism.

    Returns
    -------
    Launches [1].
    """
    return PIECES * len(model.decoder.layers) / strategy.pp


PIECES = 3.0
"""Launches per layer of such a step: its graph, the write of its cache, and attention [1]."""


def table_times(model: Model, step: Step, r: Rates, *, kv_bytes: float) -> list[Number]:
    """Return the time of each table of `step_operations` on one device: each kind of layer once, then the head.

    Parameters
    ----------
    model : its layers and dimensions.
    step : tokens of the step; its fields may be arrays.
    r : achieved rates of the device under the engine.
    kv_bytes : bytes of one cached number [B].

    Returns
    -------
    Times, floats or arrays [s].
    """
    return _sums(*_timed(model, Strategy(), step, r, kv_bytes, 0))


def stage_term(name: str, model: Model, step: Step, r: Rates, counts: list[Number], *, kv_bytes: float) -> Term:
    """Return the time of some of a model's layers on one device.

    Parameters
    ----------
    name : name of the time.
    model : its layers and dimensions.
    step : tokens of the step.
    r : achieved rates of the device under the engine.
    counts : layers of each kind, then heads, in the order of `table_times` [1].
    kv_bytes : bytes of one cached number [B].

    Returns
    -------
    The time with its parts [s].
    """
    return _grouped(name, *_timed(model, Strategy(), step, r, kv_bytes, 0), counts, r)


Timed = list[list[tuple[Operation, Number]]]
"""Operations of each table with their times [s]."""


def _timed(
    model: Model, strategy: Strategy, step: Step, r: Rates, kv_bytes: float, drafted: int
) -> tuple[Timed, list[Number]]:
    """Return the operations of each table with their times, and the time of its launches [s]."""
    tables = step_operations(model, strategy, step, r, kv_bytes=kv_bytes, drafted=drafted)
    timed = [[(op, operation_time(op, r)) for op in table] for table in tables]
    launches = [r.engine.kernels.launches * sum(kernels_of(op, r) for op in table) * r.gap for table in tables]
    if r.engine.kernels.ahead:
        kernels = _sums(timed, [0.0] * len(timed))
        launches = [beyond(launch, computing) for launch, computing in zip(launches, kernels, strict=True)]
    return timed, launches


def beyond(launch: Number, computing: Number) -> Number:
    """Return by how much launches outlast the kernels that they start, where the host is ahead of the device [s].

    Parameters
    ----------
    launch, computing : time of all launches, and of all kernels and messages [s].

    Returns
    -------
    Time in which the device waits for the host, a float or an array [s].
    """
    return larger(launch - computing, 0.0 * launch)


def _sums(timed: Timed, launches: list[Number]) -> list[Number]:
    """Return the time of each table [s]."""
    sums = []
    for rows, launch in zip(timed, launches, strict=True):
        amount: Number = launch
        for _, seconds in rows:
            amount = amount + seconds
        sums.append(amount)
    return sums


def step_operations(
    model: Model, strategy: Strategy, step: Step, r: Rates, *, kv_bytes: float, drafted: int = 0
) -> list[list[Operation]]:
    """Return the operations of a step as the device runs them: a table for each kind of layer, then that of the head.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism.
    step : tokens of the step; its fields may be arrays.
    r : achieved rates of the machine under the engine.
    kv_bytes : bytes of one cached number [B].
    drafted : tokens drafted for each sequence [1].

    Returns
    -------
    Tables of operations of one rank; the last one also holds the draft's and the encoder's.
    """
    split, kernels = Split.of(strategy), r.engine.kernels
    tables = [layer_operations(layer, step, split, model, kv_bytes, kernels) for layer, _ in model.decoder.kinds()]
    drafts = draft_operations(step, split, model, drafted, kv_bytes, kernels)
    tables.append(head_operations(step, split, model) + drafts + encoder_operations(step, split, model, kernels))
    return [on_device(table, r) for table in tables]


def stage_counts(model: Model, stages: Number, sums: list[Number], at_once: Number | None = None) -> list[Number]:
    """Return how often each table of `step_operations` runs on the pipeline stage that sets the pace.

    Where all stages work at the same time, that is the slowest. Where batches are fewer than stages, a batch passes
    one stage after another, and the mean stage counts, until the slowest is busy all the time.

    Parameters
    ----------
    model : its layers.
    stages : pipeline stages [1].
    sums : time of each table, floats or arrays [s].
    at_once : stages that work at the same time, None where all do [1].

    Returns
    -------
    Layers of each kind, and heads, on that stage [1].
    """
    kinds = model.decoder.kinds()
    slowest = _worst_counts(kinds, len(model.decoder.layers), stages, sums)
    if at_once is None or (isinstance(stages, int | float) and stages == 1):
        return slowest
    busy = at_once / (1.0 * stages)
    mean = [count / (1.0 * stages) for count in (*(float(len(places)) for _, places in kinds), 1.0)]
    pace, turn = (sum(n * s for n, s in zip(counts, sums, strict=True)) for counts in (slowest, mean))
    return [where(busy * pace > turn, busy * most, even) for most, even in zip(slowest, mean, strict=True)]


def _worst_counts(kinds: Sequence[Any], layers: int, pp: Number, sums: list[Number]) -> list[Number]:
    """Return the number of layers of each kind, and of heads, on the slowest stage [1]."""
    if isinstance(pp, int | float):
        rows = stage_contents(kinds, layers, int(pp))
        if len(rows) == 1:
            return list(rows[0])
        if all(type(s) is float for s in sums):
            return list(max(rows, key=lambda row: sum(n * s for n, s in zip(row, sums, strict=True))))
        amounts = [sum(n * s for n, s in zip(row, sums, strict=True)) for row in rows]
        best = np.argmax(np.stack(np.broadcast_arrays(*amounts)), axis=0)
        return [np.asarray([row[k] for row in rows])[best] for k in range(len(sums))]
    degrees = np.asarray(pp)
    found = {float(value): _worst_counts(kinds, layers, int(value), sums) for value in np.unique(degrees)}
    chosen: list[Number] = []
    for k in range(len(sums)):
        # counts that do not depend on the sums have only the axes of pp
        count: Number = np.zeros(degrees.shape)
        for value, counts in found.items():
            count = np.where(degrees == value, counts[k], count)
        chosen.append(count)
    return chosen


def _summed(rows: list[tuple[Operation, Number]]) -> dict[str, Number]:
    """Return the time of each group of operations in one layer; a grid sums them before it counts layers [s]."""
    sums: dict[str, Number] = {}
    for op, seconds in rows:
        group = GROUP_OF[op.kind]
        sums[group] = sums[group] + seconds if group in sums else seconds
    return sums


def _grouped(name: str, timed: Timed, launches: list[Number], counts: list[Number], r: Rates) -> Term:
    groups: dict[str, list[Term]] = {}
    for rows, count in zip(timed, counts, strict=True):
        if type(count) is not float and count.ndim:
            for group, seconds in _summed(rows).items():
                groups.setdefault(group, []).append(Term(group, seconds * count, "s"))
            continue
        for op, seconds in rows:
            if type(seconds) is float and seconds == 0.0:
                continue
            groups.setdefault(GROUP_OF[op.kind], []).append(_operation_term(op, seconds, count, r))
    parts = [total(group, terms, "s") for group, terms in groups.items()]
    gap = launches[0] * counts[0]
    for launch, count in zip(launches[1:], counts[1:], strict=True):
        gap = gap + launch * count
    extra: dict[str, Number] = {}
    for rows, count in zip(timed, counts, strict=True):
        for op, _ in rows:
            if op.extra:
                more = r.engine.kernels.launches * r.extra_kernels[op.extra] * count
                extra[op.extra] = extra[op.extra] + more if op.extra in extra else more
    ahead = r.engine.kernels.ahead
    text = (
        "launches of {gap} each, beyond the time of what they start"
        if ahead
        else "{kernels} kernels x {gap} between one and the next"
    )
    counted = {} if ahead else {"kernels": gap / r.gap if r.gap else 0.0}
    parts.append(
        Term(
            "launches",
            gap,
            "s",
            law="roofline.kernel_time",
            text=text,
            numbers={**counted, **extra, "gap": (r.gap, "s")},
            sources=(*r.sources["gap"], *(item for name in extra for item in r.sources[name])),
        )
    )
    return total(name, parts, "s")


OWN_RATES = {"cast": "casts", "scan": "scan"}
"""Role of an operation -> the sources of its rate, where that is not the rate of its kind."""


def _operation_term(op: Operation, seconds: Number, count: Number, r: Rates) -> Term:
    if op.kind in MESSAGES:
        return message_term(op, seconds, Ranks(op.ranks, r.network), "{layers}", {"layers": count})
    products = op.kind in PRODUCTS
    scalar = type(op.rows) is float
    if r.vector is not None and products and scalar and op.rows <= r.vector.rows:
        return _vector_term(op, seconds, count, r, r.vector)
    keys = r.sources.get(f"{op.kind}.{op.stored}", r.sources[_SOURCE_OF.get(op.kind, "bandwidth")])
    law = "roofline.overlapped_time"
    text = "{layers} layers x max(read {moved} at {memory_rate}, compute {work} at {compute_rate}); "
    text += op.text or "{traffic} B"
    numbers = {"layers": count, **roofline_numbers(op, r), **op.numbers}
    own = f"compute.{op.compute}.{op.stored}"
    shares = r.sources.get(own, r.sources.get(f"compute.{op.compute}", ()))
    computed = r.sources["vector_peak"] if op.kind == "memory" else shares
    if op.role in OWN_RATES:
        computed = r.sources[OWN_RATES[op.role]]
    sources = (*keys, *computed, *(r.sources["grouped"] if op.kind == "experts" else ()))
    if waits(op, r) and scalar:  # some of an array's rows may run on vector units
        return _one_after_the_other(Term(op.name, seconds * count, "s", text=op.text, numbers=numbers, sources=sources))
    return Term(op.name, seconds * count, "s", law=law, text=text, numbers=numbers, sources=sources)


def _one_after_the_other(whole: Term) -> Term:
    """Return a product that reads its weights and then computes with them, as the sum of both times."""
    parts, whole_of = [], {name: whole.numbers[name] for name in ROOFLINE}
    for said, moved, work in (
        ("read {moved} at {memory_rate}", 1.0, 0.0),
        ("compute {work} at {compute_rate}", 0.0, 1.0),
    ):
        bytes_read, memory_rate, operations, rate = (pair[0] for pair in whole_of.values())
        numbers = {**whole.numbers, "moved": (moved * bytes_read, "B"), "work": (work * operations, "FLOP")}
        seconds = serial_time(work * operations, moved * bytes_read, rate, memory_rate)
        text = "{layers} layers x " + said + "; " + whole.text
        value, law = numbers["layers"] * seconds, "roofline.overlapped_time"
        parts.append(Term(whole.name, value, "s", law=law, text=text, numbers=numbers, sources=whole.sources))
    text = "{layers} layers x (read {moved} at {memory_rate}, then compute {work} at {compute_rate})"
    return total(whole.name, parts, "s", law="roofline.serial_time", text=text, numbers=whole.numbers)


def _vector_term(op: Operation, seconds: Number, count: Number, r: Rates, vector: Vector) -> Term:
    how: str = format_entry(op.stored)["kernel"]
    numbers: Numbers = {"layers": count, "moved": (op.traffic, "B"), "memory_rate": (vector.bandwidth, "B/s")}
    if vector.instruction is None:
        law, text, work = "roofline.serial_time", UNPACKED, op.work
        own: Numbers = {
            "entries": op.entries,
            "how": how,
            "unpacking": vector.unpacking[how],
            "each": vector.multiplying,
        }
    else:
        law, text, work = "roofline.row_by_row_time", ROW_BY_ROW, vector_work(op, vector)
        rows = rows_of(op)
        own = {"each": (work / rows, "FLOP"), "how": op.stored, "rows": rows, "more": rows - 1.0}
    numbers = {**numbers, "work": (work, "FLOP"), "compute_rate": (r.vector_peak, "FLOP/s"), **own, **op.numbers}
    sources = (*r.sources["bandwidth"][:1], *r.sources["vector"], *r.sources["vector_peak"])
    text = "{layers} layers x (" + text + "); " + op.text
    return Term(op.name, seconds * count, "s", law=law, text=text, numbers=numbers, sources=sources)


UNPACKED = "read {moved} at {memory_rate} + {work} / 2 x {each} and {entries} {how} weights x {unpacking} to unpack, on vector units at {compute_rate}"
ROW_BY_ROW = "max(read {moved} at {memory_rate}, {each} at {compute_rate}) + {more} more rows of {each}, {how} weights unpacked for each"
"""How a product on vector units shows its time: weights unpacked once, or a processor's for each row."""


def engine_term(sequences: Number, r: Rates) -> Term:
    """Return the host time per step: a + b x sequences.

    Parameters
    ----------
    sequences : sequences in the step [1].
    r : rates of the machine under its engine.

    Returns
    -------
    Time [s].
    """
    return Term(
        "engine step",
        r.step_base + r.step_each * sequences,
        "s",
        law="a + b x sequences",
        text="{base} + {per_sequence} x {sequences} sequences, " + r.engine.id,
        numbers={"base": (r.step_base, "s"), "per_sequence": (r.step_each, "s"), "sequences": sequences},
        sources=r.sources["engine"],
    )

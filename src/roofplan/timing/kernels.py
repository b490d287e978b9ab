"""Operations x rates -> seconds: matmuls, attention, memory passes, and the casts and unpacking around matmuls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from roofplan.catalogue import format_entry
from roofplan.laws import Number, attention, larger, matmul, roofline, where
from roofplan.operations.table import HANDOVER, ROUTED_EXPERTS, Operation, element_bytes
from roofplan.records.terms import Numbers, Term
from roofplan.timing.network import MESSAGES, Ranks, message_time
from roofplan.timing.rates import QUANTISED, Rates
from roofplan.timing.vectors import Vector

PRODUCTS = {"matmul", "experts"}
"""Kinds of operations that multiply by weights."""


def operation_time(op: Operation, r: Rates) -> Number:
    """Return the time of one operation of one rank.

    Parameters
    ----------
    op : kernel or message of one rank.
    r : achieved rates of the machine under the software.

    Returns
    -------
    Time, float or array [s].
    """
    if op.kind in MESSAGES:
        if type(op.ranks) is float and op.ranks <= 1.0:
            return 0.0
        return message_time(op.kind, op.traffic, Ranks(op.ranks, r.network))
    law = roofline.serial_time if waits(op, r) else roofline.overlapped_time
    time = law(op.work, op.traffic, compute_rate(op, r), memory_rate(op, r))
    if r.vector is not None and op.kind in PRODUCTS:
        return where(op.rows <= r.vector.rows, vector_time(op, r, r.vector), time)
    return time


def compute_rate(op: Operation, r: Rates) -> Number:
    """Return the achieved compute rate of an operation [FLOP/s]."""
    if op.kind == "prefill_attention":
        return r.peak["bf16"] * r.attention_share * attention.share_of_keys(op.width, r.attention_keys)
    if op.kind == "decode_attention":
        return r.compute["bf16"]
    if op.kind == "memory":
        return r.vector_peak if op.role != "scan" or r.scan is None else r.scan
    own = f"{op.compute}.{op.stored}"
    rate = r.compute[own if own in r.compute else op.compute if op.compute in r.compute else "bf16"]
    if op.kind != "experts":
        return rate
    padded = op.work / (2.0 * op.entries)
    return rate * matmul.grouped_share(padded, op.width, *r.grouped)


def waits(op: Operation, r: Rates) -> bool:
    """Return whether a product on matrix units reads each tile of its weights before it computes with it.

    Parameters
    ----------
    op : kernel of one rank.
    r : achieved rates of the machine under the software.

    Returns
    -------
    Whether its reads and its arithmetic take their times one after the other.
    """
    kernels = r.engine.kernels
    blocks = kernels.waits_for_blocks and op.kind in PRODUCTS and format_entry(op.stored)["kernel"] == "blocks"
    return blocks and r.machine.device.vendor not in kernels.unpacked


def vector_time(op: Operation, r: Rates, vector: Vector) -> Number:
    """Return the time of a kernel on vector units: unpacking and arithmetic overlap memory reads in a processor's first row alone [s]."""
    work = vector_work(op, vector)
    if vector.instruction is None:
        return roofline.serial_time(work, op.traffic, r.vector_peak, vector.bandwidth)
    return roofline.row_by_row_time(work, op.traffic, r.vector_peak, vector.bandwidth, rows_of(op))


def rows_of(op: Operation) -> Number:
    """Return the rows of a product on a processor, at least one.

    Parameters
    ----------
    op : product of one rank.

    Returns
    -------
    Rows [1].
    """
    return larger(op.rows, 1.0)


def vector_work(op: Operation, vector: Vector) -> Number:
    """Return the work of a product on vector units, with the unpacking of its weights: once, or for each row on a processor.

    Parameters
    ----------
    op : product of one rank.
    vector : achieved rates of the kernels.

    Returns
    -------
    Work on the vector units [FLOP].
    """
    entry = format_entry(op.stored)
    if vector.instruction is None:
        return matmul.vector_work(op.work, op.entries, vector.multiplying, vector.unpacking[entry["kernel"]])
    return matmul.dot_work(op.work, entry["cpu_instructions"], vector.instruction)


UNPACK_TILE = 128.0
"""Rows of a weight-only GEMM for each unpacking of the weights, Marlin's largest tile (arXiv 2408.11743) [1]."""


UNPACK_OPERATIONS = 2.0
"""Vector operations per unpacked weight: one shift-and-mask, one scale (arXiv 2408.11743, section 3) [FLOP]."""


def on_device(table: list[Operation], r: Rates) -> list[Operation]:
    """Return operations as a device runs them: with casts and unpacking, and without traffic that its cache serves.

    Parameters
    ----------
    table : operations of a layer or a step.
    r : achieved rates of the machine under the software.

    Returns
    -------
    Operations as the device runs them.
    """
    return [_uncached(op, r) if op.kind == HANDOVER else op for op in with_unpacking(table, r)]


def _uncached(op: Operation, r: Rates) -> Operation:
    """Return the pass with only the traffic that misses the last-level cache."""
    if not r.cache:
        return op._replace(kind="memory")
    text = f"{op.text or '{whole}'}, beyond {{cache}} of cache"
    numbers = {**op.numbers, "whole": (op.traffic, "B"), "cache": (r.cache, "B")}
    return op._replace(kind="memory", traffic=roofline.beyond_cache(op.traffic, r.cache), text=text, numbers=numbers)


def with_unpacking(table: list[Operation], r: Rates) -> list[Operation]:
    """Return operations with the extra work around matmuls: unpacking, casts, conversions and rescaling."""
    beside = [unpacking(op) for op in table if op.kind in PRODUCTS and _unpacks(op, r)]
    out = table
    if r.engine.kernels.converted and r.machine.device.vendor in r.engine.kernels.counted:
        beside += [extra for op in table if op.kind in PRODUCTS for extra in _around(op, r)]
        out = [_reading_unpacked(op, r) for op in table]
    if not r.engine.kernels.casts_fused:
        beside += [_cast(op, r) for op in table if op.compute in r.casts and _quantises(op, r)]
    return [*out, *beside]


def _quantises(op: Operation, r: Rates) -> bool:
    """Return whether a matmul's activations are quantised first."""
    return op.kind in PRODUCTS and op.compute in QUANTISED and op.compute not in r.fallbacks


def _cast(op: Operation, r: Rates) -> Operation:
    """Return the cast of a matmul's inputs from 16 bits to its number format.

    The matmul's own traffic still counts 16-bit inputs; the saving is neglected.
    """
    own = f"{op.compute}.{op.stored}"
    each = r.casts[own if own in r.casts else op.compute]
    moved = matmul.conversion_traffic(op.inputs, each)
    numbers = {"inputs": op.inputs, "each": each}
    made = _pass(f"cast for {op.name}", "memory", moved, "{inputs} activations x {each} B", numbers)
    return made._replace(role="cast")


def _in_memory(op: Operation, r: Rates) -> Number:
    """Return 1 where a matmul first unpacks its blocks to memory, else 0."""
    kernels = r.engine.kernels
    unpacks = format_entry(op.stored)["kernel"] == "blocks" and r.machine.device.vendor in kernels.unpacked
    return where(op.rows > kernels.unpack_rows, 1.0, 0.0) if unpacks else 0.0


def _reading_unpacked(op: Operation, r: Rates) -> Operation:
    """Return a matmul that reads unpacked weights where blocks are unpacked to memory."""
    if op.kind not in PRODUCTS or not np.any(_in_memory(op, r)):
        return op
    more = op.entries * (UNPACKED_BYTES - element_bytes(op.stored))
    return op._replace(traffic=op.traffic + _in_memory(op, r) * more)


def _around(op: Operation, r: Rates) -> list[Operation]:
    """Return the conversion, dequantisation and rescaling kernels around a tensor-core matmul.

    Activations are converted. Blocks are unpacked to memory first, or their partial sums are rescaled.
    """
    kernels = r.engine.kernels
    blocks = format_entry(op.stored)["kernel"] == "blocks"
    own = blocks and r.peak["gguf"] != r.peak["fp16"]
    tensor = where(op.rows > kernels.vector_rows, 1.0, 0.0)
    each = kernels.quantised if own else kernels.converted
    moved = tensor * matmul.conversion_traffic(op.converted, each)
    out = [
        _pass(
            f"convert {op.name}",
            HANDOVER,
            moved,
            "{inputs} activations x {each} B",
            {"inputs": op.converted, "each": each},
        )
    ]
    if np.any(_in_memory(op, r)):
        stored = element_bytes(op.stored)
        moved = _in_memory(op, r) * matmul.unpacking_traffic(op.entries, stored, UNPACKED_BYTES)
        text = "{weights} weights x ({stored} + {unpacked} B)"
        numbers = {"weights": op.entries, "stored": stored, "unpacked": UNPACKED_BYTES}
        out.append(_pass(f"unpack {op.name}", "memory", moved, text, numbers))
    if own:
        work = tensor * matmul.rescaling_work(op.rows, op.entries, SCALE_BLOCK, SCALE_OPERATIONS)
        text = "{rows} rows x {weights} weights / {block} a scale"
        numbers = {"rows": op.rows, "weights": op.entries, "block": SCALE_BLOCK}
        out.append(_pass(f"rescale {op.name}", "memory", 0.0 * work, text, numbers)._replace(work=work))
    return out


SCALE_BLOCK, SCALE_OPERATIONS = 32.0, 6.0
"""Entries of a GGUF block under one scale [1], and vector operations for each partial sum: convert, multiply by both
scales, add. Each of these counts as two operations, like an FMA (llama.cpp source, ggml-cuda/mmq.cuh)
[FLOP]."""


def _pass(name: str, kind: str, moved: Number, text: str, numbers: Numbers) -> Operation:
    """Return a memory pass that belongs to a matmul; the launches of the matmul include it."""
    return Operation(name, kind, 0.0, moved, kernels=0.0, text=text, numbers=numbers)


UNPACKED_BYTES = 2.0
"""Bytes of a weight unpacked to 16 bits [B]."""


def _unpacks(op: Operation, r: Rates) -> bool:
    entry = format_entry(op.stored)
    if entry["kernel"] != "native":
        return bool(entry["kernel"] == "dequantise")
    return entry["compute"] in QUANTISED and (op.compute != entry["compute"] or op.compute in r.fallbacks)


def unpacking(op: Operation) -> Operation:
    """Return the unpacking of a matmul's weights, once for each tile of rows beyond the first."""
    work = matmul.dequantisation_work(op.entries, op.rows, UNPACK_TILE, UNPACK_OPERATIONS)
    return Operation(
        f"unpack {op.name}",
        "memory",
        larger(work, 0.0 * work),
        0.0,
        kernels=0.0,
        text="{entries} weights unpacked once per {tile} rows of {rows}",
        numbers={"entries": op.entries, "tile": UNPACK_TILE, "rows": op.rows},
    )


def kernels_of(op: Operation, r: Rates) -> float:
    """Return the kernels that an operation launches: as counted, those that are fitted, and those that quantise its inputs.

    A dense matmul quantises its inputs once; an MoE layer quantises the inputs of both of its grouped GEMMs.

    Parameters
    ----------
    op : kernel or message of one rank.
    r : achieved rates of the machine under the software.

    Returns
    -------
    Kernel launches [1].
    """
    kernels = op.kernels + r.extra_kernels.get(op.extra, 0.0)
    if not _quantises(op, r) or r.engine.kernels.casts_fused:
        return kernels
    return kernels + (2.0 if op.kind == "experts" else 1.0)


def started_of(op: Operation, r: Rates) -> Number:
    """Return how many kernels of an operation a host starts: a slow one that counts as several is one.

    Parameters
    ----------
    op : kernel or message of one rank.
    r : achieved rates of the machine under the software.

    Returns
    -------
    Kernels [1].
    """
    slow = r.extra_kernels[op.extra] * (1.0 - 1.0 / r.routed_kernels) if op.extra == ROUTED_EXPERTS else 0.0
    return kernels_of(op, r) - slow


def memory_rate(op: Operation, r: Rates) -> Number:
    """Return the achieved memory rate of an operation; that of grouped GEMMs depends on the expert format [B/s]."""
    own = f"{op.kind}.{op.stored}"
    return r.bandwidth[own if own in r.bandwidth else op.kind]


ROOFLINE = ("moved", "memory_rate", "work", "compute_rate")
"""Names of the numbers in a kernel's roofline formula."""


class UnderRoof(NamedTuple):
    """A kernel under a roofline.

    Parameters
    ----------
    intensity : work over bytes moved [FLOP/B].
    rate : that memory and compute allow [FLOP/s].
    binds : which of the two allows less: memory or compute.
    """

    intensity: float
    rate: float
    binds: str


def under_roof(term: Term) -> UnderRoof | None:
    """Return where a kernel stands under its roofline.

    Parameters
    ----------
    term : the kernel's time, with the numbers of `ROOFLINE`; with parts where its reads come before its arithmetic.

    Returns
    -------
    Its place; None of what does not both move and compute.
    """
    if not all(name in term.numbers for name in ROOFLINE):
        return None
    moved, memory_rate, work, compute_rate = (float(term.numbers[name][0]) for name in ROOFLINE)
    if not work or not moved:
        return None
    by_memory, by_compute = moved / memory_rate, work / compute_rate
    law = roofline.serial_time if term.parts else roofline.overlapped_time
    return UnderRoof(
        work / moved,
        work / float(law(work, moved, compute_rate, memory_rate)),
        "memory" if by_memory > by_compute else "compute",
    )


def roofline_numbers(op: Operation, r: Rates) -> Numbers:
    """Return the numbers in an operation's roofline formula.

    Parameters
    ----------
    op : kernel or message of one rank.
    r : achieved rates of the machine under the software.

    Returns
    -------
    Bytes moved, memory rate, work and compute rate by the names of `ROOFLINE`, each with its unit, and the bytes alone as ``traffic``.
    """
    return {
        "moved": (op.traffic, "B"),
        "memory_rate": (memory_rate(op, r), "B/s"),
        "work": (op.work, "FLOP"),
        "compute_rate": (compute_rate(op, r), "FLOP/s"),
        "traffic": op.traffic,
    }

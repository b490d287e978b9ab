"""Operations x machine -> seconds, as Terms.

`rates` collects once what a device and an engine can do; `step_time` turns a table of operations into a Term whose
parts are the groups a reader cares about: weight matmuls, experts, attention, memory passes, communication, launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.errors import InputError
from roofplan.laws import Number, collectives, larger, matmul, roofline, smaller, where
from roofplan.operations import (
    HANDOVER,
    Operation,
    Split,
    Step,
    draft_operations,
    element_bytes,
    encoder_operations,
    format_entry,
    head_operations,
    layer_operations,
    stage_contents,
)
from roofplan.records.calibration import OWN, Constant, Fit
from roofplan.records.engine import EAGER, Software
from roofplan.records.hardware import Accelerator, Machine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.terms import Cited, Term, total

PRODUCTS = {"matmul", "experts"}
"""Kinds of operations that multiply by weights."""

FALLBACKS = {
    "fp4": ("bf16",),
    "fp8": ("bf16",),
    "int8": ("bf16",),
    "bf16": ("fp16",),
    "fp16": ("bf16",),
    "fp32": ("tf32",),
}
"""Which type stands in where a device has no tensor unit for the one that a checkpoint asks for: 8- and 4-bit floats are
then unpacked and multiplied in 16 bits (vLLM's Marlin kernels, W8A16 and W4A16)."""


ANY_UNIT = {name: ("fp16", "bf16", "fp32") if name != "fp32" else () for name in FALLBACKS}
"""What computes where not even a stand-in's unit is there; fp32 has no stand-in but tf32."""

UNUSED = 1e30
"""Rate of a link that no plan of a one-device machine uses [B/s]."""


@lru_cache(maxsize=256)
def _expert_bandwidths(scopes: tuple[str, ...], fit: Fit) -> dict[str, Constant]:
    """Return the bandwidth shares of grouped products by the format of their experts, where a scope has some of its own."""
    found = {f"experts.{stored}": item for stored, item in fit.variants("experts", "bandwidth", scopes).items()}
    if "experts.bf16" in found:
        found.setdefault("experts.fp16", found["experts.bf16"])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """What matrix-vector kernels reach.

    Parameters
    ----------
    rows : rows up to which the engine uses them [1].
    bandwidth : achieved memory rate [B/s].
    unpacking : vector operations per stored entry, by how a format's weights are used [FLOP].
    """

    rows: float
    bandwidth: float
    unpacking: dict[str, float]


def _vector_peak(device: Accelerator, fitted: Callable[..., Constant], sources: dict[str, tuple[Cited, ...]]) -> float:
    """Return the fp32 rate of the vector units: the data sheet's, else the share of the 16-bit peak that its vendor's others have."""
    sheet = device.peak.get("fp32")
    if sheet is not None:
        sources["vector_peak"] = (sheet.cited,)
        return sheet.value
    base = device.peak.get("bf16") or device.peak["fp16"]
    share = fitted("vector", "fp32_over_16bit", [device.vendor, "any"])
    sources["vector_peak"] = (base.cited, share)
    return base.value * float(share.value)


def _vector(
    engine: Software, wire: float, fitted: Callable[..., Constant], sources: dict[str, tuple[Cited, ...]]
) -> Vector | None:
    if not engine.kernels.vector_rows:
        return None
    chain = engine.scopes
    share, native, blocks = (
        fitted("vector", name, chain) for name in ("bandwidth", "unpacking.native", "unpacking.blocks")
    )
    sources["vector"] = (share, native, blocks)
    return Vector(
        rows=engine.kernels.vector_rows,
        bandwidth=wire * share.value,
        unpacking={"native": native.value, "dequantise": blocks.value, "blocks": blocks.value},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a machine attains under an engine; numbers may be arrays over machines.

    Parameters
    ----------
    compute : achieved rate by number format, fallbacks resolved [FLOP/s].
    peak : dense peak by number format, fallbacks resolved [FLOP/s].
    vector_peak : fp32 rate of the vector units [FLOP/s].
    cache : last-level cache, 0 where it is not known [B].
    bandwidth : achieved memory rate by kind of operation [B/s].
    vector : what matrix-vector kernels reach, None where the engine has none.
    casts : bytes that converting an input of a product moves, by the number format that it is converted to [B].
    gap : time between kernels [s].
    step_base, step_each : the host's time for a step, and for each of its sequences [s].
    front : time that the server's front end takes for a request [s].
    sources : what each of these rests on.
    fallbacks : format -> the one that stood in.
    fit : the constants behind them.
    """

    machine: Machine
    engine: Software
    compute: dict[str, Number]
    peak: dict[str, Number]
    wire: Number
    vector_peak: Number
    cache: Number
    bandwidth: dict[str, Number]
    vector: Vector | None
    attention_share: Number
    experts_share: Number
    casts: dict[str, float]
    gap: Number
    step_base: Number
    step_each: Number
    front: Number
    network: dict[str, Any]
    sources: dict[str, tuple[Cited, ...]]
    fallbacks: dict[str, str]
    fit: Fit


def own_place(software: str, machine: Machine, model: Model) -> str:
    """Return what a user's own runs speak of: a model, known by its parameters, on as many devices under a piece of software."""
    return f"{software}/{machine.count}x{machine.device.id}/{model.total} parameters"


def own_runs(job: str, software: str, machine: Machine, model: Model, fit: Fit) -> Constant | None:
    """Return how far predictions of a job lie from a user's own runs, None where he measured none: half its 90% interval, a logarithm [1]."""
    if not fit.speaks_of(OWN, job):  # counting a model's parameters takes time, and few have measured
        return None
    return fit.get(OWN, job, own_place(software, machine, model))


def grade_of_constant(item: Constant, vendor: str) -> int:
    """Return the grade of a constant: fitted on this architecture, engine or fabric; on others; or a guess.

    A definition claims nothing: an engine whose share of the kernels' rate is one by definition has the kernels' grade.
    """
    if item.kind != "fit":
        return 1 if item.kind == "definition" else 3
    return 2 if item.fitted_on in {"any", vendor, EAGER} else 1


@lru_cache(maxsize=1024)
def rates(machine: Machine, engine: Software, fit: Fit) -> Rates:
    """Return what `machine` attains under `engine`, from data sheets and fitted constants.

    Raises
    ------
    InputError : the data sheet states no memory bandwidth or no peak.
    """
    device = machine.device
    if device.bandwidth is None or not device.peak:
        raise InputError(
            f"{device.id} has no known memory bandwidth or no known peak: it cannot be planned with",
            argument="--on",
            value=device.id,
        )
    scopes = [device.id, device.architecture, device.vendor, "any"]

    def fitted(law: str, name: str, chain: Sequence[str] = scopes) -> Constant:
        return fit.find(law, name, chain)

    peak, compute, fallbacks, where_from = _compute_rates(machine, engine, fitted, fit)
    memory_share = fitted("matmul", "bandwidth")
    attention_share, decode_share = fitted("attention", "prefill"), fitted("attention", "decode_bandwidth")
    experts_rate, experts_bandwidth = (
        fitted("experts", "share", ["any"]),
        fitted("experts", "bandwidth", engine.scopes),
    )
    passes = fitted("memory", "bandwidth")
    engine_chain = engine.scopes
    own_experts = _expert_bandwidths(tuple(engine_chain), fit)
    gap = fitted("kernel", "gap", engine_chain)
    base, each = fitted("engine_step", "base", engine_chain), fitted("engine_step", "per_sequence", engine_chain)
    front = fitted("front_end", "request", engine_chain)
    wire = device.bandwidth
    sheet = device.quantities["memory_bandwidth"].cited
    where_from["bandwidth"] = (sheet, memory_share)
    where_from["attention"] = (sheet, decode_share)
    where_from["prefill_attention"] = (attention_share,)
    where_from["memory"] = (sheet, passes)
    where_from["experts_share"] = (experts_rate,)
    where_from["experts"] = (sheet, experts_bandwidth)
    where_from.update({name: (sheet, item) for name, item in own_experts.items()})
    where_from["gap"] = (gap,)
    where_from["engine"] = (base, each)
    where_from["front"] = (front,)
    casts = {
        name: fitted("conversion", f"traffic.{'fp8' if name == 'int8' else name}") for name in compute if _cast_to(name)
    }
    where_from["casts"] = tuple(casts.values())
    kernels, blocks = (fitted("engine", name, engine_chain) for name in ("compute_share", "block_share"))
    for name in compute:
        share = blocks if name == "gguf" and peak[name] != peak["fp16"] else kernels
        compute[name] *= share.value
        where_from[f"compute.{name}"] = (*where_from[f"compute.{name}"], share)
    vector = _vector(engine, wire, fitted, where_from)
    network = _network(machine, fit, where_from)
    return Rates(
        machine=machine,
        engine=engine,
        compute=compute,
        peak=peak,
        wire=wire,
        vector_peak=_vector_peak(device, fitted, where_from),
        cache=device.value("cache") or 0.0,
        bandwidth={
            "matmul": wire * memory_share.value,
            "decode_attention": wire * decode_share.value,
            "prefill_attention": wire * memory_share.value,
            "experts": wire * experts_bandwidth.value,
            "memory": wire * passes.value,
            **{name: wire * item.value for name, item in own_experts.items()},
        },
        vector=vector,
        attention_share=attention_share.value * kernels.value,
        experts_share=experts_rate.value,
        casts={name: item.value for name, item in casts.items()},
        gap=gap.value,
        step_base=base.value,
        step_each=each.value,
        front=front.value,
        network=network,
        sources=where_from,
        fallbacks=fallbacks,
        fit=fit,
    )


def _cast_to(name: str) -> bool:
    """Return whether a kernel of its own brings activations into a number format, GGUF's aside."""
    return name.partition(".")[0] in QUANTISED - {"gguf"}


def _compute_rates(
    machine: Machine, engine: Software, fitted: Callable[..., Constant], fit: Fit
) -> tuple[dict[str, float], dict[str, float], dict[str, str], dict[str, tuple[Cited, ...]]]:
    device = machine.device
    peak: dict[str, float] = {}
    compute: dict[str, float] = {}
    fallbacks: dict[str, str] = {}
    sources: dict[str, tuple[Cited, ...]] = {}
    for name in ("bf16", "fp16", "fp8", "int8", "fp4", "fp32"):
        stand_in = next(
            (candidate for candidate in (name, *FALLBACKS[name], *ANY_UNIT[name]) if candidate in device.peak),
            None,
        )
        if stand_in is None:
            continue
        if stand_in != name and {stand_in, name} != {"bf16", "fp16"}:
            fallbacks[name] = stand_in
        share = fitted(
            "matmul",
            f"share.{'bf16' if stand_in in {'fp16', 'bf16', 'tf32', 'fp32'} else 'fp8' if stand_in in {'fp8', 'int8'} else 'fp4'}",
        )
        faster = f"{stand_in}_accumulate_{engine.kernels.accumulator}"
        sheet = device.peak[faster if stand_in == "fp16" and faster in device.peak else stand_in]
        peak[name] = sheet.value
        twin = {"fp16": "bf16", "bf16": "fp16"}.get(stand_in, stand_in)
        alike = twin in device.peak and device.peak[twin].value == sheet.value
        best = device.measured.get(stand_in) or (device.measured.get(twin) if alike else None)
        sustained, keys = _sustained(device, stand_in, share, peak[name], (sheet.cited, share), fit)
        value = peak[name] * sustained
        if best is not None and share.fitted_on in {"any", device.vendor}:
            # the family has no fitted rows of its own: its best measured product, lowered by what serving shapes lose elsewhere
            lost = fit.find("matmul", "serving_over_best", ["any"])
            value, keys = best.value * lost.value, (best.cited, lost)
        compute[name] = value
        sources[f"compute.{name}"] = keys
        for stored in own_share(name) if stand_in == name else ():
            # weights scaled block by block go through other kernels, whose share was measured apart
            kind = f"{name}.{stored}"
            apart = fitted("matmul", f"share.{kind}")
            peak[kind], compute[kind] = peak[name], value * apart.value / share.value
            sources[f"compute.{kind}"] = (*keys, apart)
    own = engine.kernels.gguf
    blocks = own if own is not None and own in device.peak else "fp16"
    peak["gguf"], compute["gguf"], sources["compute.gguf"] = peak[blocks], compute[blocks], sources[f"compute.{blocks}"]
    return peak, compute, fallbacks, sources


def own_share(name: str) -> tuple[str, ...]:
    """Return the formats of weights whose products in a number format have a share of the peak of their own."""
    found = catalogue.formats().items()
    return tuple(stored for stored, table in found if table.get("own_share") and table["compute"] == name)


UNMEASURED = frozenset({"tf32", "fp32"})
"""Formats whose products borrow the share of 16-bit ones but not their power: nobody published theirs."""


def _sustained(
    device: Accelerator, stand_in: str, share: Constant, peak: float, keys: tuple[Cited, ...], fit: Fit
) -> tuple[float, tuple[Cited, ...]]:
    """Return the share of its peak that a device's products sustain under its power limit, and the sources behind it.

    A share measured on other devices of its architecture and process holds at their limit; on others it is taken as it is.
    """
    power, place = device.value("power"), f"{device.architecture}/{catalogue.node_of(device.process)}"
    reference = fit.get("matmul", f"energy.{share.name.split('.')[1]}", place)
    if power is None or reference is None or share.fitted_on != device.architecture or stand_in in UNMEASURED:
        return share.value, keys
    highest = fit.find("matmul", "highest", [device.vendor, "any"])
    most = max(highest.value, share.value)
    sustained = matmul.power_limited_share(share.value, power / peak, reference.value, most)
    return float(sustained), (*keys, device.quantities["power"].cited, reference)


def _network(machine: Machine, fit: Fit, sources: dict[str, tuple[Cited, ...]]) -> dict[str, Any]:
    """Return the figures of the links inside a host and between hosts."""
    device = machine.device
    inside = machine.scale_up
    topology = "none"
    bandwidth = pair = UNUSED
    keys: list[Cited] = []
    if inside is not None:
        topology = inside.topology
        bandwidth = device.value("link_bandwidth") or inside.bandwidth
        pair = device.value("link_bandwidth_pair") or inside.value("bandwidth_pair") or bandwidth
        keys.append(inside.quantities["bandwidth"].cited)
    elif machine.host_link is not None:
        topology = "staged" if device.peer_to_peer == "none" else "bus"
        bandwidth = pair = machine.host_link.bandwidth
        keys.append(machine.host_link.quantities["bandwidth"].cited)
    chain = [device.id, f"{topology}/{device.vendor}", topology, "any"]
    values: dict[str, Any] = {
        "topology": topology,
        "bandwidth": bandwidth,
        "pair": pair,
        "in_network": inside is not None and inside.in_network_reduction,
    }
    for name in ("base", "step", "efficiency", "one_shot"):
        item = fit.find("all_reduce", name, chain)
        values[name] = item.value
        keys.append(item)
    for name in ("bus_share.2", "bus_share.4", "bus_share.8", "staged_path"):
        try:
            found = fit.find("all_reduce", name, chain)
            values[name] = found.value
            if topology == "bus" or name == "staged_path":
                keys.append(found)
        except InputError:
            values[name] = None
    values["outer_bandwidth"] = machine.network_per_device or 0.0
    values["outer_latency"] = 0.0
    if machine.network is not None:
        item = fit.find("all_reduce", "network_step", [machine.network.id, machine.network.transport])
        values["outer_latency"] = (machine.network.value("latency") or 0.0) + item.value
        share = fit.find("all_reduce", "network_efficiency", [machine.network.id, "any"])
        values["outer_efficiency"] = share.value
        keys += [item, share]
        keys.append(machine.network.quantities["bandwidth"].cited)
    sources["network"] = tuple(keys)
    return values


def all_reduce_time(message: Number, ranks: Number, machine: Machine, net: dict[str, Any]) -> Number:
    """Return the fastest all-reduce that the topology allows, hierarchical where ranks leave the host."""
    inner = smaller(ranks, float(machine.per_host))
    time = where(inner > 1, _inside_time(message, larger(inner, 1.0), net), 0.0)
    if machine.hosts == 1:
        return time
    outer = ranks / inner
    rate = net["outer_bandwidth"] * net["outer_efficiency"]
    share = message / larger(inner, 1.0)
    ring = collectives.ring_all_reduce(share, larger(outer, 1.0), 0.0, net["outer_latency"], rate)
    tree = collectives.tree_all_reduce(share, larger(outer, 1.0), 0.0, net["outer_latency"], rate)
    return time + where(outer > 1, smaller(ring, tree), 0.0)


def _inside_time(message: Number, ranks: Number, net: dict[str, Any]) -> Number:
    best, *others = inside_ways(message, ranks, net).values()
    for other in others:
        best = smaller(best, other)
    return best


def inside_ways(message: Number, ranks: Number, net: dict[str, Any]) -> dict[str, Number]:
    """Return the time of each all-reduce that the topology inside a host allows, by name."""
    base, step, topology = net["base"], net["step"], net["topology"]
    rate = _shared_rate(ranks, net)
    if topology == "staged":
        return {"host-staged": collectives.host_staged_all_reduce(message, ranks, base, step, rate, net["staged_path"])}
    ways = {"ring": collectives.ring_all_reduce(message, ranks, base, step, rate)}
    if topology in {"bus", "torus", "point-to-point"}:
        return ways
    ways["one-shot"] = collectives.one_shot_all_reduce(message, ranks, net["one_shot"], rate)
    ways["two-shot"] = collectives.two_shot_all_reduce(message, ranks, net["one_shot"], rate)
    if net["in_network"]:
        ways["in-network"] = collectives.in_network_all_reduce(message, ranks, base, rate)
    return ways


def _shared_rate(ranks: Number, net: dict[str, Any]) -> Number:
    """Return the rate one way that each of `ranks` gets: a mesh opens more links the more ranks take part, a bus shares one."""
    topology = net["topology"]
    if topology in {"full-mesh", "cube-mesh"}:
        return smaller(net["pair"] * (ranks - 1), net["bandwidth"]) * net["efficiency"] + 1e-300 * (ranks <= 1)
    if topology == "bus":
        share = where(ranks > 4, net["bus_share.8"], where(ranks > 2, net["bus_share.4"], net["bus_share.2"]))
        return net["bandwidth"] * share
    return net["bandwidth"] * net["efficiency"]


def ring_rate(ranks: Number, net: dict[str, Any]) -> Number:
    """Return the rate of each rank of a ring inside a host; through host memory each byte crosses the link twice [B/s]."""
    if net["topology"] == "staged":
        return smaller(_shared_rate(ranks, net) / 2.0, net["staged_path"] / (2.0 * ranks))
    return _shared_rate(ranks, net)


def _pairwise_rate(ranks: Number, net: dict[str, Any]) -> Number:
    """Return the rate one way of a rank that sends to all others; through host memory each byte crosses the link twice."""
    return _shared_rate(larger(ranks, 2.0), net) / (2.0 if net["topology"] == "staged" else 1.0)


def exchange_time(message: Number, ranks: Number, machine: Machine, net: dict[str, Any]) -> Number:
    """Return the time of an all-to-all of `message` bytes per rank; what leaves the host goes at the network's rate."""
    inner = smaller(ranks, float(machine.per_host))
    busy = larger(ranks, 1.0)
    time = collectives.all_to_all_time(
        message * inner / busy,
        larger(inner, 1.0),
        net["one_shot"],
        _pairwise_rate(inner, net),
    )
    if machine.hosts > 1:
        rate = net["outer_bandwidth"] * net["outer_efficiency"]
        time = larger(time, collectives.transfer_time((1.0 - inner / busy) * message, net["outer_latency"], rate))
    return where(ranks > 1, time, 0.0)


def gather_time(message: Number, ranks: Number, machine: Machine, net: dict[str, Any]) -> Number:
    """Return the time of an all-gather of a tensor of `message` bytes; what crosses hosts goes at the network's rate."""
    inner = smaller(ranks, float(machine.per_host))
    time = collectives.gather_time(message, larger(inner, 1.0), net["one_shot"], _pairwise_rate(inner, net))
    if machine.hosts > 1:
        apart = collectives.transfer_time(
            (1.0 - inner / larger(ranks, 1.0)) * message,
            net["outer_latency"],
            net["outer_bandwidth"] * net["outer_efficiency"],
        )
        time = time + where(ranks > inner, apart, 0.0)
    return where(ranks > 1, time, 0.0)


def hop_time(message: Number, tensor: Number, stages: Number, machine: Machine, net: dict[str, Any]) -> Number:
    """Return the mean time of one pipeline hop: over the network where stages lie in other hosts, else inside."""
    crossing = where(tensor * stages > machine.per_host, 1.0, 0.0)
    inner_rate = net["bandwidth"] * net["efficiency"]
    staged = 2.0 if net["topology"] == "staged" else 1.0
    inside = collectives.transfer_time(message, net["one_shot"], inner_rate / staged)
    if machine.hosts == 1:
        return inside
    # tensor ranks of one host send their shares at once, together filling the host's ports
    rate = machine.network.bandwidth * machine.ports * net["outer_efficiency"]  # type: ignore[union-attr]
    outside = collectives.transfer_time(message, net["outer_latency"], rate)
    # of the stages' hops, those between hosts are one in every (devices of a host / tensor ranks)
    apart = smaller(1.0, tensor / machine.per_host)
    return where(crossing > 0, apart * outside + (1.0 - apart) * inside, inside)


MESSAGES = {"all_reduce": all_reduce_time, "gather": gather_time, "exchange": exchange_time}
"""Kinds of operations that are messages between ranks, and their times."""


def operation_time(op: Operation, r: Rates) -> Number:
    """Return the seconds of one operation of one rank."""
    if op.kind in MESSAGES:
        if type(op.ranks) is float and op.ranks <= 1.0:
            return 0.0
        return MESSAGES[op.kind](op.traffic, op.ranks, r.machine, r.network)
    time = roofline.overlapped_time(op.work, op.traffic, compute_rate(op, r), memory_rate(op, r))
    if r.vector is not None and op.kind in PRODUCTS:
        return where(op.rows <= r.vector.rows, vector_time(op, r, r.vector), time)
    return time


def compute_rate(op: Operation, r: Rates) -> Number:
    """Return the achieved compute rate of an operation [FLOP/s]."""
    if op.kind == "prefill_attention":
        return r.peak["bf16"] * r.attention_share
    if op.kind == "decode_attention":
        return r.compute["bf16"]
    if op.kind == "memory":
        return r.vector_peak
    own = f"{op.compute}.{op.stored}"
    rate = r.compute[own if own in r.compute else op.compute if op.compute in r.compute else "bf16"]
    return rate * r.experts_share if op.kind == "experts" else rate


def vector_time(op: Operation, r: Rates, vector: Vector) -> Number:
    """Return the seconds of a product as a matrix-vector kernel: what it unpacks and multiplies does not hide under its reads."""
    work = matmul.vector_work(op.work, op.entries, vector.unpacking[format_entry(op.stored)["kernel"]])
    return roofline.serial_time(work, op.traffic, r.vector_peak, vector.bandwidth)


UNPACK_TILE = 128.0
"""Rows of a weight-only product that one unpacking of the weights serves, Marlin's largest tile (arXiv 2408.11743)."""

UNPACK_OPERATIONS = 2.0
"""Vector operations per unpacked weight: one shift-and-mask, one scale (arXiv 2408.11743 section 3)."""


def on_device(table: list[Operation], r: Rates) -> list[Operation]:
    """Return operations as a device runs them: with what products need besides, and without the passes that its cache serves."""
    return [_uncached(op, r) if op.kind == HANDOVER else op for op in with_unpacking(table, r)]


def _uncached(op: Operation, r: Rates) -> Operation:
    """Return a pass over handed tensors as one over those that the cache does not hold."""
    if not r.cache:
        return op._replace(kind="memory")
    text = f"{op.text or '{whole}'}, beyond {{cache}} of cache"
    numbers = {**op.numbers, "whole": (op.traffic, "B"), "cache": (r.cache, "B")}
    return op._replace(kind="memory", traffic=roofline.beyond_cache(op.traffic, r.cache), text=text, numbers=numbers)


def with_unpacking(table: list[Operation], r: Rates) -> list[Operation]:
    """Return operations with what products need besides: unpacked weights, formats that a device has no unit for, conversions."""
    beside = [unpacking(op) for op in table if op.kind in PRODUCTS and _unpacks(op, r)]
    out = table
    if r.engine.kernels.converted and r.machine.device.vendor in r.engine.kernels.counted:
        beside += [extra for op in table if op.kind in PRODUCTS for extra in _around(op, r)]
        out = [_reading_unpacked(op, r) for op in table]
    if not r.engine.kernels.casts_fused:
        beside += [_cast(op, r) for op in table if op.compute in r.casts and _quantises(op, r)]
    return [*out, *beside]


def _quantises(op: Operation, r: Rates) -> bool:
    """Return whether a product's activations are brought into fewer bits first."""
    return op.kind in PRODUCTS and op.compute in QUANTISED and op.compute not in r.fallbacks


def _cast(op: Operation, r: Rates) -> Operation:
    """Return the pass that brings a product's inputs from 16 bits into its number format.

    That the product then reads them in fewer bits is neglected: its traffic is of the 16-bit ones.
    """
    own = f"{op.compute}.{op.stored}"
    each = r.casts[own if own in r.casts else op.compute]
    moved = matmul.conversion_traffic(op.inputs, each)
    return _pass(
        f"cast for {op.name}", "memory", moved, "{inputs} activations x {each} B", {"inputs": op.inputs, "each": each}
    )


def _in_memory(op: Operation, r: Rates) -> Number:
    """Return one where a product unpacks its blocks to memory first, else zero."""
    kernels = r.engine.kernels
    unpacks = format_entry(op.stored)["kernel"] == "blocks" and r.machine.device.vendor in kernels.unpacked
    return where(op.rows > kernels.unpack_rows, 1.0, 0.0) if unpacks else 0.0


def _reading_unpacked(op: Operation, r: Rates) -> Operation:
    """Return a product that reads its weights as they were unpacked."""
    if op.kind not in PRODUCTS or not np.any(_in_memory(op, r)):
        return op
    more = op.entries * (UNPACKED_BYTES - element_bytes(op.stored))
    return op._replace(traffic=op.traffic + _in_memory(op, r) * more)


def _around(op: Operation, r: Rates) -> list[Operation]:
    """Return what a product on the tensor units takes besides.

    Activations are converted; blocks are unpacked to memory before it reads them, or their sums rescaled.
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
"""Entries of a GGUF block that share a scale with the block of 8-bit inputs, and vector operations for each of their sums: converted,
multiplied by both scales and added, three instructions that could each be two operations (llama.cpp source, ggml-cuda/mmq.cuh) [1], [FLOP]."""


def _pass(name: str, kind: str, moved: Number, text: str, numbers: Mapping[str, Any]) -> Operation:
    """Return a pass over memory that belongs to a product, whose launches count it already."""
    return Operation(name, kind, 0.0, moved, kernels=0.0, text=text, numbers=numbers)


UNPACKED_BYTES = 2.0
"""Bytes of a weight unpacked to 16 bits [B]."""


def _unpacks(op: Operation, r: Rates) -> bool:
    entry = format_entry(op.stored)
    if entry["kernel"] != "native":
        return bool(entry["kernel"] == "dequantise")
    return entry["compute"] in QUANTISED and (op.compute != entry["compute"] or op.compute in r.fallbacks)


def unpacking(op: Operation) -> Operation:
    """Return the unpacking of a product's weights, once per tile of rows beyond the first."""
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


QUANTISED = {"fp8", "fp4", "int8", "gguf"}
"""Number formats that activations are brought into before a product, by a kernel of its own."""


def kernels_of(op: Operation, r: Rates) -> float:
    """Return the kernels that an operation starts: its own, and those that quantise its activations for the unit that multiplies.

    A dense product quantises its inputs once, a mixture the inputs of both of its grouped products.
    """
    if not _quantises(op, r) or r.engine.kernels.casts_fused:
        return op.kernels
    return op.kernels + (2.0 if op.kind == "experts" else 1.0)


def memory_rate(op: Operation, r: Rates) -> Number:
    """Return the achieved memory rate of an operation; grouped products differ by the format of their experts [B/s]."""
    own = f"{op.kind}.{op.stored}"
    return r.bandwidth[own if own in r.bandwidth else op.kind]


GROUP_OF = {
    "matmul": "weight matmuls",
    "experts": "routed experts",
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
    stages: Number | None = None,
) -> Term:
    """Return the time of one step of the slowest pipeline stage.

    Layers of one kind are computed once and counted; the worst stage decides.
    """
    split = Split.of(strategy)
    kinds = model.decoder.kinds()
    kernels = r.engine.kernels
    tables = [layer_operations(layer, step, split, model, kv_bytes, kernels) for layer, _ in kinds]
    drafts = draft_operations(step, split, model, drafted, kv_bytes, kernels)
    tables.append(head_operations(step, split, model) + drafts + encoder_operations(step, split, model, kernels))
    tables = [on_device(table, r) for table in tables]
    timed = [[(op, operation_time(op, r)) for op in table] for table in tables]
    launches = [sum(kernels_of(op, r) for op in table) * r.gap for table in tables]
    sums = []
    for rows, launch in zip(timed, launches, strict=True):
        amount: Any = launch
        for _, seconds in rows:
            amount = amount + seconds
        sums.append(amount)
    pp = strategy.pp if stages is None else stages
    counts = _worst_counts(kinds, len(model.decoder.layers), pp, sums)
    return _grouped(name, timed, launches, counts, r)


def _worst_counts(kinds: Sequence[Any], layers: int, pp: Number, sums: list[Number]) -> list[Number]:
    """Return how many layers of each kind, and heads, the slowest stage holds."""
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
        # counts that do not depend on the sums keep the axes of pp alone
        count: Number = np.zeros(degrees.shape)
        for value, counts in found.items():
            count = np.where(degrees == value, counts[k], count)
        chosen.append(count)
    return chosen


def _summed(rows: list[tuple[Operation, Number]]) -> dict[str, Number]:
    """Return the seconds of each group of one layer; a grid adds them before it counts layers."""
    sums: dict[str, Number] = {}
    for op, seconds in rows:
        group = GROUP_OF[op.kind]
        sums[group] = sums[group] + seconds if group in sums else seconds
    return sums


def _grouped(
    name: str, timed: list[list[tuple[Operation, Number]]], launches: list[Number], counts: list[Number], r: Rates
) -> Term:
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
    parts.append(
        Term(
            "launches",
            gap,
            "s",
            law="roofline.kernel_time",
            text="{kernels} kernels x {gap} between one and the next",
            numbers={"kernels": gap / r.gap, "gap": (r.gap, "s")},
            sources=r.sources["gap"],
        )
    )
    return total(name, parts, "s")


ROOFLINE = ("moved", "memory_rate", "work", "compute_rate")
"""Names of the numbers that place a kernel under its roofline, each with its unit."""


def roofline_numbers(op: Operation, r: Rates) -> dict[str, Any]:
    """Return what an operation moves and computes, and at which rates, as the numbers of its formula; `ROOFLINE` names them."""
    return {
        "moved": (op.traffic, "B"),
        "memory_rate": (memory_rate(op, r), "B/s"),
        "work": (op.work, "FLOP"),
        "compute_rate": (compute_rate(op, r), "FLOP/s"),
        "traffic": op.traffic,
    }


def _operation_term(op: Operation, seconds: Number, count: Number, r: Rates) -> Term:
    if op.kind in MESSAGES:
        return _message_term(op, seconds, count, r)
    products = op.kind in PRODUCTS
    if r.vector is not None and products and type(op.rows) is float and op.rows <= r.vector.rows:
        return _vector_term(op, seconds, count, r, r.vector)
    keys = r.sources.get(f"{op.kind}.{op.stored}", r.sources[_SOURCE_OF.get(op.kind, "bandwidth")])
    law = "roofline.overlapped_time"
    text = "{layers} layers x max(read {moved} at {memory_rate}, compute {work} at {compute_rate}); "
    text += op.text or "{traffic} B"
    numbers = {"layers": count, **roofline_numbers(op, r), **op.numbers}
    own = f"compute.{op.compute}.{op.stored}"
    shares = r.sources.get(own, r.sources.get(f"compute.{op.compute}", ()))
    computed = r.sources["vector_peak"] if op.kind == "memory" else shares
    if op.name.startswith("cast for "):
        computed = r.sources["casts"]
    sources = (*keys, *computed, *(r.sources["experts_share"] if op.kind == "experts" else ()))
    return Term(op.name, seconds * count, "s", law=law, text=text, numbers=numbers, sources=sources)


RING = "{start} + 2 x ({group} - 1) x {step} + 2 x ({group} - 1) / {group} x {size} / {rate}"
"""Formula of a ring all-reduce."""


WAYS = {
    "ring": RING,
    "one-shot": "{shot} + ({group} - 1) x {size} / {rate}",
    "two-shot": "2 x {shot} + 2 x ({group} - 1) / {group} x {size} / {rate}",
    "in-network": "{start} + ({group} + 1) / {group} x {size} / {rate}",
    "host-staged": RING,
}
"""Formulas of an all-reduce inside a host."""


def _way_numbers(way: str, message: float, ranks: float, net: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers in the formula of an all-reduce inside a host."""
    rate = float(_shared_rate(ranks, net))
    if way == "host-staged":
        rate = min(rate / 2.0, net["staged_path"] / (2.0 * ranks))
    times = {"start": (net["base"], "s"), "step": (net["step"], "s"), "shot": (net["one_shot"], "s")}
    return {**times, "group": ranks, "size": (message, "B"), "rate": (rate, "B/s")}


def _all_reduce_parts(op: Operation, count: Number, r: Rates) -> list[Term]:
    """Return the stages of an all-reduce: inside each host the quickest way, then a ring or tree over the network."""
    net, keys, parts = r.network, r.sources["network"], []
    inner = min(op.ranks, float(r.machine.per_host))
    if inner > 1.0:
        ways = inside_ways(op.traffic, inner, net)
        way = min(ways, key=lambda name: float(ways[name]))
        parts.append(
            Term(
                f"{op.name}, in a host",
                ways[way] * count,
                "s",
                law=f"collectives.{way.replace('-', '_')}_all_reduce",
                text="{layers} x (" + WAYS[way] + "); " + way + ", " + op.text,
                numbers={"layers": count, **_way_numbers(way, op.traffic, inner, net), **op.numbers},
                sources=keys,
            )
        )
    if op.ranks > inner:
        outer, share = op.ranks / inner, op.traffic / max(inner, 1.0)
        rate, latency = net["outer_bandwidth"] * net["outer_efficiency"], net["outer_latency"]
        ring = collectives.ring_all_reduce(share, outer, 0.0, latency, rate)
        tree = collectives.tree_all_reduce(share, outer, 0.0, latency, rate)
        kind = "ring" if ring <= tree else "tree"
        formula = RING if kind == "ring" else "2 x log2({group}) x {step} + 2 x {size} / {rate}"
        where_to = r.machine.network.id if r.machine.network else "the network"
        parts.append(
            Term(
                f"{op.name}, between hosts",
                min(ring, tree) * count,
                "s",
                law=f"collectives.{kind}_all_reduce",
                text="{layers} x (" + formula + f"); {kind} over {where_to}",
                numbers={
                    "layers": count,
                    "start": 0.0,
                    "step": (latency, "s"),
                    "group": outer,
                    "size": (share, "B"),
                    "rate": (rate, "B/s"),
                },
                sources=keys,
            )
        )
    return parts


def _message_term(op: Operation, seconds: Number, count: Number, r: Rates) -> Term:
    """Return the time of messages between ranks, with the way that was quickest and what it takes."""
    keys = r.sources["network"]
    scalar = type(op.traffic) is float and type(op.ranks) is float
    if op.kind == "all_reduce" and scalar:
        parts = _all_reduce_parts(op, count, r)
        return parts[0] if len(parts) == 1 else total(op.name, parts, "s")
    law = "collectives.gather_time" if op.kind == "gather" else "collectives.all_to_all_time"
    timed = {"layers": count, "group": op.ranks, "size": (op.traffic, "B")}
    if not scalar or op.ranks > r.machine.per_host:
        text = "{layers} x {kind} of {size} over {group} ranks; " + op.text
        numbers = {**timed, "kind": op.kind, **op.numbers}
        return Term(op.name, seconds * count, "s", law=law, text=text, numbers=numbers, sources=keys)
    wait, rate = (r.network["one_shot"], "s"), (_pairwise_rate(op.ranks, r.network), "B/s")
    text = "{layers} x ({wait} + ({group} - 1) / {group} x {size} / {rate}); " + op.text
    numbers = {**timed, "wait": wait, "rate": rate, **op.numbers}
    return Term(op.name, seconds * count, "s", law=law, text=text, numbers=numbers, sources=keys)


def _vector_term(op: Operation, seconds: Number, count: Number, r: Rates, vector: Vector) -> Term:
    how = format_entry(op.stored)["kernel"]
    return Term(
        op.name,
        seconds * count,
        "s",
        law="roofline.serial_time",
        text="{layers} layers x (read {moved} at {memory_rate} + {work} and {entries} {how} weights x {unpacking} to unpack, on vector units"
        " at {compute_rate}); " + op.text,
        numbers={
            "layers": count,
            "moved": (op.traffic, "B"),
            "memory_rate": (vector.bandwidth, "B/s"),
            "work": (op.work, "FLOP"),
            "compute_rate": (r.vector_peak, "FLOP/s"),
            "entries": op.entries,
            "how": how,
            "unpacking": vector.unpacking[how],
            **op.numbers,
        },
        sources=(*r.sources["bandwidth"][:1], *r.sources["vector"], *r.sources["vector_peak"]),
    )


def engine_term(sequences: Number, r: Rates) -> Term:
    """Return the host's time per step: a + b x sequences."""
    return Term(
        "engine step",
        r.step_base + r.step_each * sequences,
        "s",
        law="a + b x sequences",
        text="{base} + {per_sequence} x {sequences} sequences, " + r.engine.id,
        numbers={"base": (r.step_base, "s"), "per_sequence": (r.step_each, "s"), "sequences": sequences},
        sources=r.sources["engine"],
    )

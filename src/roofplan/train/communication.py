"""How long the messages of a training step take: groups of ranks, laid out as Megatron does, over a machine's links.

Tensor ranks are neighbours, then context, then data, then pipeline: a group whose neighbours stand `stride` apart has
per_host / stride of its ranks in each host, and pod / stride in each pod of a tapered network. Ranks of equal place in their
hosts stand on one rail: rings and hops keep to it, and an exchange changes rails over the links inside the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from roofplan.laws import Number, collectives, larger, smaller, where
from roofplan.operations import Operation
from roofplan.records.hardware import Machine
from roofplan.records.training import Framework
from roofplan.terms import Cited
from roofplan.timing.network import ring_rate
from roofplan.timing.rates import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """What the collectives of a machine attain.

    Parameters
    ----------
    reduce, gather : achieved rates one way of a device inside a host, of an all-reduce and of the others [B/s]; zero where
        the rate follows from the ranks that share a bus.
    outside : achieved network rate one way of a device when all of its host send; infinite for one host [B/s].
    shared : share of it that reductions over data ranks attain where several ranks of a ring stand in one host [1].
    base : start-up of a collective [s].
    port : rate of a port over a device's part of its host's ports [1].
    hop : latency of the network [s].
    pod : devices that the network joins without taper, infinite for all of them; a group that pods do not divide is taken to
        leave as few as it can [1].
    taper : devices of a pod that share the rate of one beyond it [1].
    once_per_host : whether a token bound for several experts of a host is sent there once.
    network : figures of the links inside a host, as serving uses them.
    """

    machine: Machine
    reduce: float
    gather: float
    outside: float
    shared: float
    base: float
    port: float
    hop: float
    pod: float
    taper: float
    once_per_host: bool
    network: dict[str, Any]
    sources: tuple[Cited, ...]

    def local(self, ranks: Number, stride: Number) -> Number:
        """Return the ranks of a group that share a host [1]."""
        return smaller(ranks, larger(self.machine.per_host / stride, 1.0))

    def crossing(self, stride: Number) -> Number:
        """Return a device's part of its pod's links to others where only devices `stride` apart send [B/s]."""
        if self.pod == math.inf:
            return math.inf
        return self.outside * larger(self.pod / stride, 1.0) / self.taper

    def inside(self, rate: float, local: Number) -> Number:
        """Return the rate of `local` ranks that share a host [B/s]."""
        return rate or ring_rate(larger(local, 2.0), self.network)


def scopes(machine: Machine, framework: Framework) -> list[str]:
    """Return whose fitted constants hold, nearest first: this version here, its code here, its code anywhere, any framework here, any."""
    architecture, lineage = machine.device.architecture, framework.lineage
    return [f"{framework.id}/{architecture}", f"{lineage}/{architecture}", lineage, architecture, "any"]


UNUSED = 1e30
"""Rate of a link that a machine of one host never uses [B/s]."""

SMALL = 1e-9
"""Keeps a share of nothing finite [1]."""


def wires(r: Rates, framework: Framework) -> Wires:
    """Return what collectives attain on a machine, from data sheets and fitted shares."""
    machine, device, net = r.machine, r.machine.device, r.network
    keys = list(r.sources["network"][:1])
    chain = [f"{net['topology']}/{device.architecture}", str(net["topology"]), "any"]
    found = {name: r.fit.find("nccl", name, chain) for name in ("all_reduce", "gather", "base")}
    switched = net["topology"] == "switch"
    keys += found.values() if switched else list(r.sources["network"][1:])
    outside, hop, shared, pod, taper = UNUSED, 0.0, 1.0, math.inf, 1.0
    if machine.network is not None:
        fitted_for = scopes(machine, framework)
        network, mixed = (r.fit.find("nccl", name, fitted_for) for name in ("network", "shared"))
        shared = mixed.value
        outside = (machine.network_per_device or UNUSED) * network.value
        hop = machine.network.value("latency") or 0.0
        pod, taper = machine.network.value("pod") or math.inf, machine.network.value("taper") or 1.0
        pod = pod if pod < machine.count else math.inf
        stated = [q for name, q in machine.network.quantities.items() if name in {"bandwidth", "pod", "taper"}]
        keys += [*(q.cited for q in stated), network, mixed]
    return Wires(
        machine=machine,
        reduce=net["bandwidth"] * found["all_reduce"].value if switched else 0.0,
        gather=net["bandwidth"] * found["gather"].value if switched else 0.0,
        outside=outside,
        shared=shared,
        base=found["base"].value if switched else net["base"],
        port=max(1.0, machine.per_host / machine.ports),
        hop=hop,
        pod=pod,
        taper=taper,
        once_per_host="once-per-host" in framework.overlaps,
        network=net,
        sources=tuple(dict.fromkeys(keys)),
    )


def ring(message: Number, ranks: Number, stride: Number, w: Wires, *, reduce: bool, data: bool = False) -> Number:
    """Return the time of an all-reduce, or of an all-gather or reduce-scatter, of a tensor of `message` bytes [s]."""
    start, each = ring_line(ranks, stride, w, reduce=reduce, data=data)
    return start + each * message


def ring_line(ranks: Number, stride: Number, w: Wires, *, reduce: bool, data: bool = False) -> tuple[Number, Number]:
    """Return the start-up of a ring and its seconds per byte, both zero for a rank alone."""
    local = w.local(ranks, stride)
    outside = w.outside * where(local > 1, w.shared, 1.0) if data and w.shared != 1.0 else w.outside
    rate = _ring_rate(w.inside(w.reduce if reduce else w.gather, local), outside, local, ranks, stride, w)
    wide = larger(ranks, 1.0)
    if reduce:
        each = collectives.ring_all_reduce(1.0, wide, 0.0, 0.0, rate)
    else:
        each = collectives.gather_time(1.0, wide, 0.0, rate)
    return where(ranks > 1, w.base + _crossings(ranks, local, w), 0.0), each


def _ring_rate(inside: Number, outside: Number, local: Number, ranks: Number, stride: Number, w: Wires) -> Number:
    """Return the rate of each rank of a ring: of its links inside a host, its host's ports, and its pod's share beyond the pod [B/s]."""
    rate = collectives.shared_ring_rate(inside, outside, local, ranks)
    if w.pod == math.inf:
        return rate
    near = smaller(ranks, larger(w.pod / stride, 1.0))
    return collectives.shared_ring_rate(rate, outside / w.taper, near, ranks)


def exchange(
    message: Number,
    ranks: Number,
    stride: Number,
    w: Wires,
    copies: float = 0.0,
    groups: tuple[int, int] = (1, 1),
) -> Number:
    """Return the time of an all-to-all in which each rank sends `message` bytes: what leaves the host goes at the network's rate [s].

    Parameters
    ----------
    copies : equal copies in the message, of which a host gets one where the framework's kernels spread them there [1].
    groups : groups that the experts stand in, and those that the copies of a token go to [1].
    """
    local = w.local(ranks, stride)
    wide = larger(ranks, 1.0)
    rate = w.inside(w.gather, local)
    inside = collectives.all_to_all_time(message, larger(local, 1.0), w.base, rate)
    hosts = larger(wide / larger(local, 1.0), 1.0)
    away = message * (1.0 - 1.0 / hosts)
    if copies and w.once_per_host:
        away = away * collectives.hosts_visited(hosts, copies, *groups) / copies
    outside = collectives.transfer_time(away, w.base + w.hop, w.outside)
    if w.pod != math.inf:
        near = smaller(wide, larger(w.pod / stride, 1.0))
        beyond = away * (1.0 - near / wide) / larger(1.0 - larger(local, 1.0) / wide, SMALL)
        outside = larger(outside, collectives.transfer_time(beyond, w.base + w.hop, w.outside / w.taper))
    return where(ranks > 1, where(ranks > local, larger(inside, outside), inside), 0.0 * inside)


def hop_time(message: Number, stride: Number, w: Wires) -> Number:
    """Return the time of sending `message` bytes to the next pipeline stage, `stride` devices on, over the slowest link of the pipeline [s].

    A pipeline over several hosts leaves one somewhere, and all stages keep the pace of that hop. There only the devices of a
    stage send, each over a port of its own at best.
    """
    inside = collectives.transfer_time(message, w.base / 2.0, w.inside(w.gather, 2.0))
    network = w.machine.network
    if network is None:
        return inside
    alone = w.outside * smaller(w.machine.per_host / smaller(stride, float(w.machine.per_host)), w.port)
    outside = collectives.transfer_time(message, w.base / 2.0 + w.hop, smaller(alone, w.crossing(stride)))
    return larger(inside, outside)


def message_start(ranks: Number, stride: Number, w: Wires) -> Number:
    """Return the start-up of one large message and its passage once around a ring, by NCCL's latencies for large messages where they are known [s]."""
    local = smaller(w.local(ranks, stride), ranks)
    inside, network = w.machine.scale_up or w.machine.host_link, w.machine.network
    near = (inside.value("latency_simple") if inside else None) or 0.0
    far = (network.value("latency_simple") if network else None) or 0.0
    hosts = ranks / larger(local, 1.0)
    around = where(ranks > local, hosts * (far + (local - 1.0) * near), (ranks - 1.0) * near)
    return where(ranks > 1, w.base + around, 0.0)


def _crossings(ranks: Number, local: Number, w: Wires) -> Number:
    """Return the latency of a ring's passage over the network, once around [s]."""
    return where(ranks > local, ranks / local * w.hop, 0.0 * ranks)


def _passed(message: Number, ranks: Number, stride: Number, w: Wires) -> Number:
    """Return the time of passing `message` bytes from neighbour to neighbour in ranks - 1 rounds [s]."""
    local = w.local(ranks, stride)
    rate = _ring_rate(w.inside(w.gather, local), w.outside, local, ranks, stride, w)
    return (ranks - 1.0) * (w.base / 2.0) + _crossings(ranks, local, w) + collectives.transfer_time(message, 0.0, rate)


def time_of(op: Operation, kind: str, stride: Number, w: Wires) -> Number:
    """Return the seconds of a message of an operation's kind."""
    message, ranks = op.traffic, op.ranks
    if kind == "context_ring":
        return where(ranks > 1, _passed(message, ranks, stride, w), 0.0 * message)
    if kind in {"tensor_reduce", "tensor_gather"}:
        return ring(message, ranks, stride, w, reduce=kind == "tensor_reduce")
    if kind == "expert_exchange":
        return exchange(message, ranks, stride, w, float(op.rows), op.groups)
    return exchange(message, ranks, stride, w)

"""How long the messages of a training step take: groups of ranks, laid out as Megatron does, over a machine's links.

Tensor ranks are neighbours, then context, then data, then pipeline: a group whose neighbours stand `stride` apart has
per_host / stride of its ranks in each host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roofplan.laws import Number, collectives, larger, smaller, where
from roofplan.records.hardware import Machine
from roofplan.records.training import Framework
from roofplan.timing import constant, fit_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """What the collectives of a machine attain.

    Parameters
    ----------
    reduce, gather : achieved rates one way of a device inside a host, of an all-reduce and of the others [B/s].
    outside : achieved network rate one way of a device when all of its host send; infinite for one host [B/s].
    base : start-up of a collective [s].
    hop : latency of the network [s].
    """

    machine: Machine
    reduce: float
    gather: float
    outside: float
    base: float
    hop: float
    sources: tuple[str, ...]

    def local(self, ranks: Number, stride: Number) -> Number:
        """Return the ranks of a group that share a host [1]."""
        return smaller(ranks, larger(self.machine.per_host / stride, 1.0))


UNUSED = 1e30


def wires(machine: Machine, framework: Framework) -> Wires:
    """Return what collectives attain on a machine, from data sheets and fitted shares."""
    device, inside = machine.device, machine.scale_up
    keys: list[str] = []
    share, architecture = "bus", device.architecture
    if inside is not None:
        rate = device.value("link_bandwidth") or inside.bandwidth
        keys.append(inside.quantities["bandwidth"].source)
        share = inside.topology
    elif machine.host_link is not None:
        rate = machine.host_link.bandwidth / (2.0 if device.peer_to_peer == "none" else 1.0)
        keys.append(machine.host_link.quantities["bandwidth"].source)
        share = "staged" if device.peer_to_peer == "none" else "bus"
    else:
        rate = UNUSED
    found = {
        name: constant("nccl", name, [f"{share}/{architecture}", share, "any"])[0]
        for name in ("all_reduce", "gather", "base")
    }
    keys += [fit_key(item) for item in found.values()]
    outside, hop = UNUSED, 0.0
    if machine.network is not None:
        network = constant("nccl", "network", [framework.id, framework.name, "any"])[0]
        outside = (machine.network_per_device or UNUSED) * network.value
        hop = machine.network.value("latency") or 0.0
        keys += [machine.network.quantities["bandwidth"].source, fit_key(network)]
    return Wires(
        machine=machine,
        reduce=rate * found["all_reduce"].value,
        gather=rate * found["gather"].value,
        outside=outside,
        base=found["base"].value,
        hop=hop,
        sources=tuple(keys),
    )


def all_reduce(message: Number, ranks: Number, stride: Number, w: Wires) -> Number:
    """Return the time of an all-reduce of `message` bytes over a group [s]."""
    local = w.local(ranks, stride)
    rate = collectives.shared_ring_rate(w.reduce, w.outside, local, ranks)
    time = collectives.ring_all_reduce(message, larger(ranks, 1.0), w.base + _crossings(ranks, local, w), 0.0, rate)
    return where(ranks > 1, time, 0.0)


def gather(message: Number, ranks: Number, stride: Number, w: Wires) -> Number:
    """Return the time of an all-gather or reduce-scatter of a tensor of `message` bytes [s]."""
    local = w.local(ranks, stride)
    rate = collectives.shared_ring_rate(w.gather, w.outside, local, ranks)
    time = collectives.gather_time(message, larger(ranks, 1.0), w.base + _crossings(ranks, local, w), rate)
    return where(ranks > 1, time, 0.0)


def exchange(message: Number, ranks: Number, stride: Number, w: Wires) -> Number:
    """Return the time of an all-to-all in which each rank sends `message` bytes: what leaves the host goes at the network's rate [s]."""
    local = w.local(ranks, stride)
    wide = larger(ranks, 1.0)
    inside = collectives.all_to_all_time(message * local / wide, larger(local, 1.0), w.base, w.gather)
    outside = collectives.transfer_time(message * (1.0 - local / wide), w.base + w.hop, w.outside)
    return where(ranks > 1, where(ranks > local, larger(inside, outside), inside), 0.0)


def hop(message: Number, stride: Number, w: Wires) -> Number:
    """Return the time of sending `message` bytes to the next pipeline stage, `stride` devices on [s]."""
    inside = collectives.transfer_time(message, w.base / 2.0, w.gather)
    outside = collectives.transfer_time(message, w.base / 2.0 + w.hop, w.outside)
    return where(stride >= w.machine.per_host, outside, inside) if w.machine.hosts > 1 else inside


def _crossings(ranks: Number, local: Number, w: Wires) -> Number:
    """Return the latency of a ring's passage over the network, once around [s]."""
    return where(ranks > local, ranks / local * w.hop, 0.0)


def time_of(kind: str, message: Number, ranks: Number, stride: Number, w: Wires) -> Any:
    """Return the seconds of a message of an operation's kind."""
    if kind == "tensor_reduce":
        return all_reduce(message, ranks, stride, w)
    if kind == "tensor_gather":
        return gather(message, ranks, stride, w)
    return exchange(message, ranks, stride, w)

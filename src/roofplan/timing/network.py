"""How long messages between devices take: inside a host, and over the network."""

from __future__ import annotations

from typing import Any

from roofplan.errors import InputError
from roofplan.laws import Number, collectives, larger, smaller, where
from roofplan.records.calibration import Fit
from roofplan.records.hardware import Machine
from roofplan.terms import Cited

UNUSED = 1e30
"""Rate of a link that no plan of a one-device machine uses [B/s]."""


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

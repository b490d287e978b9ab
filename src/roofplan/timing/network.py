"""Communication times: messages between ranks, over the links inside a host and the network between hosts.

All messages use one set of link rates and latencies. A process group has a number of ranks and a `stride`, the distance
in devices between neighbours: tensor ranks are adjacent, context, data and pipeline ranks are further apart. Ranks with
the same index in their hosts share a rail. Rings and pipeline hops stay on their rail; an all-to-all changes rails over
the links inside the host.

A communication library uses the faster of two protocols: a `quick` one with low start-up that sends flags with the data
and reaches part of the link rate, and a `bulk` one with the full rate. An all-reduce may also read peers' memory
directly if the software has such kernels, or run in the switch if the switch can reduce.

References
----------
.. [1] NVIDIA, NCCL source, src/graph/tuning.cc: latencies and bandwidths of the protocols LL, LL128 and Simple.
.. [2] vLLM source, csrc/custom_all_reduce.cuh: one-shot and two-shot kernels over peers' memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from roofplan.laws import Number, collectives, larger, smaller, where
from roofplan.records.calibration import Constant, Fit
from roofplan.records.engine import Software
from roofplan.records.hardware import Link, Machine
from roofplan.records.terms import Cited, read_only

UNUSED = 1e30
"""Rate of a link that the machine does not have or use [B/s]."""

SMALL = 1e-9
"""Avoids division by zero [1]."""

PROTOCOLS = frozenset({"switch", "torus", "cube-mesh", "point-to-point"})
"""Topologies with separate constants for quick and bulk messages: fitted to published tables on switches, borrowed on
the others. Too little is published on buses and on AMD's mesh, so one protocol covers all sizes there."""

PEERS = frozenset({"switch", "full-mesh", "cube-mesh"})
"""Topologies on which kernels can read the memory of all peers directly."""

MOST_PEERS = 8.0
"""Largest number of ranks whose kernels read peers' memory: vLLM supports 2, 4, 6 or 8 [2]_ [1]."""

MESHES = frozenset({"full-mesh", "cube-mesh"})
"""Topologies on which a device has a separate link to each peer, so that more peers use more links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Achieved link rates and latencies between a machine's devices under given software.

    Parameters
    ----------
    topology : topology inside a host; ``bus`` if devices connect through the processor, ``staged`` if through host
        memory.
    rate, pair : rates of a device inside a host, one way, to all peers and to one peer: the data sheet's, over the slowdown that own runs
        tell [B/s].
    start, step : start-up of a quick message, and time per round [s].
    quick : share of the link rate that quick messages attain [1].
    bulk : start-up of a bulk message, infinite if one protocol covers all sizes [s].
    reduce, gather : shares of the link rate that bulk all-reduces and other bulk messages attain [1].
    shot, direct : start-up of an all-reduce that reads peers' memory, infinite if the software has none [s], and its
        share of the rate [1].
    adds : whether the switch reduces (SHARP, NVLS).
    bus : shares of the link rate that each of 2, 4 and 8 devices on one bus gets [1].
    staged : rate of the path through host memory, which all devices of a host share [B/s].
    outside : achieved network rate of a device, one way, when all devices of its host send [B/s].
    shared : share of it that data-parallel reductions attain when several ranks of a ring share a host [1].
    hop : latency of a network message [s].
    near, far : latencies of a bulk message inside a host and between hosts by the links' data, 0 where they tell none [s].
    port : rate of one port over a device's share of its host's ports [1].
    pod : devices that the network connects without taper, infinite if there is no taper. A group that does not fill
        whole pods is assumed to span as few as possible [1].
    taper : ratio of a device's rate inside its pod to that between pods [1].
    once_per_host : whether a token is sent once to a host that has several of its experts.
    rests_on : sources by name: data sheets of ``link`` and ``wire``, and the fitted constants.
    """

    machine: Machine
    topology: str
    rate: float
    pair: float
    start: float
    step: float
    quick: float
    bulk: float
    reduce: float
    gather: float
    shot: float
    direct: float
    adds: bool
    bus: tuple[float, float, float]
    staged: float
    outside: float
    shared: float
    hop: float
    near: float
    far: float
    port: float
    pod: float
    taper: float
    once_per_host: bool
    rests_on: Mapping[str, Cited]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rests_on", read_only(self.rests_on))

    @property
    def sources(self) -> tuple[Cited, ...]:
        """Sources of all rates and latencies."""
        return tuple(dict.fromkeys(self.rests_on.values()))

    def cites(self, *names: str) -> tuple[Cited, ...]:
        """Return the sources of the named numbers, without those that the machine does not use."""
        return tuple(dict.fromkeys(self.rests_on[name] for name in (*names, "slowdown") if name in self.rests_on))

    def quick_names(self, ranks: float) -> tuple[str, ...]:
        """Return the names of the numbers behind a quick message between `ranks` ranks of a host."""
        if self.topology == "bus":
            return ("link", "start", "step", f"bus_share.{8 if ranks > 4 else 4 if ranks > 2 else 2}")
        return ("link", "start", "step", "quick", "staged_path")

    @property
    def between_names(self) -> tuple[str, ...]:
        """Names of the numbers behind messages between hosts."""
        return ("wire", "network", "hop", "latency", *(("pod", "taper") if self.pod < math.inf else ()))

    def crossing(self, stride: Number) -> Number:
        """Return a device's share of its pod's uplinks when only devices `stride` apart send [B/s]."""
        if self.pod == math.inf:
            return math.inf
        return self.outside * larger(self.pod / stride, 1.0) / self.taper

    def link(self, ranks: Number, share: float) -> Number:
        """Return the one-way rate of each of `ranks` ranks in a host, at a share of the data-sheet rate [B/s].

        On a mesh, more ranks use more links. All ranks share a bus. Through host memory, each byte crosses a device's
        link twice, and the shared path once in and once out for each rank.
        """
        if self.topology in MESHES:
            return smaller(self.pair * larger(ranks - 1, SMALL), self.rate) * share
        if self.topology == "bus":
            two, four, eight = self.bus
            return self.rate * where(ranks > 4, eight, where(ranks > 2, four, two))
        if self.topology == "staged":
            return smaller(self.rate * share / 2.0, self.staged / (2.0 * ranks))
        return self.rate * share


class Line(NamedTuple):
    """Cost of a protocol: start-up [s], time per round [s] and rate [B/s]."""

    start: Number
    step: float
    rate: Number


def network(machine: Machine, software: Software, fit: Fit) -> Network:
    """Return the link rates and latencies between a machine's devices, from data sheets and fitted constants.

    Parameters
    ----------
    machine : devices and how they are joined.
    software : engine or framework.
    fit : the fitted constants.

    Returns
    -------
    Rates and latencies, with their sources.
    """
    device, inside = machine.device, machine.scale_up
    topology, rate, pair, rests_on = "none", UNUSED, UNUSED, dict[str, Cited]()
    if inside is not None:
        topology = inside.topology
        stated = device.quantities.get("link_bandwidth") or inside.quantities["bandwidth"]
        rate, rests_on["link"] = stated.value, stated.cited
        pair = device.value("link_bandwidth_pair") or inside.value("bandwidth_pair") or rate
    elif machine.host_link is not None:
        topology = "staged" if device.peer_to_peer == "none" else "bus"
        rate = pair = machine.host_link.bandwidth
        rests_on["link"] = machine.host_link.quantities["bandwidth"].cited
    chain = [device.id, f"{topology}/{device.architecture}", topology, "any"]

    def known(name: str, scopes: list[str] = chain) -> float:
        found: Constant = fit.find("message", name, scopes)
        rests_on[name] = found
        return found.value

    protocols, peers = topology in PROTOCOLS, topology in PEERS and device.vendor in software.kernels.peer_all_reduce
    outside, hop, shared, pod, taper = UNUSED, 0.0, 1.0, math.inf, 1.0
    start, step, quick = known("start"), known("step"), known("quick")
    bulk, reduce, gather = (known("bulk"), known("reduce"), known("gather")) if protocols else (math.inf, quick, quick)
    shot, direct = (known("shot"), known("direct")) if peers else (math.inf, quick)
    bus = (known("bus_share.2"), known("bus_share.4"), known("bus_share.8")) if topology == "bus" else (1.0, 1.0, 1.0)
    staged = known("staged_path") if topology == "staged" else UNUSED
    near, far = (_bulk_latency(link, rests_on) for link in (inside or machine.host_link, machine.network))
    if machine.network is not None:
        net = machine.network
        fitted_for = [*(scope for scope in software.scopes_on(device.architecture) if scope != "any"), net.id, "any"]
        outside = (machine.network_per_device or UNUSED) * known("network", fitted_for)
        shared = fit.find("message", "shared", fitted_for).value
        if shared < 1.0:
            known("shared", fitted_for)
        hop = (net.value("latency") or 0.0) + known("hop", [net.id, net.transport])
        pod, taper = net.value("pod") or math.inf, net.value("taper") or 1.0
        pod = pod if pod < machine.count else math.inf
        parts = {"bandwidth": "wire", "latency": "latency", "pod": "pod", "taper": "taper"}
        rests_on |= {parts[name]: q.cited for name, q in net.quantities.items() if name in parts}
    return Network(
        machine=machine,
        topology=topology,
        rate=rate,
        pair=pair,
        start=start,
        step=step,
        quick=quick,
        bulk=bulk,
        reduce=reduce,
        gather=gather,
        shot=shot,
        direct=direct,
        adds=inside is not None and inside.in_network_reduction,
        bus=bus,
        staged=staged,
        outside=outside,
        shared=shared,
        hop=hop,
        near=near,
        far=far,
        port=max(1.0, machine.per_host / machine.ports),
        pod=pod,
        taper=taper,
        once_per_host=software.once_per_host,
        rests_on=rests_on,
    )


def _bulk_latency(link: Link | None, rests_on: dict[str, Cited]) -> float:
    """Return the latency of a bulk message over a link, 0 where its data tell none, and name its source [s]."""
    stated = None if link is None else link.quantities.get("latency_simple")
    if stated is None or link is None:
        return 0.0
    rests_on[f"latency over {link.id}"] = stated.cited
    return stated.value


def slowed_network(net: Network, slowdown: Constant) -> Network:
    """Return the network with message times scaled by a factor, capped at data-sheet rates.

    Parameters
    ----------
    net : rates and latencies as fitted.
    slowdown : the factor [1].

    Returns
    -------
    The network, which cites the factor.
    """
    by = slowdown.value
    rates = {name: getattr(net, name) / max(by, 1.0) for name in ("rate", "pair", "staged", "outside")}
    times = {name: getattr(net, name) * by for name in ("start", "step", "bulk", "shot", "hop", "near", "far")}
    return replace(net, **rates, **times, rests_on={**net.rests_on, "slowdown": slowdown})


# Inside a host -----------------------------------------------------------------------------------


def lines(ranks: Number, net: Network, share: float) -> tuple[Line, ...]:
    """Return the cost of each protocol of a communication library inside a host.

    Parameters
    ----------
    ranks : ranks inside a host, float or array [1].
    net : link rates and latencies of the machine.
    share : share of the link rate that bulk messages attain [1].

    Returns
    -------
    Start-up [s], time per round [s] and rate [B/s] of each protocol, the quick one first.
    """
    quick = Line(net.start, net.step, net.link(ranks, net.quick))
    return (quick, Line(net.bulk, 0.0, net.link(ranks, share))) if net.bulk < math.inf else (quick,)


def reduce_ways(message: Number, ranks: Number, net: Network, *, alone: bool = True) -> dict[str, tuple[Number, Line]]:
    """Return the time of each intra-host all-reduce algorithm that the links and software support, by name.

    Engines' own kernels, which read the memory of peers, need all ranks of a group in one host; a group over several hosts is left
    to the communication library, inside its hosts too.

    Parameters
    ----------
    message : bytes of the tensor on one rank, float or array [B].
    ranks : ranks inside a host, float or array [1].
    net : link rates and latencies of the machine.
    alone : whether the group has no ranks in other hosts.

    Returns
    -------
    Time [s] and protocol of each algorithm, by name.
    """
    ways: dict[str, tuple[Number, Line]] = {}
    for name, line in zip(("ring", "bulk ring"), lines(ranks, net, net.reduce), strict=False):
        ways[name] = collectives.ring_all_reduce(message, ranks, *line), line
    if net.adds:
        line = Line(net.bulk, 0.0, net.link(ranks, net.reduce))
        ways["in-network"] = collectives.in_network_all_reduce(message, ranks, line.start, line.rate), line
    if alone and net.shot < math.inf:
        wait = where(ranks > MOST_PEERS, math.inf, net.shot)
        line = Line(wait, 0.0, net.link(ranks, net.direct))
        ways["one-shot"] = collectives.one_shot_all_reduce(message, ranks, line.start, line.rate), line
        ways["two-shot"] = collectives.two_shot_all_reduce(message, ranks, line.start, line.rate), line
    return ways


def quickest(times: list[Number]) -> Number:
    """Return the least of several times, element by element [s].

    Parameters
    ----------
    times : at least one time, floats or arrays [s].

    Returns
    -------
    The least time.
    """
    best, *others = times
    for other in others:
        best = smaller(best, other)
    return best


# Inside and between hosts ------------------------------------------------------------------------


class Ranks:
    """A process group whose ranks are `stride` devices apart; ring costs are cached.

    Parameters
    ----------
    ranks : number of ranks [1].
    stride : devices from one rank to the next [1].
    """

    __slots__ = ("_rings", "inside", "local", "net", "ranks", "stride")

    def __init__(self, ranks: Number, net: Network, stride: Number = 1.0) -> None:
        self.ranks, self.net, self.stride = ranks, net, stride
        self.local = smaller(ranks, larger(net.machine.per_host / stride, 1.0))
        """Ranks of the group in one host [1]."""
        self.inside = net.machine.hosts == 1 or bool(np.all(ranks <= self.local))
        """Whether the whole group is in one host."""
        self._rings: dict[tuple[bool, bool], list[tuple[Number, Number]]] = {}

    def rings(self, *, reduce: bool, data: bool = False) -> list[tuple[Number, Number]]:
        """Return (latency [s], time per byte [s/B]) of a ring over all ranks for each protocol, the bulk protocol last.

        Both are zero for a single rank.

        Parameters
        ----------
        reduce : whether this is an all-reduce, in which every byte passes the ring twice.
        data : whether this is a data-parallel ring. Several rings share a host's ports; only the bulk protocol applies.
        """
        found = self._rings.get((reduce, data))
        if found is None:
            found = self._rings[reduce, data] = _rings(self, reduce=reduce, data=data)
        return found


def all_reduce(message: Number, group: Ranks) -> Number:
    """Return the time of an all-reduce: hierarchical (inside hosts, then between them), or one ring over all ranks.

    Parameters
    ----------
    message : bytes of the tensor on one rank, float or array [B].
    group : the process group.

    Returns
    -------
    Time of the fastest algorithm, float or array [s].
    """
    net, ranks = group.net, group.ranks
    inner = larger(group.local, 1.0)

    def inside(*, alone: bool) -> Number:
        ways = reduce_ways(message, larger(inner, 2.0), net, alone=alone)
        return where(inner > 1, quickest([time for time, _ in ways.values()]), 0.0)

    if group.inside:
        return inside(alone=True)
    outer = ranks / inner
    ways = between_hosts(message, inner, larger(outer, 1.0), group.stride, net)
    whole = inside(alone=False) + quickest([time for time, _ in ways.values()])
    return where(outer > 1, smaller(whole, _ring_time(message, group, reduce=True)), inside(alone=True))


def between_hosts(
    message: Number, inner: Number, outer: Number, stride: Number, net: Network
) -> dict[str, tuple[Number, Line]]:
    """Return the time of each inter-host all-reduce algorithm, by name.

    Parameters
    ----------
    message : bytes of the tensor on one rank, float or array [B].
    inner : ranks in a host, each of which sends its share [1].
    outer : number of hosts [1].
    stride : devices from one rank to the next [1].
    net : link rates and latencies of the machine.

    Returns
    -------
    Time [s] and protocol of each algorithm, by name.
    """
    share = message / inner
    line = Line(0.0, net.hop, _beyond_pods(net.outside, outer, inner, stride, net))
    return {
        "ring": (collectives.ring_all_reduce(share, outer, *line), line),
        "tree": (collectives.tree_all_reduce(share, outer, *line), line),
    }


def _beyond_pods(rate: Number, outer: Number, inner: Number, stride: Number, net: Network) -> Number:
    """Return the rate of a rank's rail, limited by the pod's uplinks if the group spans pods [B/s]."""
    if net.pod == math.inf:
        return rate
    return where(outer * inner * stride > net.pod, smaller(rate, net.crossing(inner * stride)), rate)


def gather(message: Number, group: Ranks) -> Number:
    """Return the time of an all-gather or reduce-scatter.

    Parameters
    ----------
    message : bytes of the tensor on one rank, float or array [B].
    group : the process group.

    Returns
    -------
    Time of the faster protocol, float or array [s].
    """
    net, ranks = group.net, group.ranks
    inner = larger(group.local, 2.0)
    times = [collectives.gather_time(message, inner, *line) for line in lines(inner, net, net.gather)]
    inside = where(ranks > 1, quickest(times), 0.0)
    if group.inside:
        return inside
    return where(ranks > group.local, _ring_time(message, group, reduce=False), inside)


def _ring_time(message: Number, group: Ranks, *, reduce: bool) -> Number:
    """Return the time of a message around one ring over all ranks, by the faster protocol [s]."""
    return quickest([start + each * message for start, each in group.rings(reduce=reduce)])


def _rings(group: Ranks, *, reduce: bool, data: bool) -> list[tuple[Number, Number]]:
    net, ranks, local = group.net, group.ranks, group.local
    outside = net.outside * where(local > 1, net.shared, 1.0) if data else net.outside
    pair, passes = larger(local, 2.0), 2.0 if reduce else 1.0
    wide = larger(ranks, 1.0)
    volume = collectives.ring_volume_factor(wide) if reduce else (wide - 1.0) / wide
    crossings, narrow = _crossings(group), _narrowest(outside, group)
    protocols = lines(pair, net, net.reduce if reduce else net.gather)
    protocols = protocols[-1:] if data else protocols
    found = []
    for line in protocols:
        rate = line.rate
        if reduce and net.adds and line is protocols[-1]:  # data reduced in the switch skips the ring
            rate = rate * larger(1.0, collectives.ring_volume_factor(pair) / ((pair + 1.0) / pair))
        waits = passes * ((wide - 1.0) * line.step + crossings)
        found.append((where(ranks > 1, line.start + waits, 0.0), volume / smaller(rate, narrow)))
    return found


def _narrowest(outside: Number, group: Ranks) -> Number:
    """Return the rate of each rank of a ring, limited by host ports and pod uplinks; infinite inside a host [B/s]."""
    net, ranks = group.net, group.ranks
    rate = collectives.shared_ring_rate(math.inf, outside, group.local, ranks)
    if net.pod == math.inf:
        return rate
    near = smaller(ranks, larger(net.pod / group.stride, 1.0))
    return collectives.shared_ring_rate(rate, outside / net.taper, near, ranks)


def _crossings(group: Ranks) -> Number:
    """Return the network latency of one passage around a ring [s]."""
    return where(group.ranks > group.local, group.ranks / group.local * group.net.hop, 0.0 * group.ranks)


def exchange(message: Number, group: Ranks, copies: float = 0.0, groups: tuple[int, int] = (1, 1)) -> Number:
    """Return the time of an all-to-all in which each rank sends `message` bytes, partly over the network [s].

    Parameters
    ----------
    copies : equal copies of a token in the message; a host receives one if the software's kernels forward it inside the
        host [1].
    groups : number of expert groups, and how many of them one token may use [1].
    """
    net, ranks, local = group.net, group.ranks, group.local
    wide, inner = larger(ranks, 1.0), larger(local, 2.0)
    times = [collectives.gather_time(message, inner, *line) for line in lines(inner, net, net.gather)]
    inside = where(local > 1, quickest(times), 0.0)
    if group.inside:
        return where(ranks > 1, inside, 0.0 * inside)
    hosts = larger(wide / larger(local, 1.0), 1.0)
    away = message * (1.0 - 1.0 / hosts)
    if copies and net.once_per_host:
        away = away * collectives.hosts_visited(hosts, copies, *groups) / copies
    wait = net.start + net.hop
    outside = collectives.transfer_time(away, wait, net.outside)
    if net.pod != math.inf:
        pod = smaller(wide, larger(net.pod / group.stride, 1.0))
        beyond = away * (1.0 - pod / wide) / larger(1.0 - larger(local, 1.0) / wide, SMALL)
        outside = larger(outside, collectives.transfer_time(beyond, wait, net.outside / net.taper))
    return where(ranks > 1, where(ranks > local, larger(inside, outside), inside), 0.0 * inside)


def passed_on(message: Number, group: Ranks) -> Number:
    """Return the time to pass `message` bytes from neighbour to neighbour in ranks - 1 rounds [s]."""
    net = group.net
    line = lines(larger(group.local, 2.0), net, net.gather)[-1]
    rate = smaller(line.rate, _narrowest(net.outside, group))
    rounds = (group.ranks - 1.0) * (net.start + net.step)
    return rounds + _crossings(group) + collectives.transfer_time(message, 0.0, rate)


def message_start(group: Ranks) -> Number:
    """Return the start-up of one large message plus the latency once around a ring.

    Parameters
    ----------
    group : the process group.

    Returns
    -------
    Time, float or array [s].
    """
    net, ranks, local = group.net, group.ranks, group.local
    hosts = ranks / larger(local, 1.0)
    around = where(ranks > local, hosts * (net.far + (local - 1.0) * net.near), (ranks - 1.0) * net.near)
    start = net.bulk if net.bulk < math.inf else net.start
    return where(ranks > 1, start + around, 0.0)


# Operations that are messages --------------------------------------------------------------------

MESSAGES = frozenset({"all_reduce", "gather", "exchange", "ring"})
"""Kinds of operations that are messages between ranks."""


def message_time(kind: str, message: Number, group: Ranks, **spread: Any) -> Number:
    """Return the time of a message of a given kind.

    Parameters
    ----------
    kind : ``all_reduce``, ``gather``, ``ring`` or ``exchange``.
    message : bytes of the tensor on one rank, float or array [B].
    group : the process group.
    spread : for an exchange, the arguments `copies` and `groups` of `exchange`.

    Returns
    -------
    Time, float or array [s].
    """
    if kind == "all_reduce":
        return all_reduce(message, group)
    if kind == "gather":
        return gather(message, group)
    if kind == "ring":
        return where(group.ranks > 1, passed_on(message, group), 0.0 * message)
    return exchange(message, group, **spread)

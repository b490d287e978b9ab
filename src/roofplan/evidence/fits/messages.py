"""Fit communication constants to published tables of collectives: start-up times, step times and shares of the link rate.

On switched NVLink the fits distinguish small and bulk messages, gathers and reductions, and kernels that read peers' memory, per
architecture. For PCIe and AMD's mesh too few rows are published, so one line holds for all sizes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roofplan import catalogue
from roofplan.errors import unwrap
from roofplan.evidence.fits.fitting import Row, entry, merged, nearest, spread
from roofplan.laws import collectives
from roofplan.records.calibration import Constant
from roofplan.records.hardware import Accelerator

ADDED, BY_PEERS, MOVED = "all_reduce", "custom_all_reduce", ("all_gather", "reduce_scatter", "alltoall")
"""Operations of the tables: reductions by a library, reductions by kernels that read peers' memory, and all others."""

SOURCE = "NCCL and custom all-reduce tables: aiconfigurator-core 0.12.0 (PyPI), ml-engineering"

UNTIMED = 2**26
"""Message size above which launch time is negligible, so that it does not matter whether it was timed [B]."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A published collective inside a host."""

    device: Accelerator
    op: str
    ranks: int
    size: float
    seconds: float

    @property
    def rate(self) -> float:
        """One-way link rate of a device by its data sheet [B/s]."""
        return unwrap(self.device.value("link_bandwidth"))

    @property
    def adds(self) -> bool:
        """Whether the switch supports in-network reduction."""
        return catalogue.link(self.device.scale_up or "").in_network_reduction


def timed(rows: Sequence[Row]) -> list[Timed]:
    """Return the published collectives within a host; of repeated rows the fastest, as a library would choose."""
    best: dict[tuple[str, str, int, float], float] = {}
    for row in rows:
        known = row["kernel"] == "collective" and row["op"] in {ADDED, BY_PEERS, *MOVED}
        if known and row["latency_us"] and row["message_bytes"] and _like_a_graph(row):
            key = (row["device"], row["op"], int(row["count"]), float(row["message_bytes"]))
            best[key] = min(best.get(key, math.inf), float(row["latency_us"]) * 1e-6)
    return [
        Timed(catalogue.accelerator(device), op, count, size, seconds)
        for (device, op, count, size), seconds in best.items()
        if count <= HOST
    ]


HOST = 8
"""Devices per host in the tables [1]."""


def _like_a_graph(row: Row) -> bool:
    """Return whether a row was timed back to back, as in a captured graph; nccl-tests includes launches at small sizes."""
    framework = row["framework"]
    graphs = framework.startswith(("SGLang", "NCCL 2.2")) and "all_red" not in framework
    return graphs or float(row["message_bytes"]) >= UNTIMED


LIBRARY = (
    ("start", "s", 6e-6),
    ("step", "s", 1e-6),
    ("quick", "1", 0.4),
    ("reduce", "1", 0.65),
    ("gather", "1", 0.7),
    ("bulk", "s", 3e-5),
)
READ = (("shot", "s", 5e-6), ("direct", "1", 0.6))
"""Fitted constants of library collectives and of kernels that read peers' memory: name, unit, start of the search."""


def library_time(p: Sequence[float], one: Timed) -> float:
    """Return the time of a library collective within a host: the fastest protocol, or in-network reduction where available [s]."""
    start, step, quick, reduce, gather, bulk = p
    rate, n = one.rate, one.ranks
    if one.op != ADDED:
        return float(
            min(
                collectives.gather_time(one.size, n, start, step, rate * quick),
                collectives.gather_time(one.size, n, bulk, 0.0, rate * gather),
            )
        )
    ways = [
        collectives.ring_all_reduce(one.size, n, start, step, rate * quick),
        collectives.ring_all_reduce(one.size, n, bulk, 0.0, rate * reduce),
    ]
    if one.adds:
        ways.append(collectives.in_network_all_reduce(one.size, n, bulk, rate * reduce))
    return float(min(ways))


def peer_time(p: Sequence[float], one: Timed) -> float:
    """Return the time of an all-reduce that reads peers' memory, the faster of one-shot and two-shot [s]."""
    shot, direct = p
    ways = (collectives.one_shot_all_reduce, collectives.two_shot_all_reduce)
    return float(min(way(one.size, one.ranks, shot, one.rate * direct) for way in ways))


Law = Callable[[Sequence[float], Timed], float]
"""Time of a collective given its constants [s]."""


def _searched(law: Law, names: Sequence[tuple[str, str, float]], rows: Sequence[Timed]) -> tuple[list[float], float]:
    """Return the constants that fit the rows best, shares capped at one, and the spread of the residuals."""
    units = [unit for _, unit, _ in names]

    def held(p: Sequence[float]) -> list[float]:
        return [min(x, 1.0) if unit == "1" else x for x, unit in zip(p, units, strict=True)]

    def errors(p: Sequence[float]) -> np.ndarray:
        here = held(p)
        return np.log([law(here, one) / one.seconds for one in rows])

    found = held(nearest(errors, [start for _, _, start in names]))
    return found, spread(law(found, one) / one.seconds for one in rows)


def _switched(rows: Sequence[Timed]) -> list[Constant]:
    """Return the constants of switched NVLink: per architecture, and their median for other architectures.

    Few sizes separate the start-up of bulk messages from their share of the link rate, so all architectures get the median start-up.
    """
    here = [one for one in rows if (link := one.device.scale_up or "").startswith("nvlink") and "bridge" not in link]
    library, peers = ([one for one in here if (one.op == BY_PEERS) is peer] for peer in (False, True))
    bulk = float(np.median([values[-1] for values, _ in _by_architecture(library_time, LIBRARY, library).values()]))

    def at_common_bulk(p: Sequence[float], one: Timed) -> float:
        return library_time((*p, bulk), one)

    out = []
    for law, names, mine in ((at_common_bulk, LIBRARY[:-1], library), (peer_time, READ, peers)):
        found = _by_architecture(law, names, mine)
        for architecture, (values, off) in found.items():
            count = sum(one.device.architecture == architecture for one in mine)
            for (name, unit, _), value in zip(names, values, strict=True):
                out.append(entry("message", name, f"switch/{architecture}", value, unit, off, count, SOURCE))
        middle = np.median(np.array([values for values, _ in found.values()]), axis=0)
        off = spread(law(middle, one) / one.seconds for one in mine)
        note = "median of the architectures"
        for (name, unit, _), value in zip(names, middle, strict=True):
            out.append(entry("message", name, "any", float(value), unit, off, len(mine), SOURCE, note))
        if law is at_common_bulk:
            scopes = (*(f"switch/{architecture}" for architecture in found), "any")
            out += [entry("message", "bulk", scope, bulk, "s", off, len(mine), SOURCE, note) for scope in scopes]
    return out


def _by_architecture(
    law: Law, names: Sequence[tuple[str, str, float]], rows: Sequence[Timed]
) -> dict[str, tuple[list[float], float]]:
    """Return the constants of each architecture, and the spread of its residuals."""
    known = sorted({one.device.architecture for one in rows})
    return {name: _searched(law, names, [one for one in rows if one.device.architecture == name]) for name in known}


COLLAPSED = 0.3
"""Share of the rate of two cards below which a larger group is taken to lack peer-to-peer access [1]."""


def _buses(rows: Sequence[Timed]) -> list[Constant]:
    """Return start-up and step time of rings on PCIe over all cards, and the share of its link rate that a card gets, by ranks."""
    here = [one for one in rows if one.device.scale_up is None and one.op in {ADDED, BY_PEERS}]
    best: dict[tuple[str, int, float], Timed] = {}
    for one in here:
        key = (one.device.id, one.ranks, one.size)
        best[key] = min(best.get(key, one), one, key=lambda x: x.seconds)
    rates: dict[str, dict[int, float]] = defaultdict(dict)
    for one in best.values():
        if one.size >= LARGE_ON_A_BUS:
            seen = float(collectives.ring_volume_factor(one.ranks)) * one.size / one.seconds
            rates[one.device.id][one.ranks] = max(rates[one.device.id].get(one.ranks, seen), seen)

    def law(p: Sequence[float], one: Timed) -> float:
        start, step = p
        return float(collectives.ring_all_reduce(one.size, one.ranks, start, step, rates[one.device.id][one.ranks]))

    (start, step), off = _searched(law, (("start", "s", 5e-6), ("step", "s", 2e-6)), list(best.values()))
    source, count = "NCCL tables: aiconfigurator-core 0.12.0 (PyPI), L40S and RTX PRO 6000 servers", len(best)
    measured = sorted({f"bus/{one.device.architecture}" for one in best.values()})
    out = []
    for name, value in (("start", start), ("step", step)):
        out += _measured_and_borrowed("message", name, measured, ("bus", "staged"), value, "s", off, count, source)
    shares: dict[int, list[float]] = defaultdict(list)
    for device, by_ranks in rates.items():
        wire = catalogue.link(catalogue.accelerator(device).host_link or "").bandwidth
        for ranks, rate in by_ranks.items():
            if rate >= COLLAPSED * by_ranks[2]:
                shares[ranks].append(rate / wire)
    note = (
        "share of a card's link; a server whose rate collapses has no peers across its processors, and counts as staged"
    )
    for ranks, found in sorted(shares.items()):
        wide, middle = max(spread(found), 0.2), float(np.median(found))
        name = f"bus_share.{ranks}"
        out += _measured_and_borrowed("message", name, measured, ("bus",), middle, "1", wide, len(found), source, note)
    pair, two = shares[2], float(np.mean(shares[2]))
    out += _measured_and_borrowed(
        "message", "quick", measured, ("bus",), two, "1", spread(pair), len(pair), source, "two cards"
    )
    borrowed = "borrowed from cards with peer-to-peer"
    out.append(entry("message", "quick", "staged", two, "1", 0.3, 0, borrowed, kind="guess"))
    # 8 ranks of a ring move 2 n bytes over the host path per byte of bus bandwidth
    path = BETTER_HOSTS * rates["l40s"][HOST] * 2 * HOST
    why = "four times what eight L40S across two processors reach; no measurement of cards without peer-to-peer"
    out.append(entry("message", "staged_path", "staged", path, "B/s", 0.5, 0, why, kind="guess"))
    return out


BETTER_HOSTS = 4.0
"""Rate of a path through host memory over that of eight L40S on two processors, the slowest measured [1]."""


def _measured_and_borrowed(
    law: str, name: str, measured: Sequence[str], lent: Sequence[str], *numbers: Any
) -> list[Constant]:
    """Return a constant for the scopes in which it was measured, and for those that borrow it."""
    return [
        *(entry(law, name, scope, *numbers) for scope in measured),
        *(replace(entry(law, name, scope, *numbers), basis="any") for scope in lent),
    ]


LARGE_ON_A_BUS = 2**25
"""Message size above which a bus reaches its full rate [B]."""


def _mesh() -> list[Constant]:
    """Return the link shares that AMD's mesh reaches, 312.9 of 448 GB/s on eight and 47.7 of 64 on two, and borrowed start-ups."""
    ratios = [312.912 / 448.0, 47.671 / 64.0]
    source = "RCCL all_reduce_bench, 4 GiB, ml-engineering 2026-08-22"
    share, off = float(np.mean(ratios)), spread(ratios)
    measured = [f"full-mesh/{catalogue.accelerator(MESHED).architecture}"]
    shares = [
        one
        for name in ("quick", "direct")
        for one in _measured_and_borrowed("message", name, measured, ("full-mesh",), share, "1", off, 2, source)
    ]
    return [*shares, *(entry("message", *words, kind="guess") for words in BORROWED)]


MESHED = "mi300x"
"""Device whose mesh was measured."""

BORROWED = (
    ("start", "full-mesh", 1.2e-5, "s", 0.3, 0, "about that of NCCL's ring on a switch"),
    ("shot", "full-mesh", 8e-6, "s", 0.3, 0, "about that of kernels on a switch, once more for two links in turn"),
)
"""Start-up times on AMD's mesh, for which none is published: name, scope, time, unit, spread, rows and reason."""

BENCHMARKED = 50e9
"""One-way network rate per device in the published all-reduce over several hosts, 400 Gb/s [B/s]."""

LARGEST = 2**28
"""Message size above which a collective over hosts reaches its full rate [B]."""


def _networks(rows: Sequence[Row]) -> list[Constant]:
    """Return the share of the network rate that rings over several hosts attain, and the latencies of messages."""
    shares = [
        float(collectives.ring_volume_factor(int(row["count"])))
        * float(row["message_bytes"])
        / (float(row["latency_us"]) * 1e-6)
        / (BENCHMARKED * HOST)
        for row in rows
        if row["kernel"] == "collective"
        and row["op"] == ADDED
        and row["latency_us"]
        and float(row["message_bytes"] or 0.0) >= LARGEST
        and int(row["count"]) > HOST
    ]
    share = min(float(np.median(shares)), 1.0)
    note = "all-reduce over four hosts of eight B200, 400 Gb/s for each"
    evenly = "rings of several ranks in a host share its ports evenly"
    return [
        entry("message", "network", "any", share, "1", max(spread(shares), NETWORKS), len(shares), SOURCE, note),
        entry("message", "shared", "any", 1.0, "1", 0.2, 0, evenly, kind="guess"),
        *(entry("message", "hop", *words, kind="guess") for words in HOPS),
    ]


NETWORKS = 0.1
"""Spread of that share between networks: from 73% of EFA to 97% of InfiniBand (ml-engineering, ib_write_bw and NCCL) [1]."""

HOPS = (
    ("tcp", 3e-5, "s", 0.5, 0, "kernel network stack and NCCL socket proxy, per message"),
    ("rdma", 5e-6, "s", 0.4, 0, "NCCL tuning constants for LL over a network, 2.7 to 5 us"),
)
"""Latency of a message beyond that of its link: transport, time, unit, spread, rows and reason."""


def fit_messages(rows: Sequence[Row]) -> list[Constant]:
    """Fit the constants of messages: within hosts on switches, buses and meshes, and between hosts."""
    known = timed(rows)
    return merged([*_switched(known), *_buses(known), *_mesh(), *_networks(rows)])

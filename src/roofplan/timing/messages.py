"""Messages between ranks as Terms: the formula of the fastest algorithm, its numbers and sources."""

from __future__ import annotations

import math
from collections.abc import Mapping

from roofplan.laws import Number
from roofplan.laws.collectives import gather_time
from roofplan.operations.table import Operation
from roofplan.records.terms import Numbers, Term, total
from roofplan.timing.network import Line, Ranks, between_hosts, lines, reduce_ways

RING = "{start} + 2 x ({group} - 1) x {step} + 2 x ({group} - 1) / {group} x {size} / {rate}"
"""Formula of a ring all-reduce."""

WAYS = {
    "ring": RING,
    "bulk ring": RING,
    "tree": "{start} + 2 x log2({group}) x {step} + 2 x {size} / {rate}",
    "one-shot": "{start} + ({group} - 1) x {size} / {rate}",
    "two-shot": "2 x {start} + 2 x ({group} - 1) / {group} x {size} / {rate}",
    "in-network": "{start} + ({group} + 1) / {group} x {size} / {rate}",
}
"""Formula of each all-reduce algorithm."""

GATHER = "{start} + ({group} - 1) x {step} + ({group} - 1) / {group} x {size} / {rate}"
"""Formula of an all-gather or all-to-all inside a host."""

ADDED, SHOTS = ("link", "bulk", "reduce"), ("link", "shot", "direct")
RESTS_ON = {"bulk ring": ADDED, "in-network": ADDED, "one-shot": SHOTS, "two-shot": SHOTS}
"""Network constants behind each intra-host all-reduce algorithm, other than the low-latency ring."""

LAWS = {"bulk ring": "ring"}
"""Law names that differ from the algorithm's name."""


def _line_numbers(line: Line, ranks: float, message: float) -> Numbers:
    """Return a protocol's numbers by their names in a formula."""
    wire = {"group": ranks, "size": (message, "B"), "rate": (float(line.rate), "B/s")}
    return {"start": (float(line.start), "s"), "step": (float(line.step), "s"), **wire}


def message_term(op: Operation, seconds: Number, group: Ranks, often: str, repeats: Mapping[str, float]) -> Term:
    """Return the time of a message that is repeated, with the formula of the fastest algorithm where one layout is timed.

    Parameters
    ----------
    op : message of one rank.
    seconds : time of one message, float or array [s].
    group : its process group.
    often : how often it is sent, as text with the names of `repeats`, such as ``{layers}``.
    repeats : the factors of that number by name [1].

    Returns
    -------
    Time of all of them [s].
    """
    count = math.prod(repeats.values())
    scalar = type(op.traffic) is float and type(op.ranks) is float
    if op.kind == "all_reduce" and scalar:
        return _all_reduce_term(op, group, often, repeats)
    net = group.net
    if op.kind in INSIDE and scalar and group.inside:
        ways = [(float(gather_time(op.traffic, op.ranks, *line)), line) for line in lines(op.ranks, net, net.gather)]
        _, line = min(ways, key=lambda way: way[0])
        quick = line.start == net.start
        return Term(
            op.name,
            seconds * count,
            "s",
            law="collectives.gather_time",
            text=f"{often} x ({GATHER}); " + op.text,
            numbers={**repeats, **_line_numbers(line, op.ranks, op.traffic), **op.numbers},
            sources=net.cites(*(net.quick_names(op.ranks) if quick else ("link", "bulk", "gather"))),
        )
    between = () if group.inside else net.between_names
    return Term(
        op.name,
        seconds * count,
        "s",
        law=LAW_OF.get(op.kind, "collectives.gather_time"),
        text=often + " x {kind} of {size} over {group} ranks; " + op.text,
        numbers={**repeats, "group": op.ranks, "size": (op.traffic, "B"), "kind": op.kind, **op.numbers},
        sources=net.cites("link", "start", "step", "quick", "bulk", "gather", *between),
    )


INSIDE = frozenset({"gather", "exchange"})
"""Kinds of messages that take the time of an all-gather inside a host."""

LAW_OF = {"ring": "collectives.transfer_time", "all_reduce": "collectives.ring_all_reduce"}
"""Law of each kind of message where no formula is shown, all-gathers' for others."""


def _all_reduce_term(op: Operation, group: Ranks, often: str, repeats: Mapping[str, float]) -> Term:
    """Return the time of an all-reduce by its fastest algorithm: hierarchical, or one ring over all ranks."""
    net, machine, count = group.net, group.net.machine, math.prod(repeats.values())
    inner = float(group.local)
    outer, parts = float(op.ranks) / inner, []
    stages = []
    if inner > 1.0:
        stages.append(("in a host", inner, op.traffic, reduce_ways(op.traffic, inner, net, alone=group.inside)))
    if outer > 1.0:
        ways = between_hosts(op.traffic, inner, outer, group.stride, net)
        stages.append(("between hosts", outer, op.traffic / inner, ways))
    for where_to, ranks, message, ways in stages:
        way = min(ways, key=lambda name: float(ways[name][0]))
        seconds, line = ways[way]
        over = f" over {machine.network.id}" if where_to == "between hosts" and machine.network else ""
        parts.append(
            Term(
                f"{op.name}, {where_to}",
                seconds * count,
                "s",
                law=f"collectives.{LAWS.get(way, way).replace('-', '_')}_all_reduce",
                text=f"{often} x ({WAYS[way]}); {way}{over}, {op.text}",
                numbers={**repeats, **_line_numbers(line, ranks, message), **op.numbers},
                sources=net.cites(*(net.between_names if over else RESTS_ON.get(way, net.quick_names(ranks)))),
            )
        )
    if outer > 1.0:
        start, each = min(group.rings(reduce=True), key=lambda line: float(line[0] + line[1] * op.traffic))
        whole = (start + each * op.traffic) * count
        if whole < sum(part.value for part in parts):
            wire = {"start": (float(start), "s"), "size": (op.traffic, "B"), "rate": (float(1.0 / each), "B/s")}
            return Term(
                op.name,
                whole,
                "s",
                law="collectives.ring_all_reduce",
                text=often + " x ({start} + {size} / {rate}); one ring over all hosts, " + op.text,
                numbers={**repeats, **wire, **op.numbers},
                sources=net.cites("link", "bulk", "reduce", *net.between_names),
            )
    return parts[0] if len(parts) == 1 else total(op.name, parts, "s")

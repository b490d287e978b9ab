"""Plans of pools whose members share every layer: tensor parallelism over a home network, as distributed-llama has it."""

from __future__ import annotations

import math
from dataclasses import replace

from roofplan import catalogue
from roofplan.laws.pool import wire_time
from roofplan.operations.table import Step
from roofplan.pool.costs import decoding, hidden_bytes, layer_weights
from roofplan.pool.layout import Layout, Problem, Stage
from roofplan.pool.parts import Part, engine_part, latency_ends, stage_part
from roofplan.pool.request import PoolRequest
from roofplan.pool.search import Found
from roofplan.records.calibration import Fit
from roofplan.records.source import document
from roofplan.records.terms import Term, total
from roofplan.timing.figures import TIME_PER_TOKEN


def shared_layout(request: PoolRequest, problem: Problem, fit: Fit) -> Found | None:
    """Return the members that share all layers in the least time: 2^n of them, at most as many as the model has KV heads.

    Parameters
    ----------
    request : the pool.
    problem : times and memory of one user's token.
    fit : the fitted constants.

    Returns
    -------
    The layout, in which each member has a stage of all layers; None where no number of members holds the model.
    """
    whole, size = problem.layer.sum(axis=1), float(hidden_bytes(request.model, request.software, 1.0))
    meetings = problem.layers * request.software.value("syncs")

    def cost(member: int) -> float:
        one = request.members[member]
        met = meetings * (one.rtt / 2.0 + float(wire_time(size, one.up, one.down)))
        return float(whole[member]) + (met if count > 1 else 0.0)

    step, found = decoding(request.workload, 1.0), list[Found]()
    count = 1
    while count <= min(problem.members, max(1, request.model.kv_heads)):
        share = float(problem.weight.sum()) / count
        order = sorted(range(problem.members), key=cost)
        able = [member for member in order if problem.room[member] >= share][:count]
        stages = tuple(Stage(member, 0, problem.layers) for member in able)
        for asks in able if len(able) == count else ():
            if asks not in problem.clients or problem.room[asks] < share + problem.head_weight:
                continue
            layout = Layout(asks, stages, request.software.outputs[0])
            parts = shared_parts(request, fit, layout, step, TIME_PER_TOKEN)
            parts.append(engine_part(request, fit, layout, step, TIME_PER_TOKEN))
            seconds = sum(float(one.term.value) for one in parts)
            found.append(Found(layout, seconds, seconds))
        count *= 2
    return min(found, key=lambda one: one.time, default=None)


def shared_parts(request: PoolRequest, fit: Fit, layout: Layout, step: Step, figure: str) -> list[Part]:
    """Return the parts of a pass that members share: the slowest member's slice, the output layer, and meetings.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    layout : its members, each with all layers.
    step : the pass.
    figure : whose errors tell the intervals.

    Returns
    -------
    The parts.
    """
    count = len(layout.stages)
    slices = [stage_part(request, fit, stage, step, figure, output=False) for stage in layout.stages]
    slowest = max(slices, key=lambda one: float(one.term.value))
    head = stage_part(request, fit, Stage(layout.client, 0, 0), step, figure, output=True)
    if count == 1:
        return [slowest, head]
    serial = request.software.quantities["serial"]
    left = [
        share + (1.0 - share) / count
        for share in (serial.value, serial.low or serial.value, serial.high or serial.value)
    ]
    term = Term(
        f"{count} members: a slice of each layer",
        slowest.term.value * left[0],
        "s",
        parts=[slowest.term],
        combine="product",
        text="{alone} x ({serial} + (1 - {serial}) / {count} members)",
        numbers={"alone": (slowest.term.value, "s"), "serial": serial.value, "count": float(count)},
        sources=(serial.cited,),
    )
    sliced = replace(
        slowest,
        term=term,
        low=slowest.low * left[1],
        high=slowest.high * left[2],
        limits={key: seconds * left[0] for key, seconds in slowest.limits.items()},
    )
    return [sliced, head, _meetings(request, layout, step)]


def _meetings(request: PoolRequest, layout: Layout, step: Step) -> Part:
    """Return the time in which members exchange their slices: several times in each layer, all through the client."""
    software, rules = request.software, catalogue.pools()
    hop, syncs = software.quantities["hop"], software.value("syncs")
    others = [request.members[one.member] for one in layout.stages if one.member != layout.client]
    client = request.members[layout.client]
    layers = float(len(request.model.decoder.layers))
    size = float(hidden_bytes(request.model, software, float(step.tokens)))
    slow = max(others, key=lambda one: one.rtt)
    trip = (client.rtt + slow.rtt) / 2.0
    each = max(
        float(wire_time(size * len(others), client.up, math.inf)),
        *(float(wire_time(size, one.up, one.down)) for one in others),
    )
    meetings = layers * syncs
    cites = (document("members: " + ", ".join(one.name for one in (client, *others))),)
    parts = [
        Term(
            "latency",
            meetings * trip,
            "s",
            text="{meetings} x {trip}",
            numbers={"meetings": meetings, "trip": (trip, "s")},
            sources=cites,
        ),
        Term(
            "software",
            meetings * hop.value,
            "s",
            text="{layers} layers x {syncs} x {hop}",
            numbers={"layers": layers, "syncs": syncs, "hop": (hop.value, "s")},
            sources=(hop.cited, software.quantities["syncs"].cited),
        ),
        Term(
            "wire",
            meetings * each,
            "s",
            law="pool.wire_time",
            text="{meetings} x {size} to each of {others} members over {up}",
            numbers={"meetings": meetings, "size": (size, "B"), "others": float(len(others)), "up": (client.up, "B/s")},
            sources=cites,
        ),
    ]
    everyone = (client, *others)
    guessed = frozenset[str]().union(*(one.assumed for one in everyone))
    margin = rules.margins["assumed_wire" if "rate" in guessed else "wire"].value
    narrow = min(everyone, key=lambda one: min(one.up, one.down))
    ends = latency_ends((client, slow))
    low, high = ((end or hop.value) for end in (hop.low, hop.high))
    limits = {
        ("RTT", slow.name): meetings * trip,
        ("software of meetings", ""): meetings * hop.value,
        ("link", narrow.name): meetings * each,
    }
    return Part(
        term=total("meetings", parts, "s"),
        low=meetings * (ends[0] + low + each / margin),
        high=meetings * (ends[1] + high + each * margin),
        grade="guessed" if guessed else "borrowed",
        limits=limits,
        kind="link",
    )


def shared_view(
    request: PoolRequest, fit: Fit, problem: Problem, layout: Layout, member: int
) -> tuple[float, float, float, float]:
    """Return what a member that shares all layers holds and sends.

    Parameters
    ----------
    request : the pool.
    fit : the fitted constants.
    problem : times and memory of one user's token.
    layout : its members.
    member : which one.

    Returns
    -------
    Bytes of its weights and of one user's cache [B], time of its slice of a token [s], and bytes that it sends for each [B].
    """
    count, layers = len(layout.stages), len(request.model.decoder.layers)
    weights, asks = float(layer_weights(request.model).sum()), member == layout.client
    parts = shared_parts(request, fit, layout, decoding(request.workload, 1.0), TIME_PER_TOKEN)
    size = float(hidden_bytes(request.model, request.software, 1.0)) * (count - 1 if asks else 1)
    return (
        weights / count + (problem.head_weight if asks else 0.0),
        (float(problem.weight.sum()) - weights) / count,
        float(parts[0].term.value) + (float(parts[1].term.value) if asks else 0.0),
        size * layers * request.software.value("syncs") / 2.0 if count > 1 else 0.0,
    )

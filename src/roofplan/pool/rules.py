"""Layouts by the published rules of exo, Petals and Parallax, to be timed by the same laws as ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from roofplan.errors import unwrap
from roofplan.pool.costs import head_bytes
from roofplan.pool.layout import Layout, Problem, Stage, in_order
from roofplan.pool.request import PoolRequest
from roofplan.records.pool import LAST

PETALS_HOP, PETALS_RPS = 0.018, 300.0
"""Serialisation of a hop [s], and blocks a second of a server that states none [1/s]: petals client/routing/sequence_manager.py@22afba6."""

PETALS_BITS = 16.0
"""Bits of each number of the hidden state by which Petals counts a link's requests a second: server/throughput.py@22afba6."""

CANNOT = "no room for all layers"


def _output(problem: Problem) -> str:
    """Return where the output layer stands under the pool's software, with the last stage where it may."""
    return LAST if LAST in problem.outputs and problem.route == "ring" else problem.outputs[0]


def exo(_request: PoolRequest, problem: Problem, client: int) -> Layout | str:
    """Return exo's layout: the fewest machines with room, layers by their share of free memory (largest remainder).

    Source: exo-explore/exo@b5375f8, master/placement.py and placement_utils.py.
    """
    need = problem.weight.sum() + problem.head_weight
    order = np.argsort(-problem.room, kind="stable")
    enough = np.flatnonzero(np.cumsum(problem.room[order]) >= need)
    if not len(enough):
        return CANNOT
    chosen = sorted(order[: enough[0] + 1].tolist())
    exact = problem.layers * problem.room[chosen] / problem.room[chosen].sum()
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: problem.layers - counts.sum()]] += 1
    return in_order(list(zip(chosen, counts.tolist(), strict=True)), client, _output(problem))


def petals(request: PoolRequest, problem: Problem, client: int) -> Layout | str:
    """Return Petals' layout: servers join in turn and take the weakest window; a client's shortest path crosses them.

    A server offers as many blocks as fit. Its throughput is the least of its forward rate over half of its blocks and of
    its link. A path pays half a round trip, 18 ms a hop, and its blocks over the server's rate.

    Source: bigscience-workshop/petals@22afba6, server/block_selection.py, server/throughput.py and
    client/routing/sequence_manager.py.
    """
    weight = float(problem.weight.max())
    offered = np.zeros(problem.layers)
    windows: dict[int, tuple[int, int]] = {}
    means = problem.layer.mean(axis=1)
    for member, one in enumerate(request.members):
        free = problem.room[member] - (problem.head_weight if member == client else 0.0)
        blocks = min(problem.layers, int(free // weight))
        if blocks < 1:
            continue
        forward = 1.0 / float(means[member])
        link = 8.0 * min(one.down, one.up) / (PETALS_BITS * request.model.hidden)
        rate = min(forward / ((blocks + 1) / 2.0), link)
        starts = range(problem.layers - blocks + 1)
        start = min(starts, key=lambda at: sorted(offered[at : at + blocks].tolist()))
        offered[start : start + blocks] += rate
        windows[member] = (start, start + blocks)
    if np.any(offered == 0.0):
        return CANNOT
    return _shortest(request, problem, windows, client)


def _shortest(request: PoolRequest, problem: Problem, windows: dict[int, tuple[int, int]], client: int) -> Layout:
    """Return the path through servers' windows that Petals takes for the least sum of round trips and blocks."""
    means = problem.layer.mean(axis=1).tolist()
    done = [math.inf] * problem.layers + [0.0]
    chosen: list[tuple[int, int]] = [(0, 0)] * (problem.layers + 1)
    for at in range(problem.layers - 1, -1, -1):
        for member, (start, end) in windows.items():
            each = max(means[member], 1.0 / PETALS_RPS)
            trip = 0.0 if member == client else request.members[member].rtt / 2.0 + PETALS_HOP
            for to in range(at + 1, end + 1) if start <= at else ():
                cost = trip + (to - at) * each + done[to]
                if cost < done[at]:
                    done[at], chosen[at] = cost, (member, to)
    stages, at = list[Stage](), 0
    while at < problem.layers:
        member, to = chosen[at]
        first = stages.pop().first if stages and stages[-1].member == member else at
        stages.append(Stage(member, first, to))
        at = to
    return Layout(client, tuple(stages), problem.outputs[0])


def parallax(request: PoolRequest, problem: Problem, client: int) -> Layout | str:
    """Return Parallax's layout: the fewest stages that hold the model, filled like water in proportion to bandwidth.

    Decoding is bound by memory bandwidth, so layers go by it, capped by memory; the output layer ends the pipeline.

    Source: GradientHQ/parallax@162354a, layer_allocation.py.
    """
    layer, head = float(problem.weight.max()), head_bytes(request.model)
    most = np.floor(problem.room / layer).astype(int)
    order = np.argsort(-most, kind="stable").tolist()
    for count in range(1, problem.members + 1):
        chosen = order[:count]
        caps = most[chosen].astype(float)
        holder = count - 1 if _output(problem) == LAST else (chosen.index(client) if client in chosen else None)
        if holder is not None:
            caps[holder] = max(0.0, math.floor((problem.room[chosen[holder]] - head) / layer))
        if caps.sum() >= problem.layers:
            share = np.array([unwrap(request.members[m].device.bandwidth) for m in chosen])
            return in_order(
                list(zip(chosen, _filled(problem.layers, share, caps), strict=True)), client, _output(problem)
            )
    return CANNOT


def _filled(layers: int, share: np.ndarray, caps: np.ndarray) -> list[int]:
    """Return whole layers in proportion to shares, none above its cap: the level of water in vessels of these widths."""
    low, high = 0.0, float((caps / share).max())
    for _ in range(60):
        level = (low + high) / 2.0
        low, high = (level, high) if np.minimum(level * share, caps).sum() < layers else (low, level)
    exact = np.minimum(high * share, caps)
    counts = np.floor(exact + 1e-6)
    while counts.sum() < layers:
        counts[int(np.argmax(np.where(counts < caps, exact - counts, -np.inf)))] += 1
    return [int(one) for one in counts]


Rule = Callable[[PoolRequest, Problem, int], Layout | str]
"""Returns the layout of members where one of them asks, or why it has none."""

RULES: Mapping[str, Rule] = MappingProxyType({"exo": exo, "petals": petals, "parallax": parallax})
"""Published rules by name: each returns a layout, or why it has none."""

"""The layout of least time: exact where the cost of a hop separates or for few members, else near with its gap.

Three ways lead to a layout. Where layers are alike and a member's hops cost the same beside whomever it stands, only the
number of layers of each member matters: a knapsack. For few members every subset is tried, in dynamic programming over
subsets. Beyond both, a search among orders gives a layout, and a relaxed knapsack tells how far it can be from the best.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from roofplan.pool.layout import Layout, Problem, Stage, in_order, on_grid
from roofplan.records.pool import CLIENT, LAST

EXACT = 12
"""Most members for which all subsets are tried [1]."""

ALIKE = 1e-9
"""Relative difference below which times count as equal [1]."""


@dataclass(frozen=True, slots=True)
class Found:
    """A layout.

    Parameters
    ----------
    layout : the layout.
    time : time of a pass [s].
    least : bound below which no layout comes; the time itself where the layout is optimal [s].
    """

    layout: Layout
    time: float
    least: float

    @property
    def gap(self) -> float:
        """How far the layout may be from the best, as a share of its time [1]."""
        return 1.0 - self.least / self.time


def best_layout(problem: Problem) -> Found | None:
    """Return the layout in which a pass takes the least time.

    Parameters
    ----------
    problem : times and memory.

    Returns
    -------
    The layout with its bound, None where no layout fits.
    """
    if problem.alike:
        return _reduced(problem, best_layout)
    hops = _separate(problem)
    if hops is not None and _alike(problem):
        return _exactly(problem, _knapsack(problem, hops))
    if problem.members <= EXACT:
        return _exactly(problem, _subsets(problem))
    return _near(problem)


def quick_layout(problem: Problem) -> Found | None:
    """Return a layout of little time, found at once: the best where that is a knapsack, else the best of a few orders.

    Parameters
    ----------
    problem : times and memory.

    Returns
    -------
    The layout, None where none was found.
    """
    if problem.alike:
        return _reduced(problem, quick_layout)
    hops = _separate(problem)
    if hops is not None and _alike(problem):
        return _exactly(problem, _knapsack(problem, hops))
    seeds = _relaxed(problem)
    layouts = [_split(problem, order, client, output) for _, order, client, output in seeds[:BEGUN]]
    best = min((one for one in layouts if one is not None), key=problem.time, default=None)
    return None if best is None else Found(best, problem.time(best), min(seeds[0][0], problem.time(best)))


def _reduced(problem: Problem, search: Callable[[Problem], Found | None]) -> Found | None:
    """Return what a search finds among the members that may be needed, of which one of each kind asks."""
    kept = _useful(problem)
    asking = {problem.alike[member]: member for member in reversed(problem.clients) if member in kept}
    smaller = replace(problem, clients=tuple(sorted(asking.values()))).of(kept)
    found = search(smaller) if smaller.clients else None
    return None if found is None else replace(found, layout=found.layout.with_members(kept))


def _useful(problem: Problem) -> list[int]:
    """Return the members that a layout of least time may need: of those that are alike, no more than hold the model.

    Two of them with room left could be one, at the same speed and with fewer hops. One more may ask.
    """
    whole, widest = float(problem.weight.sum()) + problem.head_weight, float(problem.weight.max())
    kept, taken = [], Counter[int]()
    for member, kind in enumerate(problem.alike):
        room = float(problem.room[member])
        spare = room - widest
        most = math.ceil(whole / spare) + 1 if spare > 0.0 and problem.most == np.inf else problem.layers
        asks = member in problem.clients
        if (room > 0.0 or asks) and taken[kind] < (most if room > 0.0 else 1):
            kept.append(member)
            taken[kind] += 1
    return kept


def _exactly(problem: Problem, layout: Layout | None) -> Found | None:
    if layout is None:
        return None
    seconds = problem.time(layout)
    return Found(layout, seconds, seconds)


def _alike(problem: Problem) -> bool:
    """Return whether all layers take the same time and memory on each member."""
    times = np.allclose(problem.layer, problem.layer[:, :1], rtol=ALIKE, atol=0.0)
    return bool(times and np.allclose(problem.weight, problem.weight[0], rtol=ALIKE, atol=0.0))


def _separate(problem: Problem) -> np.ndarray | None:
    """Return what a stage's hops cost for each client, where that is the same beside whatever other stages.

    What a ring costs the client itself is the same in all its layouts.

    Returns
    -------
    Shape (members, members), by client and member [s]; None where the cost of a hop depends on both its ends.
    """
    count = problem.members
    if problem.route == "hub":
        return np.asarray(problem.hidden + problem.hidden.T)
    if count == 1:
        return np.zeros((1, 1))
    into, out = _ends(problem.hidden)
    apart = ~np.eye(count, dtype=bool)
    if not np.allclose((out[:, None] + into)[apart], problem.hidden[apart], rtol=1e-7, atol=1e-12):
        return None
    visit = on_grid(np.tile(into + out, (count, 1)))
    np.fill_diagonal(visit, 0.0)
    return visit


def _ends(hop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what a hop costs at its end and at its beginning, were it their sum: least squares off the diagonal [s]."""
    count = len(hop)
    apart = ~np.eye(count, dtype=bool)
    starts, ends = np.nonzero(apart)
    table = np.zeros((len(starts), 2 * count))
    table[np.arange(len(starts)), starts] = table[np.arange(len(starts)), count + ends] = 1.0
    found = np.linalg.lstsq(table, hop[apart], rcond=None)[0]
    return found[count:], found[:count]


# Knapsack -----------------------------------------------------------------------------------------


def _knapsack(problem: Problem, visit: np.ndarray) -> Layout | None:
    """Return the best layout of alike layers, whose hops separate."""
    layers = np.arange(problem.layers + 1)
    cost = problem.layer[:, :1] * layers
    best: Layout | None = None
    for output in problem.outputs:
        for layout in _counted(problem, visit, cost, problem.weight[0] * layers, output):
            if problem.holds(layout) and (best is None or problem.time(layout) < problem.time(best)):
                best = layout
    return best


def _counted(
    problem: Problem, visit: np.ndarray, cost: np.ndarray, weight: np.ndarray, output: str
) -> Iterator[Layout]:
    """Yield the best layout of each client and the one that it holds alone, with the output layer in one place."""
    clients = np.array(problem.clients)
    table, chosen = _counts(problem, visit, cost, weight, output)
    for row, client in enumerate(clients.tolist()):
        alone = in_order([(client, problem.layers)], client, CLIENT)
        if output == problem.outputs[0] and problem.holds(replace(alone, output=problem.outputs[0])):
            yield replace(alone, output=problem.outputs[0])
        if np.isfinite(table[row, -1]):
            yield _traced(problem, chosen[:, :, row], client, output)


def _counts(
    problem: Problem, visit: np.ndarray, cost: np.ndarray, weight: np.ndarray, output: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least time for each client and number of layers, and the layers that each member takes in it.

    Members join one after the other. A second table holds layouts whose output layer already stands with a member, the
    last stage.

    Parameters
    ----------
    cost, weight : time of a number of layers on each member, shape (members, layers + 1) [s], and their memory [B].

    Returns
    -------
    Shape (clients, layers + 1) [s]; and shape (members, 2, clients, layers + 1), -n - 1 where n layers and the output
    layer go to the member [1].
    """
    clients = np.array(problem.clients)
    count, layers = len(clients), problem.layers
    none = np.full((count, layers + 1), np.inf)
    table = [none.copy(), none.copy()]
    table[0][:, 0] = [0.0 if problem.asks(client, output) else np.inf for client in problem.clients]
    chosen = np.zeros((problem.members, 2, count, layers + 1), dtype=np.int32)
    for member in range(problem.members):
        asks = clients == member
        extra = np.where(asks, 0.0, visit[clients, member])
        held = np.where(asks & (output == CLIENT), problem.head_weight, 0.0)
        busy = np.where(asks & (output == CLIENT), problem.head[member], 0.0)
        ends = problem.answer[member, clients] - problem.hidden[member, clients] + problem.head[member]
        barred = asks & (output == LAST and problem.route == "hub")  # its layers would be the last
        before = [one.copy() for one in table]
        for n in range(1, layers + 1):
            fits = (weight[n] + held <= problem.room[member]) & (cost[member, n] + busy <= problem.most) & ~barred
            if not fits.any():
                break
            seconds = np.where(fits, cost[member, n] + extra, np.inf)[:, None]
            for state in (0, 1):
                _better(table[state], before[state][:, : layers + 1 - n] + seconds, n, chosen[member, state], n)
            alone = weight[n] + problem.head_weight <= problem.room[member]
            if output == LAST and alone and cost[member, n] + problem.head[member] <= problem.most:
                ending = np.where(asks, np.inf, cost[member, n] + extra + ends)[:, None]
                _better(table[1], before[0][:, : layers + 1 - n] + ending, n, chosen[member, 1], -n - 1)
    return table[1 if output == LAST else 0], chosen


def _better(table: np.ndarray, tried: np.ndarray, n: int, chosen: np.ndarray, mark: int) -> None:
    """Take over, in place, what is less than a table has for `n` layers more."""
    less = tried < table[:, n:]
    table[:, n:][less] = tried[less]
    chosen[:, n:][less] = mark


def _traced(problem: Problem, chosen: np.ndarray, client: int, output: str) -> Layout:
    """Return the layout behind a table of choices: a ring begins with the client's layers, a hub ends with them."""
    state, left, counts, last = int(output == LAST), problem.layers, {}, None
    for member in range(problem.members - 1, -1, -1):
        mark = int(chosen[member, state, left])
        if mark < 0:
            mark, state, last = -mark - 1, 0, member
        if mark:
            counts[member] = mark
            left -= mark
    ends = problem.route == "hub"
    order = sorted(counts, key=lambda one: (one == last, (one == client) == ends, one))
    return in_order([(one, counts[one]) for one in order], client, output)


# Subsets ------------------------------------------------------------------------------------------


def _subsets(problem: Problem) -> Layout | None:
    """Return the best layout of few members: every order of every subset, in dynamic programming over subsets."""
    twins, seeds = _twins(problem), _relaxed(problem)
    near = _near(problem)
    best = None if near is None else near.layout
    for bound, _, client, output in seeds:
        if best is not None and bound >= problem.time(best):
            break
        if twins[client] in problem.clients:
            continue  # its equal has been tried, or will be
        layout = _subset_layout(problem, client, output, twins)
        if layout is not None and (best is None or problem.time(layout) < problem.time(best)):
            best = layout
    return best


def _twins(problem: Problem) -> list[int]:
    """Return for each member the one before it that it could change places with, -1 where there is none."""

    def equal(a: int, b: int) -> bool:
        order = np.arange(problem.members)
        order[[a, b]] = b, a
        messages = (problem.hidden, problem.answer)
        own = (problem.layer, problem.head, problem.host, problem.room)
        return all(np.array_equal(one[order][:, order], one) for one in messages) and all(
            np.array_equal(one[a], one[b]) for one in own
        )

    return [next((a for a in range(b - 1, -1, -1) if equal(a, b)), -1) for b in range(problem.members)]


def _subset_layout(problem: Problem, client: int, output: str, twins: list[int]) -> Layout | None:
    """Return the best layout for one client and one place of the output layer.

    The table holds the least time in which a set of members, of which one has the last stage so far, covers the first
    layers. Sets are visited in order of their numbers, so that every set comes after its subsets. Of members that are
    alike the first come first, so that sets that differ by them alone are visited once.
    """
    if not problem.asks(client, output):
        return None
    count, layers = problem.members, problem.layers
    hub = problem.route == "hub"
    room = problem.room - np.where(np.arange(count) == client, problem.head_weight * (output == CLIENT), 0.0)
    slack = problem.most - np.where(np.arange(count) == client, problem.head * (output == CLIENT), 0.0)
    sums = np.concatenate((np.zeros((count, 1)), np.cumsum(problem.layer, axis=1)), axis=1)
    weights = np.concatenate(([0.0], np.cumsum(problem.weight)))
    hop = _visits(problem, client) if hub else problem.hidden
    table = np.full((1 << count, count, layers + 1), np.inf)
    begun = np.full((1 << count, layers + 1), np.inf)
    begun[0, 0] = 0.0
    spans = [_spans(sums[m], weights, room[m], slack[m]) for m in range(count)]
    ends = [_spans(sums[m], weights, room[m] - problem.head_weight, slack[m] - problem.head[m]) for m in range(count)]
    back = problem.answer if output == LAST else problem.hidden
    best, at = np.inf, (0, 0)
    needs = [twin if member != client else -1 for member, twin in enumerate(twins)]
    needs = [twins[twin] if twin == client else twin for twin in needs]
    for group in range(1, 1 << count):
        inside = [member for member in range(count) if group >> member & 1]
        if any(needs[member] >= 0 and not group >> needs[member] & 1 for member in inside):
            continue
        for member in inside:
            before = group ^ (1 << member)
            if hub and before >> client & 1:
                continue  # the hub's own layers come behind the others'
            arrived = _arrived(table[before], begun[before], hop, client, member, hub=hub)
            table[group, member] = _extended(arrived, spans[member])
            ending = output == LAST and (member != client or group == 1 << client)
            final = _extended(arrived, ends[member])[-1] if ending else None
            home = 0.0 if member == client else float(back[member, client])
            if hub and member != client:
                home = home - float(problem.hidden[member, client])
            whole = (table[group, member, -1] if final is None else final) + home
            whole += problem.head[client if final is None else member]
            if (output == CLIENT or final is not None) and whole < best:
                best, at = whole, (group, member)
    if not np.isfinite(best):
        return None
    return _unfolded(problem, table, begun, hop, client, output, at, spans, ends)


def _visits(problem: Problem, client: int) -> np.ndarray:
    """Return what it costs to visit each member from a client and to return, shape (1, members) [s]."""
    there = problem.hidden[client] + problem.hidden[:, client]
    visits: np.ndarray = np.where(np.arange(problem.members) == client, 0.0, there)[None, :]
    return visits


def _arrived(
    table: np.ndarray, begun: np.ndarray, hop: np.ndarray, client: int, member: int, *, hub: bool
) -> np.ndarray:
    """Return the least time to be at a member with each number of layers done, shape (layers + 1,) [s]."""
    if hub:
        return np.asarray(np.minimum(table.min(axis=0), begun) + hop[0, member])
    first = begun + (0.0 if member == client else hop[client, member])
    joined: np.ndarray = np.minimum((table + hop[:, member, None]).min(axis=0), first)
    return joined


def _spans(sums: np.ndarray, weights: np.ndarray, room: float, most: float) -> np.ndarray:
    """Return the time of the layers from i to j on a member, infinite where they do not fit, shape (layers + 1, layers + 1) [s]."""
    cost = sums[None, :] - sums[:, None]
    fits = (weights[None, :] - weights[:, None] <= room) & (cost <= most)
    return np.where(fits & np.triu(np.ones_like(fits), 1), cost, np.inf)


def _extended(arrived: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Return the least time after a member's stage for each number of layers done, shape (layers + 1,) [s]."""
    after: np.ndarray = (arrived[:, None] + span).min(axis=0)
    return after


def _unfolded(
    problem: Problem,
    table: np.ndarray,
    begun: np.ndarray,
    hop: np.ndarray,
    client: int,
    output: str,
    at: tuple[int, int],
    spans: list[np.ndarray],
    ends: list[np.ndarray],
) -> Layout:
    """Return the layout behind a table of subsets, from its last stage to its first."""
    hub, (group, member), done = problem.route == "hub", at, problem.layers
    stages: list[Stage] = []
    span = ends[member] if output == LAST else spans[member]
    while group:
        before = group ^ (1 << member)
        arrived = _arrived(table[before], begun[before], hop, client, member, hub=hub)
        first = int(np.argmin(arrived + span[:, done]))
        stages.append(Stage(member, first, done))
        done, group = first, before
        if group:
            costs = table[group, :, done] + (0.0 if hub else hop[:, member])
            member = int(np.argmin(costs))
            span = spans[member]
    return Layout(client, tuple(reversed(stages)), output)


# Near ---------------------------------------------------------------------------------------------


def _near(problem: Problem) -> Found | None:
    """Return a layout from a search among orders, and a bound from a relaxed knapsack."""
    seeds = _relaxed(problem)
    best: Layout | None = None
    for _, order, client, output in seeds[:BEGUN]:
        found = _climbed(problem, order, client, output)
        if found is not None and (best is None or problem.time(found) < problem.time(best)):
            best = found
    if best is None:
        return None
    seconds = problem.time(best)
    return Found(best, seconds, min(seeds[0][0], seconds))


def _relaxed(problem: Problem) -> list[tuple[float, list[int], int, str]]:
    """Return for each client and place of the output layer a bound on the time of its layouts [s], and an order of members.

    In the bound, a member that takes n layers takes its n quickest, they weigh as much as the n lightest, and a hop costs
    the half of what it costs at least at each of its ends.
    """
    count = problem.members
    apart = np.where(np.eye(count, dtype=bool), np.inf, problem.hidden)
    halves = (apart.min(axis=0) + apart.min(axis=1)) / 2.0
    visit = np.tile(halves, (count, 1)) if problem.route == "ring" else problem.hidden + problem.hidden.T
    own = halves if problem.route == "ring" else np.zeros(count)
    sums = np.concatenate((np.zeros((count, 1)), np.cumsum(np.sort(problem.layer, axis=1), axis=1)), axis=1)
    weights = np.concatenate(([0.0], np.cumsum(np.sort(problem.weight))))
    eased = replace(problem, most=np.inf)
    seeds = []
    for output in problem.outputs:
        table, chosen = _counts(eased, visit, sums, weights, output)
        for row, client in enumerate(problem.clients):
            if not np.isfinite(table[row, -1]):
                continue
            head = problem.head[client] if output == CLIENT else 0.0
            spared = problem.hidden[:, client].max() if output == LAST else 0.0
            bound = table[row, -1] + head + problem.host[client] + own[client] - spared
            alone = sums[client, -1] + problem.head[client] + problem.host[client]
            bound = min(bound, alone if weights[-1] <= problem.room[client] else np.inf)
            layout = _traced(problem, chosen[:, :, row], client, output)
            seeds.append((float(bound), [stage.member for stage in layout.stages], client, output))
    return sorted(seeds, key=lambda one: one[0])


BEGUN, ROUNDS = 4, 6
"""Orders with which a search begins, and rounds of each [1]."""


def _climbed(problem: Problem, order: list[int], client: int, output: str) -> Layout | None:
    """Return the best layout that exchanging, moving, adding and leaving out members of an order leads to."""
    best = _split(problem, order, client, output)
    others = [m for m in range(problem.members) if m not in order]
    while best is None and others:  # real layers weigh more than the lightest
        order = [*order, others.pop(int(np.argmax(problem.room[others])))]
        best = _split(problem, order, client, output)
    for _ in range(ROUNDS):
        better = None
        for tried in _moves(order, [m for m in range(problem.members) if m not in order]):
            found = _split(problem, tried, client, output)
            if found is not None and (best is None or problem.time(found) < problem.time(best) * (1.0 - ALIKE)):
                best, better = found, tried
        if better is None:
            break
        order = better
    return best


def _moves(order: list[int], others: list[int]) -> Iterator[list[int]]:
    """Yield orders with one member left out, exchanged, moved or added."""
    for at in range(len(order)):
        rest = order[:at] + order[at + 1 :]
        yield rest
        yield from ([*rest[:to], order[at], *rest[to:]] for to in range(len(order)) if to != at)
        yield from ([*order[:at], one, *order[at + 1 :]] for one in others)
    for one in others:
        yield from ([*order[:at], one, *order[at:]] for at in range(len(order) + 1))


def _split(problem: Problem, order: list[int], client: int, output: str) -> Layout | None:
    """Return the best layout whose stages have members in a fixed order, each with at least one layer."""
    if not order or not problem.asks(client, output):
        return None
    if (output == LAST and (order[-1] == client) != (order == [client])) or not problem.behind(order, client):
        return None
    held = np.where(np.arange(problem.members) == (client if output == CLIENT else order[-1]), 1.0, 0.0)
    done = np.full(problem.layers + 1, np.inf)
    done[0] = 0.0
    weights = np.concatenate(([0.0], np.cumsum(problem.weight)))
    firsts = []
    for member in order:
        sums = np.concatenate(([0.0], np.cumsum(problem.layer[member])))
        room = problem.room[member] - held[member] * problem.head_weight
        reached = done[:, None] + _spans(sums, weights, room, problem.most - held[member] * problem.head[member])
        firsts.append(reached.argmin(axis=0))
        done = reached.min(axis=0)
    if not np.isfinite(done[-1]):
        return None
    stages, end = [], problem.layers
    for member, first in zip(reversed(order), reversed(firsts), strict=True):
        stages.append(Stage(member, int(first[end]), end))
        end = int(first[end])
    return Layout(client, tuple(reversed(stages)), output)

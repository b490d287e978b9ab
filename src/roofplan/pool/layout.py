"""Layouts of a model's layers over members, and what a token costs on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from roofplan.records.pool import CLIENT, LAST


@dataclass(frozen=True, slots=True)
class Stage:
    """Contiguous layers of a member: from `first` up to, but without, `end`."""

    member: int
    first: int
    end: int

    @property
    def layers(self) -> int:
        """Layers of the stage [1]."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Layout:
    """Who holds which layers.

    Parameters
    ----------
    client : member that holds the embedding and asks; it may hold layers too.
    stages : the stages in the order in which a token passes them.
    output : where the output layer stands, ``client`` or ``last``.
    """

    client: int
    stages: tuple[Stage, ...]
    output: str

    @property
    def last(self) -> int:
        """Member with the last layers."""
        return self.stages[-1].member

    @property
    def head(self) -> int:
        """Member with the output layer."""
        return self.client if self.output == CLIENT else self.last

    def with_members(self, members: Sequence[int] | Mapping[int, int]) -> Layout:
        """Return the layout with other members in place of its own, by their numbers in it."""
        stages = tuple(Stage(members[one.member], one.first, one.end) for one in self.stages)
        return Layout(members[self.client], stages, self.output)

    @property
    def used(self) -> tuple[int, ...]:
        """Members that hold layers or ask, each once."""
        return tuple(dict.fromkeys([self.client, *(stage.member for stage in self.stages)]))

    def place(self, member: int) -> int:
        """Return the first layer of a member, beyond the last where it holds none [1]."""
        return min((stage.first for stage in self.stages if stage.member == member), default=self.stages[-1].end)


def legs(layout: Layout, route: str) -> list[tuple[int, int, bool]]:
    """Return the messages of a pass: from which member, to which, and whether it brings the last stage's result home.

    Parameters
    ----------
    layout : who holds which layers.
    route : ``hub`` where every stage returns its result to the client, ``ring`` where it sends it to the next.

    Returns
    -------
    The messages in order; none where one member does all.
    """
    h, members = layout.client, [stage.member for stage in layout.stages]
    if route == "hub":
        last = len(members) - 1
        return [leg for place, m in enumerate(members) if m != h for leg in ((h, m, False), (m, h, place == last))]
    path = [h, *members, h]
    found = [(a, b, place == len(members)) for place, (a, b) in enumerate(pairwise(path))]
    return [(a, b, home) for a, b, home in found if a != b]


GRID = 2.0**-40
"""Step to which times are rounded, a picosecond: sums of up to an hour are exact on it, so that equal layouts tie on every processor [s]."""


def on_grid(seconds: np.ndarray) -> np.ndarray:
    """Return times rounded to multiples of `GRID`."""
    return np.asarray(np.round(seconds / GRID) * GRID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a pass of one batch costs on each member and between members; times are multiples of `GRID`.

    Parameters
    ----------
    layer : time of each layer on each member, shape (members, layers) [s].
    head, host : time of the output layer, and of the engine's step where a member asks, shape (members,) [s].
    weight : memory of each layer with its cache, shape (layers,); `head_weight`, of the output layer [B].
    room : memory for both on each member, shape (members,) [B].
    hidden, logits, token : time of a message from a member to another, shape (members, members), 0 to itself [s].
    route : ``hub`` or ``ring``.
    outputs : where the output layer may stand.
    returned : whether logits return from an output layer at the last stage, rather than a token.
    clients : members that may ask.
    most : longest time of one stage, infinite where none is asked for [s].
    alike : a number for each member that those share which are alike in all of this; empty where none are.
    """

    layer: np.ndarray
    head: np.ndarray
    host: np.ndarray
    weight: np.ndarray
    head_weight: float
    room: np.ndarray
    hidden: np.ndarray
    logits: np.ndarray
    token: np.ndarray
    route: str
    outputs: tuple[str, ...]
    returned: bool
    clients: tuple[int, ...]
    most: float = np.inf
    alike: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Round the times."""
        for name in ("layer", "head", "host", "hidden", "logits", "token"):
            object.__setattr__(self, name, on_grid(getattr(self, name)))

    def of(self, kept: Sequence[int]) -> Problem:
        """Return the problem of some of its members alone, in their order."""
        places = {member: place for place, member in enumerate(kept)}
        square = np.ix_(kept, kept)
        return replace(
            self,
            **{name: getattr(self, name)[list(kept)] for name in ("layer", "head", "host", "room")},
            **{name: getattr(self, name)[square] for name in ("hidden", "logits", "token")},
            clients=tuple(places[one] for one in self.clients if one in places),
            alike=(),
        )

    @property
    def members(self) -> int:
        """Members [1]."""
        return len(self.room)

    @property
    def layers(self) -> int:
        """Layers [1]."""
        return len(self.weight)

    @property
    def answer(self) -> np.ndarray:
        """Time in which what an output layer at the last stage gives returns to the client, as `hidden` [s]."""
        return self.logits if self.returned else self.token

    def asks(self, client: int, output: str) -> bool:
        """Return whether a member may ask: where the output layer stands with it, it must have the memory and the time for it."""
        return output == LAST or bool(self.head_weight <= self.room[client] and self.head[client] <= self.most)

    def behind(self, members: Sequence[int], client: int) -> bool:
        """Return whether a hub's own layers come behind those of all others, as its software puts them."""
        return self.route != "hub" or client not in members or members[-1] == client

    def holds(self, layout: Layout) -> bool:
        """Return whether every member has the memory for its part, and no stage takes longer than it may."""
        need, spent = np.zeros(self.members), np.zeros(self.members)
        for stage in layout.stages:
            need[stage.member] += self.weight[stage.first : stage.end].sum()
            spent[stage.member] += self.layer[stage.member, stage.first : stage.end].sum()
        need[layout.head] += self.head_weight
        spent[layout.head] += self.head[layout.head]
        return bool(np.all((need <= self.room) | (need == 0.0)) and np.all(spent <= self.most))

    def hops(self, layout: Layout) -> list[tuple[int, int, float]]:
        """Return the messages of a pass: from which member, to which, and their time [s]."""
        last = self.answer if layout.output == LAST else self.hidden
        return [(a, b, float((last if home else self.hidden)[a, b])) for a, b, home in legs(layout, self.route)]

    def time(self, layout: Layout) -> float:
        """Return the time of a pass through all stages, with its hops, output layer and engine [s]."""
        inside = sum(float(self.layer[one.member, one.first : one.end].sum()) for one in layout.stages)
        over = sum(seconds for _, _, seconds in self.hops(layout))
        return inside + over + float(self.head[layout.head] + self.host[layout.client])


def in_order(counts: Sequence[tuple[int, int]], client: int, output: str) -> Layout:
    """Return the layout that gives members their numbers of layers in order.

    Parameters
    ----------
    counts : members with their layers, in the order of the stages [1].
    client : member that asks.
    output : where the output layer stands.

    Returns
    -------
    The layout; members without layers have no stage.
    """
    stages, start = [], 0
    for member, layers in counts:
        if layers:
            stages.append(Stage(member, start, start + layers))
            start += layers
    return Layout(client, tuple(stages), output)

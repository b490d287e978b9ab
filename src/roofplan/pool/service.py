"""A pool that serves: members come and go, pipelines lose stages and get them back, requests wait and are served.

A pipeline serves on the simulator's event core from one change of its members to the next. When a stage leaves, the places are
given to members anew, so that all are held where that is possible; weights are loaded, and the requests in flight are
computed again as far as they were. Requests wait in order of arrival; whoever waits for a seat longer than the users'
patience leaves, and so does whoever waits as long for an answer that was broken off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Protocol

import numpy as np

from roofplan.load.requests import Requests
from roofplan.pool.churn import Sessions
from roofplan.pool.layout import Layout
from roofplan.pool.running import NEVER, Running, Worked
from roofplan.serving.surface import Surface
from roofplan.simulation.records import OUT, Scheduler

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a pipeline.

    Parameters
    ----------
    member : who holds it in the plan.
    layers : its layers; `work`, FLOP of a token in them.
    size : bytes of its weights [B].
    fits : whether each member has the memory, shape (members,).
    time : of a token on each member, with its messages, shape (members,) [s].
    """

    member: int
    layers: tuple[int, int]
    work: float
    size: float
    fits: Array
    time: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline of the plan.

    Parameters
    ----------
    layout : who holds which layers.
    places : one for each member of the layout, that which asks first.
    """

    layout: Layout
    places: tuple[Place, ...]


class Loading(Protocol):
    """How long weights take to reach members."""

    whole: bool
    """Whether all places load again when one of them changes."""

    def one(self, place: Place, member: int, asks: int) -> float:
        """Return the time in which a member gets the weights of a place, where another one asks [s]."""

    def all(self, pipeline: Pipeline, holders: Sequence[int]) -> float:
        """Return the time in which all holders of a pipeline get theirs [s]."""


@dataclass(slots=True)
class Outcome:
    """What happened to the requests, entries in order of arrival; -1 where a time did not come.

    Parameters
    ----------
    admitted, first, last : when it got a seat, its first and its last token [s].
    left : when its user gave up [s].
    interrupted : how often its pipeline broke [1].
    work : FLOP that each member computed, `useful` of those in answers that were finished, shape (members,) [FLOP].
    tokens, again : tokens computed by pipelines, and those of them for the second time [token].
    up : share of the time in which each pipeline could serve [1].
    replaced : places that were taken by another member [1].
    timeline : time and pipelines that could serve from then on [s, 1].
    """

    admitted: Array
    first: Array
    last: Array
    left: Array
    interrupted: Array
    work: Array
    useful: Array
    tokens: float = 0.0
    again: float = 0.0
    up: list[float] = field(default_factory=list)
    replaced: int = 0
    timeline: list[tuple[float, int]] = field(default_factory=list)


LEAVE, UP, FILL, EXPIRE = range(4)
"""What may happen: a holder leaves, a pipeline has loaded, a place may be filled, a user's patience ends."""

DRAINED = 86_400.0
"""Time after the horizon at which what is left is given up [s]."""


class _State:
    """A pipeline: who holds its places, who could, the quickest first, when their weights are there, and what it serves."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        count = len(pipeline.places)
        self.holders, self.before = [OUT] * count, [OUT] * count
        self.able = [
            np.flatnonzero(one.fits)[np.argsort(one.time[one.fits], kind="stable")].tolist() for one in pipeline.places
        ]
        self.ready = [0.0] * count
        self.stamp, self.since, self.spent = 0, 0.0, 0.0
        self.running: Running | None = None

    @property
    def lacks(self) -> bool:
        """Whether a place has no holder."""
        return OUT in self.holders

    @property
    def held(self) -> list[int]:
        """Members that hold a place."""
        return [member for member in self.holders if member != OUT]


class Service:
    """A pool that serves requests up to a horizon.

    Parameters
    ----------
    pipelines : of the plan.
    sessions : of each member.
    requests : in order of arrival.
    scheduler : how a pipeline fills its steps.
    surface_of : step times of a layout.
    loading : how long weights take to reach members.
    patience : longest wait for a seat [s].
    horizon : last arrival [s].
    """

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        sessions: Sequence[Sessions],
        requests: Requests,
        *,
        scheduler: Scheduler,
        surface_of: Callable[[Layout], Surface],
        loading: Loading,
        patience: float,
        horizon: float,
    ) -> None:
        count = len(requests)
        assert requests.arrivals is not None
        self.scheduler, self.surface_of, self.loading = scheduler, surface_of, loading
        self.patience, self.horizon = patience, horizon
        self.states = [_State(one) for one in pipelines]
        self.arrivals = requests.arrivals.tolist()
        self.inputs, self.outputs = requests.inputs.tolist(), requests.outputs.tolist()
        self.out = Outcome(
            admitted=np.full(count, NEVER),
            first=np.full(count, NEVER),
            last=np.full(count, NEVER),
            left=np.full(count, NEVER),
            interrupted=np.zeros(count, int),
            work=np.zeros(len(sessions)),
            useful=np.zeros(len(sessions)),
        )
        self.generated, self.computed = [0] * count, [0] * count
        self.deadline = [one + patience for one in self.arrivals]
        self.parts: list[list[tuple[Worked, int, int]]] = [[] for _ in range(count)]
        self.given = [0] * count
        self.queue: list[int] = []
        self.queued: set[int] = set()
        self.events: list[tuple[float, int, int, int, int]] = []
        self.number = 0
        self.busy: set[int] = set()
        self.starts = [[*one.starts.tolist(), inf] for one in sessions]
        self.ends = [[*one.ends.tolist(), inf] for one in sessions]

    def run(self, progress: Callable[[float], None] | None = None) -> Outcome:
        """Serve, and return what happened; `progress` is told the time."""
        for k in range(len(self.states)):
            self.fill(k, 0.0, first=True)
        due, count, now = 0, len(self.arrivals), 0.0
        while True:
            at = self.arrivals[due] if due < count else inf
            event = self.events[0][0] if self.events else inf
            if due == count and not self.open() and event > self.horizon:
                break
            if min(at, event) > self.horizon + DRAINED:
                break
            if event <= at:
                now, _, what, k, stamp = heappop(self.events)
                self.happen(what, k, stamp, now)
            else:
                now = at
                self.arrive(due, now)
                due += 1
                if progress is not None and due % 256 == 0:
                    progress(now)
        self.close(max(now, self.horizon))
        return self.out

    def open(self) -> bool:
        """Return whether requests are left, once pipelines have served up to the next event."""
        until = min(self.events[0][0] if self.events else inf, self.horizon + DRAINED)
        for k in range(len(self.states)):
            self.serve(k, until)
        return bool(self.queued) or any(one.running is not None and one.running.outstanding for one in self.states)

    def push(self, time: float, what: int, k: int, stamp: int) -> None:
        """Let something happen at a time."""
        self.number += 1
        heappush(self.events, (time, self.number, what, k, stamp))

    def happen(self, what: int, k: int, stamp: int, now: float) -> None:
        """Let something happen, unless a later change made it void."""
        if what == EXPIRE:
            self.expire(stamp, now)
        elif stamp != self.states[k].stamp:
            return
        elif what == LEAVE:
            self.leave(k, now)
        elif what == UP:
            self.rise(k, now)
        else:
            self.fill(k, now)

    # Members --------------------------------------------------------------------------------------

    def stay(self, member: int, now: float) -> tuple[float, float]:
        """Return when the stay of a member began, or the next one begins, and when it ends [s]."""
        place = min(bisect_right(self.ends[member], now), len(self.ends[member]) - 1)
        return self.starts[member][place], self.ends[member][place]

    def fill(self, k: int, now: float, *, first: bool = False) -> None:
        """Give the places of a pipeline to members who are there: its own and spares, else those that wait elsewhere too."""
        state = self.states[k]
        state.stamp += 1
        own = set(state.held)
        taken = self.busy - own
        chosen = self.matched(state, now, taken)
        if len(chosen) < len(state.holders):
            better = self.matched(state, now, taken - self.idle(k))
            chosen = better if len(better) == len(state.holders) else chosen
        others = [self.released(member) for member in chosen.values() if member in taken]
        self.busy -= own
        asks = chosen.get(0, state.pipeline.places[0].member)
        for place, one in enumerate(state.pipeline.places):
            member = chosen.get(place, OUT)
            if member not in {OUT, state.holders[place]}:
                state.ready[place] = now if first else now + self.loading.one(one, member, asks)
                self.out.replaced += state.before[place] not in {OUT, member}
                state.before[place] = member
            state.holders[place] = member
        self.busy.update(state.held)
        if state.held:
            self.push(min(self.stay(member, now)[1] for member in state.held), LEAVE, k, state.stamp)
        if state.lacks:
            self.push(self.next_chance(state, now), FILL, k, state.stamp)
        elif self.loading.whole and not first:
            self.push(now + self.loading.all(state.pipeline, state.holders), UP, k, state.stamp)
        else:
            self.push(max(state.ready), UP, k, state.stamp)
        for other in others:
            self.fill(other, now)

    def matched(self, state: _State, now: float, taken: set[int]) -> dict[int, int]:
        """Return members for as many places of a pipeline as can be held, each by one of the quickest that fit.

        The places whose own member is free choose first, then those that few can hold; one that is taken is given up where its
        holder can hold another (augmenting paths). No place needs more candidates than there are places.
        """
        places, prefer = state.pipeline.places, []

        def free(member: int) -> bool:
            return member not in taken and self.stay(member, now)[0] <= now

        for place, one in enumerate(places):
            kept = [member for member in (state.holders[place], one.member) if member != OUT and free(member)]
            quickest = islice(filter(free, state.able[place]), len(places))
            prefer.append(list(dict.fromkeys([*(m for m in kept if one.fits[m]), *quickest])))
        holds: dict[int, int] = {}

        def hold(place: int, tried: set[int]) -> bool:
            for member in prefer[place]:
                if member in tried:
                    continue
                tried.add(member)
                if member not in holds or hold(holds[member], tried):
                    holds[member] = place
                    return True
            return False

        for place in sorted(range(len(places)), key=lambda k: (places[k].member not in prefer[k], len(prefer[k]))):
            hold(place, set())
        return {place: member for member, place in holds.items()}

    def idle(self, k: int) -> set[int]:
        """Return the members of other pipelines that lack a member themselves."""
        return {member for other, one in enumerate(self.states) if other != k and one.lacks for member in one.held}

    def released(self, member: int) -> int:
        """Take a member from the pipeline that it waits in; return which."""
        for k, state in enumerate(self.states):
            if member in state.holders:
                state.holders[state.holders.index(member)] = OUT
                return k
        raise AssertionError(member)

    def next_chance(self, state: _State, now: float) -> float:
        """Return when the next member comes that could hold a place of a pipeline [s]."""
        able = set[int]().union(*state.able) - self.busy
        return min((self.starts[member][bisect_right(self.starts[member], now)] for member in able), default=inf)

    def leave(self, k: int, now: float) -> None:
        """Let the holders of a pipeline leave whose stay ends."""
        state = self.states[k]
        for place, member in enumerate(state.holders):
            if member != OUT and self.stay(member, now)[0] > now:
                self.busy.discard(member)
                state.holders[place] = OUT
        self.fall(k, now)
        self.fill(k, now)
        if state.lacks:  # its members may complete another one
            for other, one in enumerate(self.states):
                if other != k and one.lacks:
                    self.fill(other, now)

    # Pipelines ------------------------------------------------------------------------------------

    def rise(self, k: int, now: float) -> None:
        """Let a pipeline serve; requests without a seat are divided anew."""
        state = self.states[k]
        taken = dict(zip((one.member for one in state.pipeline.places), state.holders, strict=True))
        surface = self.surface_of(state.pipeline.layout.with_members(taken))
        worked = tuple((taken[one.member], one.work) for one in state.pipeline.places)
        state.running, state.since = Running(self.scheduler, surface, worked, now), now
        self.note(now)
        self.divide(now, anew=True)

    def fall(self, k: int, now: float) -> None:
        """Let a pipeline serve no longer; what it had begun waits in front, to be computed again."""
        state, running = self.states[k], self.states[k].running
        if running is None:
            return
        if running.outstanding:
            running.run(now)
            running.forget(now)
            self.harvest(running)
        state.spent += self.within(now) - self.within(state.since)
        for place, i in enumerate(running.ids):
            if running.replica.times.last[place] >= 0.0:
                continue
            if place < running.begun:
                self.account(running, place)
                self.broken(running, place, i, now)
            self.wait(i)
        state.running = None
        self.note(now)
        self.divide(now, anew=True)

    def broken(self, running: Running, place: int, i: int, now: float) -> None:
        """Let a request be computed again as far as it was; its user waits for that as patiently as for the first time."""
        self.out.interrupted[i] += 1
        if running.replica.times.first[place] >= 0.0:
            self.generated[i] += running.steps(place) + 1
        elif self.out.first[i] < 0.0:
            self.out.admitted[i] = NEVER
        self.deadline[i] = now + self.patience
        self.push(self.deadline[i], EXPIRE, 0, i)

    def within(self, now: float) -> float:
        """Return a time, at most the horizon [s]."""
        return min(now, self.horizon)

    def note(self, now: float) -> None:
        """Keep how many pipelines can serve from now on."""
        self.out.timeline.append((now, sum(one.running is not None for one in self.states)))

    def serve(self, k: int, until: float) -> None:
        """Let a pipeline serve up to a time."""
        running = self.states[k].running
        if running is not None and running.outstanding:
            running.run(until)
            self.harvest(running)

    # Requests -------------------------------------------------------------------------------------

    def wait(self, i: int) -> None:
        """Let a request wait, in order of arrival."""
        self.queued.add(i)
        heappush(self.queue, i)

    def arrive(self, i: int, now: float) -> None:
        """Take a request."""
        for k in range(len(self.states)):
            self.serve(k, now)
        self.wait(i)
        self.push(self.deadline[i], EXPIRE, 0, i)
        self.divide(now)

    def divide(self, now: float, *, anew: bool = False) -> None:
        """Hand waiting requests to the pipelines with the fewest in flight; `anew`, those too that have no seat there yet."""
        able = [(k, one.running) for k, one in enumerate(self.states) if one.running is not None]
        for k, running in able if anew else ():
            self.serve(k, now)
            while len(running.ids) > running.begun:
                self.wait(running.ids[-1])
                running.drop(len(running.ids) - 1)
        while self.queue and able:
            i = heappop(self.queue)
            if i not in self.queued:
                continue
            self.queued.remove(i)
            self.given[i], running = min(able, key=lambda one: one[1].outstanding)
            running.give(i, now, self.inputs[i] + self.generated[i], self.outputs[i] - 1 - self.generated[i])

    def expire(self, i: int, now: float) -> None:
        """Let a user give up who waits for a seat still."""
        if now < self.deadline[i] or self.out.left[i] >= 0.0 or self.out.last[i] >= 0.0:
            return
        if i in self.queued:
            self.queued.remove(i)
            self.out.left[i] = now
            return
        k = self.given[i]
        running = self.states[k].running
        if running is None or i not in running.ids[running.begun :]:
            return
        self.serve(k, now)
        place = running.ids.index(i)
        if place >= running.begun:
            running.drop(place)
            self.out.left[i] = now

    def harvest(self, running: Running) -> None:
        """Write the times of what a pipeline has begun or ended."""
        times, out = running.replica.times, self.out
        for place in range(running.finished, running.begun):
            i = running.ids[place]
            if out.admitted[i] < 0.0:
                out.admitted[i] = times.admitted[place]
            if out.first[i] < 0.0:
                out.first[i] = times.first[place]
            if times.last[place] >= 0.0 and out.last[i] < 0.0:
                out.last[i] = times.last[place]
                self.account(running, place)
                self.credit(i)
        while running.finished < running.begun and times.last[running.finished] >= 0.0:
            running.finished += 1

    def account(self, running: Running, place: int) -> None:
        """Count the tokens that a pipeline computed for a request that it had begun."""
        i, tokens = running.ids[place], running.tokens(place)
        again = min(self.computed[i], tokens)
        self.computed[i] = max(self.computed[i], tokens)
        self.out.tokens += tokens
        self.out.again += again
        self.parts[i].append((running.worked, tokens, again))

    def credit(self, i: int) -> None:
        """Credit the members with the work of an answer that was finished."""
        for worked, tokens, again in self.parts[i]:
            for member, work in worked:
                self.out.useful[member] += work * (tokens - again)

    def close(self, now: float) -> None:
        """End the simulation: what is left was not served."""
        for state in self.states:
            running = state.running
            if running is None:
                continue
            state.spent += self.within(now) - self.within(state.since)
            for place in range(running.finished, running.begun):
                if running.replica.times.last[place] < 0.0:
                    self.account(running, place)
        self.out.up = [one.spent / self.horizon for one in self.states]
        for parts in self.parts:
            for worked, tokens, _ in parts:
                for member, work in worked:
                    self.out.work[member] += work * tokens

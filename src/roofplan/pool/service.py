"""A pool that serves: members come and go, pipelines lose stages and get them back, requests wait and are served.

A pipeline serves on the simulator's event core from one change of its members to the next. When a stage leaves, its place
goes to the quickest spare with room for it, the weights are loaded again, and the requests in flight are computed again as
far as they were. Requests wait in order of arrival; whoever waits longer than the users' patience for a first token leaves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

import numpy as np

from roofplan.load.requests import Requests
from roofplan.pool.churn import Sessions
from roofplan.pool.layout import Layout
from roofplan.serving.surface import Surface
from roofplan.simulation import core
from roofplan.simulation.core import OUT, Scheduler
from roofplan.simulation.replicas import Replica

Array = np.ndarray

NEVER = -1.0
"""Stands for a time that did not come [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a pipeline.

    Parameters
    ----------
    member : who holds it in the plan.
    layers : its layers; `work`, FLOP of a token in them.
    fits : whether each member has the memory, shape (members,).
    time : of a token on each member, with its messages, shape (members,) [s].
    load : time in which each member gets the weights, shape (members,) [s].
    """

    member: int
    layers: tuple[int, int]
    work: float
    fits: Array
    time: Array
    load: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline of the plan.

    Parameters
    ----------
    layout : who holds which layers.
    places : one for each member of the layout, the one that asks among them.
    reload : time in which all its places load again, None where only the one that changed does [s].
    """

    layout: Layout
    places: tuple[Place, ...]
    reload: float | None


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


Worked = tuple[tuple[int, float], ...]
"""Members of a pipeline with the FLOP of a token on each [FLOP]."""


class _Engine:
    """A pipeline between two changes of its members: requests on the event core."""

    def __init__(self, scheduler: Scheduler, surface: Surface, worked: Worked, now: float) -> None:
        self.scheduler, self.surface, self.worked = scheduler, surface, worked
        self.replica = Replica(scheduler, 0)
        self.replica.state.clock[0] = now
        self.ids: list[int] = []
        self.finished = 0

    @property
    def outstanding(self) -> int:
        """Requests in flight [1]."""
        return self.replica.outstanding

    @property
    def begun(self) -> int:
        """Requests that came to a seat [1]."""
        return int(self.replica.state.counts[0])

    def give(self, request: int, now: float, tokens: int, turns: int) -> None:
        """Hand it a request: tokens of the prompt with what was generated before, and decode steps."""
        self.replica.give(now, now, tokens, 0, turns)
        state = self.replica.state
        for queue, start in (
            (state.ends, OUT),
            (state.since, 0),
            (state.base, 0),
            (state.turned, 0),
            (state.late, 0.0),
        ):
            queue.append(start)
        self.ids.append(request)

    def run(self, until: float) -> None:
        """Serve up to a time."""
        r = self.replica
        core.run(self.scheduler, self.surface, r.requests, r.times, r.state, until)

    def drop(self, place: int) -> None:
        """Forget a request that has no seat yet."""
        state, r = self.replica.state, self.replica
        for queue in (*r.requests, *r.times, state.ends, state.since, state.base, state.turned, state.late, self.ids):
            del queue[place]
        state.sent[core.SENT] -= 1
        state.sent[core.ALL] -= 1

    def steps(self, place: int) -> int:
        """Return the decode steps that a request has done [1]."""
        state = self.replica.state
        if self.replica.times.last[place] >= 0.0:
            return int(self.replica.requests.turns[place])
        done = state.turned[place]
        if state.ends[place] != OUT:
            done += state.counts[1] - state.since[place]
        return int(done)


class Service:
    """A pool that serves requests up to a horizon.

    Parameters
    ----------
    pipelines : of the plan.
    sessions : of each member.
    requests : in order of arrival.
    scheduler : how a pipeline fills its steps.
    surface_of : step times of a layout.
    patience : longest wait for a first token [s].
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
        patience: float,
        horizon: float,
    ) -> None:
        count = len(requests)
        assert requests.arrivals is not None
        self.pipelines, self.scheduler = pipelines, scheduler
        self.surface_of, self.patience, self.horizon = surface_of, patience, horizon
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
        self.generated = [0] * count
        self.computed = [0] * count
        self.parts: list[list[tuple[Worked, int, int]]] = [[] for _ in range(count)]
        self.hall: deque[int] = deque()
        self.watched: set[int] = set()
        self.engines: list[_Engine | None] = [None] * len(pipelines)
        self.holders = [[OUT] * len(one.places) for one in pipelines]
        self.last_holder = [[OUT] * len(one.places) for one in pipelines]
        self.stamp, self.since = [0] * len(pipelines), [0.0] * len(pipelines)
        self.spent = [0.0] * len(pipelines)
        self.events: list[tuple[float, int, int, int, int]] = []
        self.number = 0
        self.busy = np.zeros(len(sessions), bool)
        self.starts = [[*one.starts.tolist(), inf] for one in sessions]
        self.ends = [[*one.ends.tolist(), inf] for one in sessions]
        self.start = np.array([one[0] for one in self.starts])
        self.end = np.array([one[0] for one in self.ends])

    def run(self, progress: Callable[[float], None] | None = None) -> Outcome:
        """Serve, and return what happened; `progress` is told the time."""
        for k, pipeline in enumerate(self.pipelines):
            self.fill(k, 0.0, first=pipeline)
        due, count, now = 0, len(self.arrivals), 0.0
        while True:
            at = self.arrivals[due] if due < count else inf
            if due == count and not self.open():
                break
            now = min(at, self.events[0][0] if self.events else inf)
            if now > self.horizon + DRAINED:
                break
            if self.events and self.events[0][0] <= at:
                _, _, what, k, stamp = heappop(self.events)
                self.happen(what, k, stamp, now)
            else:
                self.arrive(due, now)
                due += 1
                if progress is not None and due % 256 == 0:
                    progress(now)
        self.close(min(now, self.horizon + DRAINED))
        return self.out

    def open(self) -> bool:
        """Return whether requests are left."""
        if not self.hall and all(one is None or not one.outstanding for one in self.engines):
            return False
        for k, one in enumerate(self.engines):
            if one is not None and one.outstanding:
                one.run(min(self.events[0][0] if self.events else inf, self.horizon + DRAINED))
                self.harvest(k)
        return bool(self.hall) or any(one is not None and one.outstanding for one in self.engines)

    def push(self, time: float, what: int, k: int, stamp: int) -> None:
        """Let something happen at a time."""
        self.number += 1
        heappush(self.events, (time, self.number, what, k, stamp))

    def happen(self, what: int, k: int, stamp: int, now: float) -> None:
        """Let something happen, unless a later change made it void."""
        if what == EXPIRE:
            self.expire(now, stamp)
        elif stamp != self.stamp[k]:
            return
        elif what == LEAVE:
            self.leave(k, now)
        elif what == UP:
            self.rise(k, now)
        else:
            self.fill(k, now)

    # Members --------------------------------------------------------------------------------------

    def there(self, now: float) -> Array:
        """Return who is there at a time, shape (members,)."""
        for member in np.flatnonzero(self.end <= now).tolist():
            place = min(bisect_right(self.ends[member], now), len(self.ends[member]) - 1)
            self.start[member], self.end[member] = self.starts[member][place], self.ends[member][place]
        return np.asarray(self.start <= now)

    def fill(self, k: int, now: float, first: Pipeline | None = None) -> None:
        """Give the empty places of a pipeline to members who are there: to spares, else to those of pipelines that wait too."""
        self.stamp[k] += 1
        pipeline, holders = self.pipelines[k], self.holders[k]
        empty = [place for place, member in enumerate(holders) if member == OUT]
        spare = self.there(now) & ~self.busy
        chosen = self.matched(k, empty, spare)
        if len(chosen) < len(empty):
            idle = self.idle(k)
            better = self.matched(k, empty, spare | (idle & self.there(now)))
            chosen = better if len(better) == len(empty) else chosen
        robbed, loads = [], [0.0]
        for place, member in chosen.items():
            robbed += self.released(member)
            holders[place], self.busy[member] = member, True
            if self.last_holder[k][place] not in {OUT, member}:
                self.out.replaced += 1
            self.last_holder[k][place] = member
            loads.append(float(pipeline.places[place].load[member]))
        held = [member for member in holders if member != OUT]
        if held:
            self.push(float(min(self.end[member] for member in held)), LEAVE, k, self.stamp[k])
        if len(held) == len(holders):
            load = max(loads) if pipeline.reload is None else pipeline.reload
            self.push(now if first is not None else now + load, UP, k, self.stamp[k])
        else:
            self.push(self.next_chance(k, now), FILL, k, self.stamp[k])
        for other in robbed:
            self.fill(other, now)

    def matched(self, k: int, empty: Sequence[int], free: Array) -> dict[int, int]:
        """Return members for empty places: that of the plan where it is free, else the quickest with room."""
        free, chosen = free.copy(), {}
        for place in empty:
            one = self.pipelines[k].places[place]
            able = free & one.fits
            if not able.any():
                continue
            chosen[place] = one.member if able[one.member] else int(np.argmin(np.where(able, one.time, inf)))
            free[chosen[place]] = False
        return chosen

    def idle(self, k: int) -> Array:
        """Return the members of other pipelines that lack a member themselves, shape (members,)."""
        out = np.zeros(len(self.busy), bool)
        for other, holders in enumerate(self.holders):
            if other != k and OUT in holders:
                out[[member for member in holders if member != OUT]] = True
        return out

    def released(self, member: int) -> list[int]:
        """Take a member from the pipeline that it waits in; return which, if any."""
        for k, holders in enumerate(self.holders) if self.busy[member] else ():
            if member in holders:
                holders[holders.index(member)] = OUT
                return [k]
        return []

    def next_chance(self, k: int, now: float) -> float:
        """Return when the next member comes that fits an empty place of a pipeline [s]."""
        fits = np.zeros(len(self.busy), bool)
        for one, member in zip(self.pipelines[k].places, self.holders[k], strict=True):
            if member == OUT:
                fits |= one.fits
        coming = np.where(fits & ~self.busy & (self.start > now), self.start, inf)
        away = np.where(fits & ~self.busy & (self.start <= now), self.ahead(now), inf)
        return float(min(coming.min(), away.min()))

    def ahead(self, now: float) -> Array:
        """Return when members who are there now come again after they leave, shape (members,) [s]."""
        out = np.full(len(self.busy), inf)
        for member in np.flatnonzero((self.start <= now) & ~self.busy).tolist():
            out[member] = self.starts[member][bisect_right(self.starts[member], now)]
        return out

    def leave(self, k: int, now: float) -> None:
        """Let the holders of a pipeline leave whose stay ends."""
        gone = [place for place, member in enumerate(self.holders[k]) if member != OUT and self.end[member] <= now]
        for place in gone:
            self.busy[self.holders[k][place]] = False
            self.holders[k][place] = OUT
        self.fall(k, now)
        self.fill(k, now)
        if OUT in self.holders[k]:  # its members may complete another one
            for other, holders in enumerate(self.holders):
                if other != k and OUT in holders:
                    self.fill(other, now)

    # Pipelines ------------------------------------------------------------------------------------

    def rise(self, k: int, now: float) -> None:
        """Let a pipeline serve; requests without a seat elsewhere are divided anew."""
        pipeline, holders = self.pipelines[k], self.holders[k]
        taken = dict(zip((one.member for one in pipeline.places), holders, strict=True))
        surface = self.surface_of(pipeline.layout.with_members(taken))
        worked = tuple((taken[one.member], one.work) for one in pipeline.places)
        self.engines[k], self.since[k] = _Engine(self.scheduler, surface, worked, now), now
        self.note(now)
        waiting = []
        for other, engine in enumerate(self.engines):
            if engine is not None and other != k:
                self.serve(other, now)
                while len(engine.ids) > engine.begun:
                    waiting.append(engine.ids[-1])
                    engine.drop(len(engine.ids) - 1)
        self.hall.extendleft(sorted(waiting, reverse=True))
        self.divide(now)

    def fall(self, k: int, now: float) -> None:
        """Let a pipeline serve no longer; what it had begun waits in front, to be computed again."""
        engine = self.engines[k]
        if engine is None:
            return
        self.serve(k, now)
        self.spent[k] += max(0.0, now - self.since[k])
        lost = []
        for place, i in enumerate(engine.ids):
            if engine.replica.times.last[place] >= 0.0:
                continue
            self.account(engine, place)
            if place < engine.begun:
                self.out.interrupted[i] += 1
            if engine.replica.times.first[place] >= 0.0:
                self.generated[i] += engine.steps(place) + 1
            lost.append(i)
        self.engines[k] = None
        self.note(now)
        self.hall.extendleft(sorted(lost, reverse=True))
        self.divide(now)

    def note(self, now: float) -> None:
        """Keep how many pipelines can serve from now on."""
        self.out.timeline.append((now, sum(one is not None for one in self.engines)))

    def serve(self, k: int, until: float) -> None:
        """Let a pipeline serve up to a time."""
        engine = self.engines[k]
        if engine is not None and engine.outstanding:
            engine.run(until)
            self.harvest(k)

    # Requests -------------------------------------------------------------------------------------

    def arrive(self, i: int, now: float) -> None:
        """Take a request."""
        for k, engine in enumerate(self.engines):
            if engine is not None and engine.replica.state.sent[core.DONE] < engine.replica.state.sent[core.SENT]:
                engine.run(now)
                self.harvest(k)
        self.hall.append(i)
        self.divide(now)

    def divide(self, now: float) -> None:
        """Hand waiting requests to the pipelines with the fewest in flight."""
        able = [one for one in self.engines if one is not None]
        while self.hall and able:
            i = self.hall.popleft()
            if self.out.last[i] >= 0.0 or self.out.left[i] >= 0.0:
                continue
            engine = min(able, key=lambda one: one.outstanding)
            if engine.outstanding >= self.scheduler.seats:
                self.watch(i)
            engine.give(i, now, self.inputs[i] + self.generated[i], self.outputs[i] - 1 - self.generated[i])
        for i in self.hall:
            self.watch(i)

    def watch(self, i: int) -> None:
        """Let a waiting user give up when the patience ends."""
        if self.out.first[i] < 0.0 and i not in self.watched:
            self.watched.add(i)
            self.push(self.arrivals[i] + self.patience, EXPIRE, 0, i)

    def expire(self, now: float, i: int) -> None:
        """Let a user give up who still waits for a seat."""
        if self.out.left[i] >= 0.0 or self.out.last[i] >= 0.0 or self.out.first[i] >= 0.0:
            return
        if i in self.hall:
            self.hall.remove(i)
            self.out.left[i] = now
            return
        for k, engine in enumerate(self.engines):
            if engine is None or i not in engine.ids[engine.begun :]:
                continue
            self.serve(k, now)
            place = engine.ids.index(i)
            if place >= engine.begun:
                engine.drop(place)
                self.out.left[i] = now
            return

    def harvest(self, k: int) -> None:
        """Write the times of what a pipeline has begun or ended."""
        engine = self.engines[k]
        assert engine is not None
        times, out = engine.replica.times, self.out
        for place in range(engine.finished, engine.begun):
            i = engine.ids[place]
            if out.admitted[i] < 0.0:
                out.admitted[i] = times.admitted[place]
            if out.first[i] < 0.0:
                out.first[i] = times.first[place]
            if times.last[place] >= 0.0 and out.last[i] < 0.0:
                out.last[i] = times.last[place]
                self.account(engine, place)
                self.credit(i)
        while engine.finished < engine.begun and times.last[engine.finished] >= 0.0:
            engine.finished += 1

    def account(self, engine: _Engine, place: int) -> None:
        """Count the tokens that a pipeline computed for a request."""
        if place >= engine.begun:
            return
        i, requests = engine.ids[place], engine.replica.requests
        started = engine.replica.times.first[place] >= 0.0
        tokens = (requests.inputs[place] if started else 0) + engine.steps(place)
        again = min(self.computed[i], tokens)
        self.computed[i] = max(self.computed[i], tokens)
        self.out.tokens += tokens
        self.out.again += again
        self.parts[i].append((engine.worked, tokens, again))

    def credit(self, i: int) -> None:
        """Credit the members with the work of an answer that was finished."""
        for worked, tokens, again in self.parts[i]:
            for member, work in worked:
                self.out.useful[member] += work * (tokens - again)

    def close(self, now: float) -> None:
        """End the simulation: what is left was not served."""
        for k, engine in enumerate(self.engines):
            if engine is not None:
                self.spent[k] += max(0.0, min(now, self.horizon) - self.since[k])
        self.out.up = [min(1.0, one / self.horizon) for one in self.spent]
        for parts in self.parts:
            for worked, tokens, _ in parts:
                for member, work in worked:
                    self.out.work[member] += work * tokens

"""Groups that share experts or feed-forwards: they step together, and each step waits for the slowest.

A step takes what the groups share, at their mean tokens, and the longest of the times that each takes for its own part. A group
without requests idles along. So a prompt in one group delays the decoding sequences of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from roofplan.serving.surface import Surface
from roofplan.simulation import core, records
from roofplan.simulation.records import OUT, Requests, Scheduler, State, Times
from roofplan.simulation.steps import least, prompt_step, shared_time, slope_at, turn


class Member:
    """A group: its requests, and its state between steps."""

    def __init__(self, r: Requests, out: Times, state: State) -> None:
        self.r, self.out, self.state = r, out, state
        _, self.free, self.context, self.busy = state.clock[:4]
        self.head, self.steps, self.decoding, self.partial, self.computed, self.prompts = state.counts

    def plan(self, s: Scheduler, t: Surface, now: float) -> Part:
        """Admit what the next step computes, and return it."""
        state, lost = self.state, False
        need = core.wanted(s, state, self.steps, self.decoding, 1)
        if need > self.free:
            lost = True
            self.free, self.context, self.decoding, self.partial = core.preempt(
                s,
                self.r,
                self.out,
                state,
                self.steps,
                self.free,
                self.context,
                self.decoding,
                self.partial,
                self.computed,
            )
            need = core.wanted(s, state, self.steps, self.decoding, 1)
        sent, count = state.sent[records.SENT], 0
        tokens, own = 0, 0.0
        due = self.head < sent and self.r.ready[self.head] <= now
        if self.partial != OUT or ((due or len(state.waiting) > 0) and not lost):
            beside = need if s.mixes else 0.0
            left, self.partial, self.computed, self.head, count, tokens, again, own = core.fill(
                s,
                t,
                self.r,
                self.out,
                state,
                now,
                self.free - beside,
                self.decoding,
                self.partial,
                self.computed,
                self.head,
                sent,
                lost,
            )
            self.free = left + beside
        if count:
            riding = self.decoding if s.mixes else 0
            own += prompt_step(t, riding, self.context, count, tokens, again)
            return Part(count, riding, tokens + riding * t.each, own, 0.0, 1, lost, self.decoding, self.context)
        if not self.decoding:
            return Part(0, 0, 0.0, 0.0, 0.0, 0, lost)
        one, growth, room = slope_at(t, self.decoding, self.context)
        m = core.alike(s, state, self.steps, self.free, self.decoding, 1 if lost else 0, room)
        return Part(
            0, self.decoding, self.decoding * t.each, one, growth * s.grows, m, lost, self.decoding, self.context
        )

    def due(self, s: Scheduler, now: float) -> float:
        """Return when its next request comes, infinite where none gets a seat then [s]."""
        waits = self.head < self.state.sent[records.SENT] and not len(self.state.waiting)
        seated = self.decoding < s.seats and not (s.static and self.decoding)
        return float(self.r.ready[self.head]) if waits and seated and self.r.ready[self.head] > now else inf

    def done(self, s: Scheduler, part: Part, m: int, now: float) -> None:
        """Count m steps that ended."""
        if part.riding:
            self.free -= core.wanted(s, self.state, self.steps, self.decoding, m)
            self.context += m * self.decoding * s.grows
            self.steps += m
        if part.pieces:
            self.prompts += 1
            self.context, self.decoding = core.join(
                s, self.r, self.out, self.state, self.steps, now, 0.0, self.context, self.decoding
            )
        if len(self.state.heap) > 0 and self.state.heap[0] >> records.BITS <= self.steps:
            self.free, self.context, self.decoding = core.leave(
                s, self.r, self.out, self.state, self.steps, now, self.free, self.context, self.decoding
            )

    def keep(self, now: float) -> None:
        """Write the state back."""
        self.state.clock[:4] = [now, self.free, self.context, self.busy]
        self.state.counts[:] = [self.head, self.steps, self.decoding, self.partial, self.computed, self.prompts]


class Part(NamedTuple):
    """What a group does in a step.

    Parameters
    ----------
    pieces : of prompts [1].
    riding : decoding sequences in the step [1].
    tokens : tokens that it computes [token].
    own : time of its own part [s].
    growth : by which its own part takes longer in each step of a row of decode steps [s].
    steps : such steps before something changes in it; 0 without work [1].
    lost : whether it took a request's cache.
    decoding, context : sequences that decode, whether in this step or not, and their cached tokens [1, token].
    """

    pieces: int
    riding: int
    tokens: float
    own: float
    growth: float
    steps: int
    lost: bool
    decoding: int = 0
    context: float = 0.0


def run(s: Scheduler, t: Surface, groups: Sequence[tuple[Requests, Times, State]], until: float) -> None:
    """Serve the requests of groups that step together and write their times, until all have ended or the clock has passed a time.

    Parameters
    ----------
    s : how the engine of each group fills its steps.
    t : time of a step, with what the groups share.
    groups : requests, times that are written, and state of each, changed in place.
    until : time at whose next step boundary they stop [s].
    """
    members = [Member(*one) for one in groups]
    now = max(one.state.clock[0] for one in members)
    while now < until:
        parts = [one.plan(s, t, now) for one in members]
        working = [part for part in parts if part.steps]
        if not working:
            if any(part.lost for part in parts):
                continue
            due = min(one.due(s, now) for one in members)
            if due == inf:
                break  # nobody is left, or the next request does not fit an empty cache
            now = min(until, due)
            continue
        slowest = max(working, key=lambda part: (part.own, part.growth))
        together = shared_time(t, sum(part.tokens for part in working) / len(members))
        if any(part.pieces for part in working):
            before = max(turn(t, part.decoding, part.context) for part in working)
            before += shared_time(t, sum(part.decoding for part in working) * t.each / len(members))
            launching = max(least(t, part.riding, part.pieces, part.tokens, before) for part in working if part.pieces)
            m, seconds = 1, max(slowest.own + together, launching)
        else:
            m = min(*(part.steps for part in working), overtaken(working, slowest))
            gap = min(until, *(one.due(s, now) for one in members)) - now
            m, seconds = core.within(m, slowest.own + together, slowest.growth, gap)
        now += seconds
        for one, part in zip(members, parts, strict=True):
            one.busy += seconds
            one.done(s, part, m, now)
    for one in members:
        one.keep(now)


def overtaken(working: Sequence[Part], slowest: Part) -> int:
    """Return the steps until another group's own part takes longest [1]."""
    faster = [
        (slowest.own - part.own) / (part.growth - slowest.growth) for part in working if part.growth > slowest.growth
    ]
    return int(min(faster)) + 1 if faster else MOST


MOST = 1 << 40
"""Stands for no limit of steps [1]."""

"""A pipeline between two changes of its members: requests on the simulator's event core."""

from __future__ import annotations

from roofplan.serving.surface import Surface
from roofplan.simulation import core, records
from roofplan.simulation.records import OUT, Scheduler
from roofplan.simulation.replicas import Replica

NEVER = -1.0
"""Stands for a time that did not come [s]."""

Worked = tuple[tuple[int, float], ...]
"""Members of a pipeline with the FLOP of a token on each [FLOP]."""


class Running:
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
            (state.kept, 0),
            (state.behind, 0.0),
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
        each = (state.ends, state.since, state.base, state.turned, state.late, state.kept, state.behind)
        for queue in (*r.requests, *r.times, *each, self.ids):
            del queue[place]
        state.sent[records.SENT] -= 1
        state.sent[records.ALL] -= 1

    def forget(self, now: float) -> None:
        """Undo what a step that was still under way at a time would have brought: first tokens beyond it."""
        first = self.replica.times.first
        for place in range(self.finished, self.begun):
            if first[place] > now:
                first[place] = NEVER

    def tokens(self, place: int) -> int:
        """Return the tokens that were computed for a request: its prompt, as far as it came, and its decode steps [token]."""
        state = self.replica.state
        if self.replica.times.first[place] >= 0.0:
            return int(self.replica.requests.inputs[place]) + self.steps(place)
        return int(state.counts[4]) if state.counts[3] == place else 0

    def steps(self, place: int) -> int:
        """Return the decode steps that a request has done [1]."""
        state = self.replica.state
        if self.replica.times.last[place] >= 0.0:
            return int(self.replica.requests.turns[place])
        done = state.turned[place]
        if state.ends[place] != OUT:
            done += state.counts[1] - state.since[place]
        return int(done)

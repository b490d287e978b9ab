"""Replicas behind a front end: requests are parsed one by one, routed, and served by each replica's own engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from roofplan.errors import InputError
from roofplan.load.requests import Requests
from roofplan.serving.surface import Surface
from roofplan.simulation import core, lockstep, records
from roofplan.simulation.records import Scheduler

Array = np.ndarray

LEAST, ROUND_ROBIN = ROUTES = ("least-outstanding", "round-robin")
"""How requests are given to replicas: to the one with the fewest requests in flight, or in turn."""

Run = Callable[..., Any]
"""`core.run`, or what `fast.compiled` makes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What happened to each request, in order of arrival; all arrays have shape (requests,).

    Parameters
    ----------
    arrivals, admitted, first, last : when it was sent, got a seat, and its client got its first and last tokens [s].
    inputs, outputs, cached : tokens of prompt and answer, and of the prompt found in the cache [token].
    preempted : how often its cache was given to others [1].
    replica : that served it.
    busy : share of the time that replicas were in a step [1].
    steps, prompt_steps : decode steps, and steps with prompts, of all replicas [1].
    """

    arrivals: Array
    admitted: Array
    first: Array
    last: Array
    inputs: Array
    outputs: Array
    cached: Array
    preempted: Array
    replica: Array
    busy: float
    steps: int
    prompt_steps: int

    def figure(self, name: str, warmup: int = 0) -> Array:
        """Return a figure of each request that has it, the first `warmup` left out: ``ttft``, ``tpot``, ``e2e`` or ``waiting`` [s]."""
        if name == "tpot":
            several = np.flatnonzero(self.outputs > 1)
            several = several[several >= warmup]
            return np.asarray((self.last - self.first)[several] / (self.outputs[several] - 1))
        ends = {"ttft": self.first, "e2e": self.last, "waiting": self.admitted}
        return np.asarray((ends[name] - self.arrivals)[warmup:])


def through_front(arrivals: Array, front: float) -> Array:
    """Return when a front end passes requests on; it takes a time for each, and those of one burst leave together.

    Parameters
    ----------
    arrivals : in order, shape (requests,) [s].
    front : time of a request [s].

    Returns
    -------
    Times, shape (requests,) [s].
    """
    if front <= 0.0 or not len(arrivals):
        return arrivals.copy()
    places = np.arange(len(arrivals))
    ready = (places + 1) * front + np.maximum.accumulate(arrivals - places * front)
    return np.full(len(arrivals), ready[-1]) if arrivals[0] == arrivals[-1] else np.asarray(ready)


class Replica:
    """One group of an engine and the requests that are given to it."""

    def __init__(self, s: Scheduler, total: int) -> None:
        self.requests = records.Requests([], [], [], [], [])
        self.times = records.Times([], [], [], [])
        self.state = records.started(s, total, 0)
        self.state.sent[records.ALL] = 0

    @property
    def outstanding(self) -> int:
        """Requests in flight [1]."""
        return int(self.state.sent[records.SENT] - self.state.sent[records.DONE])

    def give(self, arrival: float, ready: float, new: int, cached: int, turns: int) -> None:
        """Hand it a request."""
        for queue, value in zip(self.requests, (arrival, ready, new, cached, turns), strict=True):
            queue.append(value)
        for queue, start in zip(self.times, (-1.0, -1.0, -1.0, 0), strict=True):
            queue.append(start)
        self.state.sent[records.SENT] += 1
        self.state.sent[records.ALL] += 1


def lists(record: Any) -> Any:
    """Return a record of arrays as one of lists, which plain Python reads faster.

    Parameters
    ----------
    record : a named tuple.

    Returns
    -------
    The record of lists.
    """
    return type(record)(*(one.tolist() if isinstance(one, np.ndarray) else one for one in record))


def _started(s: Scheduler, total: int, sent: int) -> tuple[records.Times, records.State]:
    """Return times to be written, and the state of an engine that some requests are known to come to, for plain Python."""
    times = records.Times([-1.0] * total, [-1.0] * total, [-1.0] * total, [0] * total)
    return times, records.started(s, total, sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Equal replicas and the way to them.

    Parameters
    ----------
    scheduler, surface : of each replica.
    replicas : their number [1].
    together : how many of them, one after the other, share what the surface says, and step together [1].
    route : one of `ROUTES`.
    run : compiled core, None for plain Python.
    """

    scheduler: Scheduler
    surface: Surface
    replicas: int
    together: int = 1
    route: str = LEAST
    run: Run | None = None

    def serve(self, requests: Requests, cached: Array, clients: int | None = None) -> Served:
        """Return what happens to requests.

        Parameters
        ----------
        requests : with arrivals, or of clients who each send their next one when the last has ended.
        cached : tokens of each prompt in the cache, shape (requests,) [token].
        clients : of a closed loop, None for requests with arrivals [1].

        Returns
        -------
        Times of all requests.
        """
        total, several = len(requests), self.replicas > 1
        turns = np.ceil((requests.outputs - 1) / self.scheduler.grows).astype(np.int64)
        columns = (requests.inputs, cached, turns)
        if clients is None and several and self.route == LEAST:
            return self._least(requests, columns)
        given: list[tuple[Array, records.Requests, int]] = []
        turn = np.arange(total) if clients is None else np.arange(total) % clients
        for k in range(self.replicas):
            mine = np.flatnonzero(turn % self.replicas == k)  # in turn, and each client's at one replica
            own = tuple(column[mine] for column in columns)
            sent = len(mine)
            if clients is None:
                assert requests.arrivals is not None
                arrivals, ready = (one[mine] for one in (requests.arrivals, self._ready(requests.arrivals)))
            else:
                sent = min(len(mine), clients // self.replicas + (k < clients % self.replicas))
                arrivals = np.zeros(len(mine))
                ready = np.full(len(mine), min(clients, total) * self.scheduler.front + self.scheduler.delay)
            given.append((mine, records.Requests(arrivals, ready, *own), sent))
        parts = [mine for mine, _, _ in given]
        # the replicas of a closed loop share the front end
        own_front = self.scheduler._replace(front=self.scheduler.front * min(self.replicas, clients or 1))
        if self.together == 1:
            return self._joined(requests, cached, parts, [self._alone(own_front, r, sent) for _, r, sent in given])
        table = lists(self.surface)
        found = [(lists(r), *_started(own_front, len(mine), sent)) for mine, r, sent in given]
        for start in range(0, len(found), self.together):
            lockstep.run(own_front, table, found[start : start + self.together], inf)
        return self._joined(requests, cached, parts, found)

    def _ready(self, arrivals: Array) -> Array:
        return through_front(arrivals, self.scheduler.front) + self.scheduler.delay

    def _alone(
        self, s: Scheduler, requests: records.Requests, sent: int
    ) -> tuple[records.Requests, records.Times, records.State]:
        """Return a replica's requests, their times and its state after all have ended."""
        total = len(requests.inputs)
        if self.run is None:
            mine, (times, state) = lists(requests), _started(s, total, sent)
            core.run(s, lists(self.surface), mine, times, state, inf)
            return mine, times, state
        times = records.Times(
            admitted=np.full(total, -1.0),
            first=np.full(total, -1.0),
            last=np.full(total, -1.0),
            preempted=np.zeros(total, np.int64),
        )
        mine = records.Requests(*(np.ascontiguousarray(one) for one in requests))
        return mine, times, self.run(s, self.surface, mine, times, records.started(s, total, sent, arrays=True), inf)

    def _least(self, requests: Requests, columns: tuple[Array, ...]) -> Served:
        """Return what happens to requests that each go to the replica with the fewest requests in flight."""
        assert requests.arrivals is not None
        table = lists(self.surface)
        each = [Replica(self.scheduler, len(requests)) for _ in range(self.replicas)]
        found = [(one.requests, one.times, one.state) for one in each]

        def advance(until: float) -> None:
            for start in range(0, len(found), self.together):
                if self.together > 1:
                    lockstep.run(self.scheduler, table, found[start : start + self.together], until)
                else:
                    core.run(self.scheduler, table, *found[start], until)

        parts: list[list[int]] = [[] for _ in each]
        rows = zip(
            requests.arrivals.tolist(),
            self._ready(requests.arrivals).tolist(),
            *(c.tolist() for c in columns),
            strict=True,
        )
        for i, (arrival, ready, new, held, turns) in enumerate(rows):
            advance(ready)
            k = min(range(len(each)), key=lambda one: (each[one].outstanding, len(parts[one])))
            each[k].give(arrival, ready, new, held, turns)
            parts[k].append(i)
        advance(inf)
        return self._joined(requests, columns[1], [np.array(part, np.int64) for part in parts], found)

    def _joined(
        self,
        requests: Requests,
        cached: Array,
        parts: list[Array],
        found: list[tuple[records.Requests, records.Times, records.State]],
    ) -> Served:
        """Return the times of all requests in the order of the load."""
        if any(state.sent[records.DONE] < state.sent[records.ALL] for _, _, state in found):
            raise InputError("--input, --output: a request is longer than the cache of a replica", argument="--input")
        total = len(requests)
        names = ("arrivals", "admitted", "first", "last")
        out = {name: np.zeros(total) for name in names}
        preempted, replica = np.zeros(total, np.int64), np.zeros(total, np.int64)
        for k, (mine, (own, times, _)) in enumerate(zip(parts, found, strict=True)):
            for name, values in zip(names, (own.arrivals, times.admitted, times.first, times.last), strict=True):
                out[name][mine] = values
            preempted[mine], replica[mine] = times.preempted, k
        if self.scheduler.static:
            _end_together(out)
        span = float(out["last"].max()) if total else 0.0
        busy = sum(state.clock[3] for _, _, state in found)
        return Served(
            **out,
            inputs=requests.inputs,
            outputs=requests.outputs,
            cached=cached,
            preempted=preempted,
            replica=replica,
            busy=float(busy / (span * self.replicas)) if span else 0.0,
            steps=int(sum(state.counts[1] for _, _, state in found)),
            prompt_steps=int(sum(state.counts[5] for _, _, state in found)),
        )


def _end_together(out: dict[str, Array]) -> None:
    """Let the requests of a static batch, which are admitted at once, end with the longest answer among them."""
    _, batch = np.unique(out["admitted"], return_inverse=True)
    ends = np.zeros(batch.max() + 1)
    np.maximum.at(ends, batch, out["last"])
    out["last"] = ends[batch]

"""Simulate a server's queue step by step: requests in one burst, in a closed loop, or at a constant rate.

`predict` gives the steady state of a full server. This module predicts a measurement of finite length: the ramp while
the first prompts are computed, queueing, and the tail in which the longest answers run alone. Requests are served in
order of arrival with continuous batching. Before that, the server's front end parses, tokenises and passes on one
request at a time; it returns no tokens until it has passed on all requests that arrived together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from roofplan.laws import batching, memory
from roofplan.operations.table import Step
from roofplan.records.engine import Engine
from roofplan.records.model import Model
from roofplan.records.strategy import Strategy
from roofplan.records.workload import Workload
from roofplan.serving.step import engine_term, step_term
from roofplan.timing.rates import Rates

StepTime = Callable[[float, int], float]
"""Time of a step from its prompt tokens and its decoding sequences [s]."""

RUNNING_POINTS, PROMPT_POINTS = 14, 7
"""Grid points at which the time of a step is computed; it is interpolated linearly between them [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Arrivals of requests at one group of a server.

    Parameters
    ----------
    requests : total number of requests [1].
    varied : whether lengths are exponentially distributed around the workload's means, rather than all equal.
    clients : maximum number of requests in flight in a closed loop; None for no limit [1].
    rate : constant arrival rate, None if all requests are sent at the start [1/s].
    """

    requests: int
    varied: bool = False
    clients: int | None = None
    rate: float | None = None

    def lengths(self, mean: float) -> list[int]:
        """Return the tokens of each request: all the mean, or exponential quantiles in a fixed random order [token].

        The standard deviation of prompt and answer lengths in conversations is about their mean; in ShareGPT it is
        between 1 and 1.5 times the mean.
        """
        if not self.varied:
            return [max(1, round(mean))] * self.requests
        middles = (np.arange(self.requests) + 0.5) / self.requests
        drawn = np.maximum(1, np.round(-np.log1p(-middles) * mean)).astype(int)
        order = np.random.default_rng(round(mean)).permutation(self.requests)
        return [int(length) for length in drawn[order]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Times of each request as its client measures them.

    Parameters
    ----------
    first : time from sending a request to its first token [s].
    between : mean time between tokens after the first, including stalls by other users' prompts; only requests with
        several tokens [s].
    cycles : time from sending a request to its last token, over its tokens [s].
    rate : output tokens over the time from the first request to the last answer [token/s].
    running : mean number of decoding sequences in a step [1].
    """

    first: list[float]
    between: list[float]
    cycles: list[float]
    rate: float
    running: float

    @property
    def ttft(self) -> float:
        """Mean time to the first token [s]."""
        return float(np.mean(self.first))

    @property
    def tpot(self) -> float | None:
        """Mean time between tokens over requests, None if no answer has several tokens [s]."""
        return float(np.mean(self.between)) if self.between else None


def surface(
    model: Model,
    strategy: Strategy,
    workload: Workload,
    r: Rates,
    *,
    kv_bytes: float,
    seats: int,
    budget: float,
) -> StepTime:
    """Return the step time of one group, interpolated on a grid of prompt tokens and decoding sequences.

    With pipeline stages, a step is one round of all stages, each working on its own part of the sequences.

    Parameters
    ----------
    model : its layers and dimensions.
    strategy : degrees of parallelism of one layout.
    workload : mean lengths and prefix hit rate.
    r : achieved rates of the machine under the engine.
    kv_bytes : bytes of one cached number [B].
    seats : limit of running requests of the group [1].
    budget : tokens that one step may compute [token].

    Returns
    -------
    Function of prompt tokens and decoding sequences that returns a step time [s].
    """
    stages = float(strategy.pp)
    running = np.unique(np.round(np.geomspace(1.0, max(2.0, float(seats)), RUNNING_POINTS)))
    prompt = np.unique(np.round(np.geomspace(max(1.0, budget / 64.0), max(2.0, budget), PROMPT_POINTS)))
    decodes = Step(
        sequences=running / stages, context=1.0 * memory.mean_resident_tokens(workload.input, workload.output)
    )
    fresh = max(1.0, workload.input * (1.0 - workload.prefix_hit))
    # an engine with micro-batches splits a step's prompts into several; decoding sequences run in the first
    passes = (
        np.asarray(batching.chunks(prompt, 1.0 * r.engine.pass_tokens(budget))) if isinstance(r.engine, Engine) else 1.0
    )
    each = prompt / passes / stages
    prompts = Step(new=each, past=workload.input * workload.prefix_hit, requests=each / fresh)
    mixed = replace(
        decodes,
        sequences=decodes.sequences[:, None],
        new=prompts.new,
        past=prompts.past,
        requests=prompts.requests,
    )

    def seconds(name: str, step: Step) -> np.ndarray:
        return np.asarray(step_term(name, model, strategy, step, r, kv_bytes=kv_bytes).value) * stages

    host = np.asarray(engine_term(running / stages, r).value)
    table = np.empty((len(running) + 1, len(prompt) + 1))
    table[0, 0] = 0.0
    table[1:, 0] = seconds("decode step", decodes) + host
    alone = seconds("prefill step", prompts)
    table[0, 1:] = alone * passes + float(r.step_base)
    table[1:, 1:] = seconds("mixed step", mixed) + alone * (passes - 1.0) + host[:, None]
    return _between([0.0, *running.tolist()], [0.0, *prompt.tolist()], table.tolist())


def _between(rows: list[float], columns: list[float], table: list[list[float]]) -> StepTime:
    """Return a bilinear interpolation of a table over (columns, rows)."""

    def place(points: list[float], value: float) -> tuple[int, float]:
        here = min(max(bisect_right(points, value) - 1, 0), len(points) - 2)
        return here, (value - points[here]) / (points[here + 1] - points[here])

    def at(new: float, sequences: int) -> float:
        i, u = place(rows, float(sequences)) if sequences else (0, 0.0)
        j, v = place(columns, new) if new else (0, 0.0)
        upper, lower = table[i], table[i + 1]
        if not new:
            return upper[0] + u * (lower[0] - upper[0]) if i else lower[0]
        if not sequences:
            return upper[j] + v * (upper[j + 1] - upper[j]) if j else upper[1]
        j, v = (j, v) if j else (1, 0.0)
        i, u, upper, lower = (i, u, upper, lower) if i else (1, 0.0, table[1], table[2])
        a = upper[j] + v * (upper[j + 1] - upper[j]) if v else upper[j]
        b = lower[j] + v * (lower[j + 1] - lower[j]) if v else lower[j]
        return a + u * (b - a)

    return at


@dataclass(slots=True)
class _Request:
    """A request in flight: when it was sent, prompt tokens left to compute, tokens of its answer."""

    since: float
    left: float
    answer: int
    begun: bool = False


def served(
    arrivals: Arrivals,
    workload: Workload,
    engine: Engine,
    time_of: StepTime,
    *,
    seats: int,
    budget: float,
    front: float = 0.0,
) -> Served:
    """Return the measured times of requests from a step-by-step simulation of one group of a server.

    Parameters
    ----------
    arrivals : number and times of requests, and the distribution of their lengths.
    workload : mean lengths and prefix hit rate.
    engine : engine; it determines whether steps mix prefill and decode.
    time_of : step time as a function of prompt tokens and decoding sequences [s].
    seats : limit of running requests of the group [1].
    budget : tokens that one step may compute [token].
    front : front-end time per request [s].

    Returns
    -------
    Times to the first token, times between tokens, cycle times [s], and rates.
    """
    prompts = arrivals.lengths(workload.input * (1.0 - workload.prefix_hit))
    answers = arrivals.lengths(float(workload.output))
    coming: deque[tuple[float, _Request]] = deque()  # with the time at which the engine receives them
    waiting: deque[_Request] = deque()
    running: list[
        tuple[int, float, int, float]
    ] = []  # (step of the last token, time of the first token, tokens, time of sending)
    sent = done = seated = turns = 0
    now = free = sequences = 0.0
    first: list[float] = []
    between: list[float] = []
    cycles: list[float] = []
    window = arrivals.clients or arrivals.requests
    while done < arrivals.requests:
        due = arrivals.requests
        if arrivals.rate is not None:
            due = min(due, int(now * arrivals.rate + ROUNDING) + 1)
        idle, held = not running and not waiting and not coming, min(due, done + window) - sent
        while sent < min(due, done + window):
            since = now if arrivals.rate is None or arrivals.clients else sent / arrivals.rate
            # requests that arrive together at an idle server are all parsed before any of them is passed on
            free, held = max(free, now if idle else since) + front * (held if idle else 1), 0 if idle else held
            coming.append((free, _Request(since, float(prompts[sent]), answers[sent])))
            sent += 1
        while coming and coming[0][0] <= now:
            waiting.append(coming.popleft()[1])
        room = budget - len(running) if engine.mixes else budget
        new, ended, taken = _admit(waiting, seats - seated, room, cuts=engine.chunked_prefill)
        seated += taken
        if not new and not running:
            now = coming[0][0] if coming else sent / (arrivals.rate or 1.0)  # idle until the next request
            continue
        decodes = len(running) if engine.mixes or not new else 0
        now += time_of(new, decodes)
        turns += bool(decodes)
        sequences += decodes
        while decodes and running and running[0][0] <= turns:
            _, since, answer, start = heappop(running)
            between.append((now - since) / (answer - 1))
            cycles.append((now - start) / answer)
            done, seated = done + 1, seated - 1
        for one in ended:
            first.append(now - one.since)
            if one.answer == 1:
                done, seated = done + 1, seated - 1
                cycles.append(now - one.since)
            else:
                heappush(running, (turns + one.answer - 1, now, one.answer, one.since))
    return Served(
        first=first,
        between=between,
        cycles=cycles,
        rate=sum(answers) / now,
        running=sequences / max(1, turns),
    )


ROUNDING = 1e-9
"""Tolerance on arrival times, so that rounding never hides a request that is due [1]."""


def _admit(waiting: deque[_Request], seats: int, room: float, *, cuts: bool) -> tuple[float, list[_Request], int]:
    """Return the prompt tokens of the next step, the requests whose prompts it completes, and the seats newly taken.

    With chunked prefill (`cuts`), chunks fill the room of the step. Otherwise it computes whole prompts, at least one.
    """
    new, taken = 0.0, 0
    ended: list[_Request] = []
    while waiting and room > 0.0:
        head = waiting[0]
        if not head.begun:
            if taken >= seats or (not cuts and new and room < head.left):
                break
            taken, head.begun = taken + 1, True
        part = min(head.left, room) if cuts else head.left
        new, room, head.left = new + part, room - part, head.left - part
        if head.left > 0.0:
            break
        ended.append(waiting.popleft())
    return new, ended, taken

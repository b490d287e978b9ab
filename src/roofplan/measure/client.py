"""A client that puts a load on an endpoint: an open loop stays open, and a closed one waits for its answers."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from roofplan.load.requests import Requests
from roofplan.measure.exchange import Failure, Target, clock, exchange
from roofplan.measure.sample import Sample
from roofplan.measure.stream import PATHS, Stream, body_of
from roofplan.measure.text import Prompts

LISTEN = 0.01
"""Interval at which the event loop's lateness is looked at [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How an endpoint is asked.

    Parameters
    ----------
    target : where it is.
    api : chat or completions.
    model : id at the server.
    prompts : makes their text.
    timeout : in which an answer must end [s].
    plain : whether only what every server knows is sent.
    length : name of the answer's length at this server.
    """

    target: Target
    api: str
    model: str
    prompts: Prompts
    timeout: float
    plain: bool = False
    length: str = "max_tokens"

    def body(self, number: int, prompt: int, answer: int) -> bytes:
        """Return the body of a request."""
        text = self.prompts.of(number, prompt)
        return body_of(self.api, self.model, text, answer, plain=self.plain, length=self.length)


@dataclass(slots=True)
class Effort:
    """What the client itself took, and how late its event loop was.

    Parameters
    ----------
    seconds, cpu : of the run, and of the processor [s].
    lags : by how much the event loop was late, at every look [s].
    """

    seconds: float = 0.0
    cpu: float = 0.0
    lags: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of one core [1]."""
        return self.cpu / self.seconds if self.seconds else 0.0

    def lag(self, quantile: float) -> float:
        """Return by how much the event loop was late [s]."""
        return float(np.quantile(self.lags, quantile)) if self.lags else 0.0


async def one(asking: Asking, number: int, prompt: int, answer: int, start: float, due: float) -> Sample:
    """Send a request and return what came of it.

    Parameters
    ----------
    asking : how the endpoint is asked.
    number : of the request.
    prompt, answer : lengths to ask for [token].
    start, due : start of the run by the clock, and when the request is due after it [s].

    Returns
    -------
    The sample; of a request that failed, with the reason.
    """
    stream = Stream()
    body = asking.body(number, prompt, answer)
    begun = clock()
    late, due_at = begun - start - due, start + due
    sample = partial(Sample, number=number, due=due, late=late, asked_input=prompt, asked_output=answer)
    try:
        path = asking.target.base + PATHS[asking.api]
        found = await exchange(asking.target, "POST", path, body, stream.line, asking.timeout)
        stream.close(found.ended)
    except Failure as error:
        spent = clock() - due_at
        return sample(reason=error.reason, message=error.message, gaps=_gaps(stream, due_at), spent=spent)
    return sample(
        spent=found.ended - due_at,
        connect=found.connect,
        tls=found.tls,
        gaps=_gaps(stream, due_at),
        prompt=stream.prompt,
        tokens=stream.tokens,
        cached=stream.cached,
        reads=found.reads,
        whole=stream.whole,
        timings=stream.timings,
    )


def _gaps(stream: Stream, due_at: float) -> array[float]:
    """Return the time from the moment at which a request was due to its first text, and from each event to the next [s]."""
    times = stream.times
    return array("f", [b - a for a, b in zip([due_at, *times], times, strict=False)])


async def drive(
    asking: Asking, requests: Requests, clients: int | None, take: Callable[[Sample], None]
) -> tuple[Effort, bool]:
    """Put a load on an endpoint.

    Parameters
    ----------
    asking : how the endpoint is asked.
    requests : with arrivals, or of clients who each send their next one when the last has ended.
    clients : of a closed loop, None for requests with arrivals [1].
    take : called with every sample as it ends.

    Returns
    -------
    What it took, and whether it was interrupted.
    """
    room_for(len(requests) if clients is None else clients)
    effort, interrupted = Effort(), False
    spent, start = time.process_time(), clock()
    lengths = list(zip(requests.inputs.tolist(), requests.outputs.tolist(), strict=True))

    async def ask(number: int, due: float) -> None:
        take(await one(asking, number, *lengths[number], start, due))

    try:
        async with listening(effort), asyncio.TaskGroup() as group:
            if clients is None:
                await _arrive(requests, start, lambda number, due: group.create_task(ask(number, due)))
            else:
                numbers = iter(range(len(requests)))
                for _ in range(min(clients, len(requests))):
                    group.create_task(_client(numbers, ask, start))
    except asyncio.CancelledError:
        interrupted = True
    effort.seconds, effort.cpu = clock() - start, time.process_time() - spent
    return effort, interrupted


SPARE = 64
"""Open files beside the streams [1]."""


def room_for(streams: int) -> None:
    """Ask the system for as many open files as streams need, where it has such a limit.

    Parameters
    ----------
    streams : at once [1].
    """
    try:
        import resource
    except ImportError:  # Windows has none
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = streams + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


BREATH = 64
"""Requests after which a sender that is late lets answers in [1]."""


async def _arrive(requests: Requests, start: float, send: Callable[[int, float], object]) -> None:
    """Send each request when it is due, whatever became of those before."""
    arrivals = requests.arrivals
    assert arrivals is not None
    for number, due in enumerate(arrivals.tolist()):
        wait = start + due - clock()
        if wait > 0.0 or number % BREATH == 0:
            await asyncio.sleep(max(0.0, wait))
        send(number, due)


async def _client(numbers: Iterator[int], ask: Callable[[int, float], object], start: float) -> None:
    for number in numbers:
        await ask(number, clock() - start)  # type: ignore[misc]


@asynccontextmanager
async def listening(effort: Effort) -> AsyncIterator[None]:
    """Look at the event loop's lateness while a block runs."""

    async def listen() -> None:
        while True:
            before = clock()
            await asyncio.sleep(LISTEN)
            effort.lags.append(clock() - before - LISTEN)

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()

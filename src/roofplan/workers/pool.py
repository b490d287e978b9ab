"""Processes that answer questions: a few, replaced when one is stopped, so that a server stays free to listen."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from roofplan.errors import RoofplanError
from roofplan.questions import Given
from roofplan.questions.gathered import Told
from roofplan.records.units import parse_count

REPORT_INTERVAL = 0.1
"""Least time between two reports of progress [s]."""


class Busy(RoofplanError):
    """More questions wait than a server holds."""

    code = "busy"


class TooLong(RoofplanError):
    """A question took longer than a server allows."""

    code = "time_limit"


class Stopped(RoofplanError):
    """The process that answered a question ended before its answer."""

    code = "stopped"


@dataclass(frozen=True, slots=True)
class Job:
    """A question on its way to a process.

    Parameters
    ----------
    function : a function of a module that takes `given` by name, and `tick`, which is told how far the work is; it gives a status and a text.
    given : its arguments, which can be pickled.
    """

    function: Callable[..., tuple[str, str]]
    given: Given = field(default_factory=dict)


GRACE = 5.0
"""Time that killed processes get to end [s]."""

MOST_MEMORY = 8 << 30
"""Address space of a process, where the system limits it [B]."""


def _limit_memory() -> None:
    """Let a question that takes too much memory fail alone."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        bound = MOST_MEMORY if most == resource.RLIM_INFINITY else min(most, MOST_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (bound, most))


def _work(pipe: Connection, ready: str, folder: str) -> None:
    """Answer jobs until the pipe closes, in an empty folder: no relative path means anything."""
    import importlib

    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin, sys.stdout = None, sys.stderr  # a transport may own them
    _limit_memory()
    os.chdir(folder)
    importlib.import_module(ready)
    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            break
        told = 0.0

        def tick(done: int, whole: int, what: str) -> None:
            nonlocal told
            if time.monotonic() - told >= REPORT_INTERVAL:
                told = time.monotonic()
                pipe.send(("progress", (done, whole, what)))

        message: tuple[str, object]
        try:
            message = ("answer", job.function(**job.given, tick=tick))
        except Exception as error:  # noqa: BLE001 - whatever fails there is said here
            message = ("fault", f"{type(error).__name__}: {error}")
        try:
            pipe.send(message)
        except (BrokenPipeError, OSError):
            break


class _Worker:
    """A process and the pipe to it; the pipe closes with the last reference, since a thread may still read it."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process, self.pipe = process, pipe


def processes(stated: str | float | None) -> int:
    """Return the processes of a pool: those stated, else one for every processor [1].

    Parameters
    ----------
    stated : what ``--workers`` says, None where nothing does.

    Returns
    -------
    At least one.

    Raises
    ------
    InputError : no whole number.
    """
    return parse_count(stated, "--workers") if stated is not None else os.cpu_count() or 1


class Pool:
    """Processes that answer questions side by side.

    Parameters
    ----------
    count : processes [1].
    limit : longest time of an answer [s].
    waiting : most questions that wait for a process [1].
    ready : module that processes import before the first question.
    """

    def __init__(self, count: int, limit: float, waiting: int, ready: str) -> None:
        self.count, self.limit, self.waiting, self.ready = count, limit, waiting, ready
        self._context = multiprocessing.get_context("spawn")
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        self._every: set[_Worker] = set()
        self._threads = ThreadPoolExecutor(2 * count, thread_name_prefix="roofplan-worker")
        self._held = 0
        self._folder = ""
        self._ended = False

    def start(self) -> None:
        """Start the processes; they import while the server begins to listen."""
        self._folder = tempfile.mkdtemp(prefix="roofplan-")
        for _ in range(self.count):
            self._idle.put_nowait(self._new())

    def stop(self) -> None:
        """End the processes."""
        self._ended = True
        for worker in self._every:
            worker.process.kill()
        for worker in self._every:
            worker.process.join(GRACE)
        self._every.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _new(self) -> _Worker:
        near, far = self._context.Pipe()
        process = self._context.Process(target=_work, args=(far, self.ready, self._folder), daemon=True)
        process.start()
        far.close()
        worker = _Worker(process, near)
        self._every.add(worker)
        return worker

    def _replace(self, worker: _Worker) -> None:
        self._every.discard(worker)
        worker.process.kill()
        if not self._ended:
            self._idle.put_nowait(self._new())

    async def answer(self, job: Job, told: Told | None = None) -> tuple[str, str]:
        """Return what a job gives; a caller who is cancelled ends it.

        Parameters
        ----------
        job : the question.
        told : is told how far the work is.

        Returns
        -------
        The value of the job's function.

        Raises
        ------
        Busy : more questions wait than the pool holds.
        TooLong : the answer took longer than the limit; its process is replaced.
        Stopped : the process failed, or ended.
        """
        if self._held >= self.waiting + self.count:
            raise Busy("too many questions wait: ask again in a moment")
        self._held += 1
        try:
            async with asyncio.timeout(self.limit):
                worker = await self._idle.get()
                return await self._kept(worker, job, told)
        except TimeoutError:
            raise TooLong(
                f"no answer within {self.limit:g} s; narrow the question, or ask on the command line"
            ) from None
        finally:
            self._held -= 1

    async def _kept(self, worker: _Worker, job: Job, told: Told | None) -> tuple[str, str]:
        """Return what a process gives; one that did not end its work is replaced."""
        ended = False
        try:
            content = await self._asked(worker, job, told)
            ended = True
        finally:
            if ended:
                self._idle.put_nowait(worker)
            else:
                self._replace(worker)
        if isinstance(content, str):
            raise Stopped(f"internal error: {content}", code="internal")
        return content

    async def _asked(self, worker: _Worker, job: Job, told: Told | None) -> tuple[str, str] | str:
        """Return what a job gave, or which fault it ended in; the pipe is served by a thread."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, worker.pipe.send, job)
            while True:
                kind, content = await loop.run_in_executor(self._threads, worker.pipe.recv)
                if kind != "progress":
                    found: tuple[str, str] | str = content
                    return found
                if told is not None:
                    told(*content)
        except (EOFError, OSError) as error:
            raise Stopped(f"the process ended before its answer ({type(error).__name__})") from None

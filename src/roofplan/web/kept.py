"""Answers that are kept for a moment, so that a link that many open is computed once."""

from __future__ import annotations

import json
import time
from collections import OrderedDict

from roofplan.workers.pool import Job

LIFETIME = 60.0
"""Time after which an answer is computed again: prices age by the day, and runs of one's own may have moved constants [s]."""

MOST = 256
"""Answers that are kept [1]."""

LARGEST = 1 << 20
"""Most characters of an answer that is kept [1]."""

CHANGING = frozenset({"runs"})
"""Questions whose answers are never kept."""


class Kept:
    """The newest answers of a server."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[float, tuple[str, str]]] = OrderedDict()

    def find(self, job: Job) -> tuple[str, str] | None:
        """Return the answer of a job, None where it is not kept or too old."""
        known = self._answers.get(_name(job))
        return None if known is None or time.monotonic() - known[0] > LIFETIME else known[1]

    def keep(self, job: Job, answer: tuple[str, str]) -> None:
        """Keep an answer in place of the oldest."""
        if job.given["name"] in CHANGING or len(answer[1]) > LARGEST:
            return
        self._answers.pop(_name(job), None)
        self._answers[_name(job)] = time.monotonic(), answer
        while len(self._answers) > MOST:
            self._answers.popitem(last=False)


def _name(job: Job) -> str:
    """Return what tells a job from others."""
    given = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in job.given.items()}
    return f"{job.function.__name__} {json.dumps(given, sort_keys=True)}"

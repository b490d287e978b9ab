"""One request as its client saw it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

SEEN = ("ttft", "tpot", "itl", "e2e")
"""Figures of a run: of each request, but for the gaps between its events, which are pooled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A request that was answered, or failed.

    Times count from the start of the run. What users feel counts from the moment at which the request was due, since a
    client that is late must not hide a queue; opening a connection is kept apart.

    Parameters
    ----------
    number : of the request, in the order of the load.
    due : when it was to be sent [s].
    late : by how much later the client began [s].
    spent : from `due` until its last byte, or until it was given up [s].
    connect, tls : time to open the connection, and TLS in it [s].
    gaps : from `due` to the first event with text, then from each to the next [s].
    asked_input, asked_output : lengths that were asked for [token].
    prompt, tokens, cached : of the prompt, of the answer and of the prompt's part in a cache, as the server counts; None where it does
        not say [token].
    reads : how often the socket was read.
    whole : whether the answer came as one document.
    timings : of the server, by its own names.
    reason, message : why it failed, empty where it did not.
    """

    number: int
    due: float
    late: float
    spent: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    gaps: array[float] = field(default_factory=lambda: array("f"))
    asked_input: int = 0
    asked_output: int = 0
    prompt: int | None = None
    tokens: int | None = None
    cached: int | None = None
    reads: int = 0
    whole: bool = False
    timings: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    message: str = ""

    @property
    def answered(self) -> bool:
        """Whether a complete answer came."""
        return not self.reason

    @property
    def events(self) -> int:
        """Events with text [1]."""
        return len(self.gaps)

    @property
    def ttft(self) -> float | None:
        """From the moment at which it was due to the first text, without opening the connection; None without a stream [s]."""
        return None if self.whole or not self.gaps else self.gaps[0] - self.connect

    @property
    def e2e(self) -> float | None:
        """From the moment at which it was due to the last text, without opening the connection [s]."""
        return sum(self.gaps) - self.connect if self.gaps else None

    @property
    def tpot(self) -> float | None:
        """(E2E - TTFT) / (tokens - 1), by the server's count, else by events; None for one token or no stream [s]."""
        count = self.events if self.tokens is None else self.tokens
        if self.whole or count < 2 or self.events < 2:
            return None
        return sum(self.gaps[1:]) / (count - 1)

    @property
    def done(self) -> float:
        """When its last byte came, or it was given up [s]."""
        return self.due + self.spent

"""The stream of an answer: which of its events carry text, when they came, and what the server counted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from roofplan.measure.exchange import Failure, words_of

Json = dict[str, Any]
"""An object as servers send and read it."""

CHAT, COMPLETIONS = APIS = ("chat", "completions")
"""Ways to ask: messages, or a text to go on with."""

PATHS = {CHAT: "/chat/completions", COMPLETIONS: "/completions"}
"""Way to ask -> path behind the base of the API."""


@dataclass(slots=True)
class Stream:
    """What came of one answer.

    Parameters
    ----------
    times : when the socket read that brought each event with text ended, by the clock of `exchange` [s].
    tokens, prompt, cached : of the answer, of the prompt, and of those found in the server's cache, as the server counts; None where it
        does not say [token].
    timings : of the server, where it sends them [ms].
    ended : whether the server said that the answer is complete.
    whole : whether the answer came as one document rather than as a stream.
    """

    times: list[float] = field(default_factory=list)
    tokens: int | None = None
    prompt: int | None = None
    cached: int | None = None
    timings: dict[str, float] = field(default_factory=dict)
    ended: bool = False
    whole: bool = False
    failed: Failure | None = None
    body: list[bytes] = field(default_factory=list)

    def line(self, text: bytes, now: float) -> None:
        """Take a line of the body.

        Parameters
        ----------
        text : the line.
        now : when it was read [s].
        """
        if not text.startswith(b"data:"):
            if text.startswith(b"{") or self.body:  # one document instead of a stream
                self.body.append(text)
            return
        data = text[5:].strip()
        if data == b"[DONE]":
            self.ended = True
            return
        try:
            event = json.loads(data)
        except ValueError:
            self.failed = self.failed or Failure("no API", f"an event is no JSON: {words_of(data)}")
            return
        self.event(event, now)

    def event(self, event: object, now: float) -> None:
        """Take an event of the stream."""
        if not isinstance(event, dict):
            return
        if event.get("error"):
            said = words_of(json.dumps(event).encode()) or "an error without words"
            self.failed = self.failed or Failure("error in the stream", said)
            return
        choices = event.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            one = choices[0]
            if one.get("finish_reason"):
                self.ended = True
            if _text(one):
                self.times.append(now)
        if isinstance(event.get("usage"), dict):
            self._count(event["usage"])
        if isinstance(event.get("timings"), dict):
            self.timings = {k: float(v) for k, v in event["timings"].items() if isinstance(v, int | float)}
        if isinstance(event.get("metrics"), dict):
            self.timings |= {k: float(v) for k, v in event["metrics"].items() if isinstance(v, int | float)}

    def _count(self, usage: Json) -> None:
        details = usage.get("prompt_tokens_details")
        self.tokens = _count(usage.get("completion_tokens"), self.tokens)
        self.prompt = _count(usage.get("prompt_tokens"), self.prompt)
        self.cached = _count(details.get("cached_tokens") if isinstance(details, dict) else None, self.cached)

    def close(self, ended: float) -> None:
        """Judge the answer after its last byte.

        Parameters
        ----------
        ended : when that was read [s].

        Raises
        ------
        Failure : it is not a complete answer.
        """
        if self.body and not self.times:
            self.whole = True
            try:
                self.event(json.loads(b"\n".join(self.body)), ended)
            except ValueError:
                raise Failure("no API", f"the answer is no JSON: {words_of(self.body[0])}") from None
        if self.failed is not None:
            raise self.failed
        if not self.times:
            raise Failure("empty", "the answer holds no text")
        if not self.ended:
            raise Failure("cut off", f"the stream ends after {len(self.times):,} events without its end")


def _count(value: object, known: int | None) -> int | None:
    """Return a count of tokens as a server sends it, or what was known where it sends none."""
    return value if isinstance(value, int) and value >= 0 else known


def _text(choice: Json) -> bool:
    """Return whether a part of an answer carries text, thoughts or a call."""
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return bool(choice.get("text"))
    return any(delta.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls", "function_call"))


def body_of(
    api: str, model: str, prompt: str, tokens: int, *, plain: bool = False, length: str = "max_tokens"
) -> bytes:
    """Return the body of a request.

    Parameters
    ----------
    api : one of `APIS`.
    model : id at the server.
    prompt : its text.
    tokens : length of the answer to ask for [token].
    plain : leaves out what the API's original does not know: to go on behind the end of an answer.
    length : what the server calls the length of the answer.

    Returns
    -------
    JSON.
    """
    asked: Json = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        length: tokens,
        "temperature": 0,
    }
    asked |= {"messages": [{"role": "user", "content": prompt}]} if api == CHAT else {"prompt": prompt}
    if not plain:
        asked["ignore_eos"] = True
    return json.dumps(asked).encode()

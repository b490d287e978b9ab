"""One HTTP request to an endpoint and the events of its answer, each stamped when the socket is read."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from roofplan.errors import InputError

clock = time.perf_counter
"""The clock of every stamp: it never goes back [s]."""

TIME_OUT = "time-out"
"""Reason of a request that was given up."""

LONGEST_TEXT = 200
"""Most characters of a server's own words that are kept [1]."""


class Failure(Exception):
    """A request that brought no answer.

    Parameters
    ----------
    reason : few words under which failures are counted, such as ``http 429`` or ``cut off``.
    message : what happened, in a line.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Target:
    """Where an OpenAI-compatible server listens.

    Parameters
    ----------
    host, port : of the server.
    base : path before the names of the API, such as ``/v1``.
    secure : whether it speaks TLS.
    key : secret that is sent along, never kept or shown; empty for none.
    """

    host: str
    port: int
    base: str
    secure: bool
    key: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """The address without secrets."""
        usual = 443 if self.secure else 80
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.secure else ''}://{host}{'' if self.port == usual else f':{self.port}'}{self.base}"

    @property
    def local(self) -> bool:
        """Whether it is this host that serves."""
        try:
            found = {one[4][0] for one in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)}
            mine = {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), None)}
        except OSError:
            return False
        return any(str(one).startswith("127.") or one == "::1" for one in found) or bool(found & mine)


def target_of(url: str, key: str = "") -> Target:
    """Return the target of a URL, with or without ``/v1``.

    Parameters
    ----------
    url : such as ``http://127.0.0.1:8000``.
    key : secret to send along.

    Returns
    -------
    The target.

    Raises
    ------
    InputError : no URL of a server.

    Examples
    --------
    >>> target_of("http://127.0.0.1:8000/").url
    'http://127.0.0.1:8000/v1'
    """
    text = url.strip()
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        message = f"URL: {url} is no address of a server. Example: http://127.0.0.1:8000/v1"
        raise InputError(message, argument="URL", value=url)
    if parts.query or parts.fragment:
        message = f"URL: {url.split('?', maxsplit=1)[0]} with a query or fragment: they are not sent; a key goes into --key-env NAME"
        raise InputError(message, argument="URL")
    if not parts.hostname.isascii():
        raise InputError(f"URL: {parts.hostname} is not written in ASCII (xn--...)", argument="URL", value=url)
    if parts.username or parts.password:
        raise InputError("URL: holds a password; give the name of a variable instead: --key-env NAME", argument="URL")
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(ending)
    secure = parts.scheme == "https"
    return Target(parts.hostname, port or (443 if secure else 80), path or "/v1", secure, key)


class Wire(asyncio.Protocol):
    """A connection that sends one request and reads its answer.

    Parameters
    ----------
    on_line : called with every line of the body and the time at which its end was read [s].
    """

    def __init__(self, on_line: Callable[[bytes, float], None]) -> None:
        self.on_line = on_line
        self.status = 0
        self.headers: dict[str, str] = {}
        self.reads = 0
        self.complete = False
        self.kept: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._raw = b""
        self._line = b""
        self._left: int | None = None
        self._chunked = False
        self._seen = 0.0

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        now = self._seen = clock()
        self.reads += 1
        raw = self._raw + data if self._raw else data
        if not self.status:
            end = raw.find(b"\r\n\r\n")
            if end < 0:
                self._raw = raw
                return
            self._head(raw[:end])
            raw = raw[end + 4 :]
        try:
            self._body(raw, now)
        except ValueError:
            self._stop(Failure("cut off", "the answer is no valid HTTP"))

    def _head(self, text: bytes) -> None:
        first, *rest = text.decode("latin-1").split("\r\n")
        words = first.split(" ")
        self.status = int(words[1]) if len(words) > 1 and words[1].isdigit() else -1
        for line in rest:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        self._left = int(length) if length.isdigit() and not self._chunked else None

    def _body(self, raw: bytes, now: float) -> None:
        if not self._chunked:
            self._raw = b""
            self._lines(raw, now)
            if self._left is not None:
                self._left -= len(raw)
                if self._left <= 0:
                    self._finish()
            return
        at, size_of = 0, len(raw)
        while at < size_of:
            end = raw.find(b"\r\n", at)
            if end < 0:
                break
            size = int(raw[at:end].split(b";")[0], 16)
            if size < 0:
                raise ValueError(size)
            if size == 0:
                self._raw = b""
                self._finish()
                return
            if end + 4 + size > size_of:
                break
            self._lines(raw[end + 2 : end + 2 + size], now)
            at = end + 4 + size
        self._raw = raw[at:]

    def _lines(self, data: bytes, now: float) -> None:
        *whole, self._line = (self._line + data).split(b"\n")
        for line in whole:
            self.on_line(line, now)

    def _finish(self) -> None:
        if self._line:
            self.on_line(self._line, self._seen)
            self._line = b""
        self.complete = True
        self._stop(None)

    def _stop(self, error: Exception | None) -> None:
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the server closed the connection: the end of a body without a length, else too early."""
        if self.status and not self._chunked and self._left is None and exc is None:
            self._finish()
            return
        when = "before it answered" if not self.status else "in the middle of its answer"
        self._stop(Failure("cut off", f"the server closed the connection {when}"))


@dataclass(frozen=True, slots=True)
class Answer:
    """How an exchange went.

    Parameters
    ----------
    connect, tls : time to open the connection, and TLS within it [s].
    sent, ended : when the request was handed to the socket, and when the answer's last byte was read [s].
    status, headers, reads : of the answer, and how often the socket was read.
    """

    connect: float
    tls: float
    sent: float
    ended: float
    status: int
    headers: dict[str, str]
    reads: int


async def exchange(
    target: Target, method: str, path: str, body: bytes, on_line: Callable[[bytes, float], None], patience: float
) -> Answer:
    """Send a request on a connection of its own and hand on the lines of the answer.

    Parameters
    ----------
    target : the server.
    method, path, body : of the request.
    on_line : called with every line of the body of a good answer and when it was read [s].
    patience : in which the answer must end [s].

    Returns
    -------
    Times of the connection, and the answer's head.

    Raises
    ------
    Failure : no answer, or another than a good one.
    """
    kept: list[bytes] = []
    wire: Wire | None = None

    def line(text: bytes, now: float) -> None:
        if wire is not None and wire.status == 200:
            on_line(text, now)
        elif sum(map(len, kept)) < 64 * LONGEST_TEXT:
            kept.append(text)

    begun = clock()
    try:
        async with asyncio.timeout(patience):
            connect, tls, transport, wire = await _connected(target, line)
            try:
                sent = clock()
                transport.write(_request(target, method, path, body))
                await wire.ended
            finally:
                transport.close()
    except TimeoutError:
        opening = "TLS connection: does it speak http:// instead?" if target.secure else "connection"
        where = opening if wire is None else "answer" if not wire.status else "end of the answer"
        raise Failure(TIME_OUT, f"within {clock() - begun:.3g} s no {where}") from None
    except OSError as error:
        raise _no_connection(error, target) from None
    answer = Answer(connect, tls, sent, wire._seen, wire.status, wire.headers, wire.reads)  # noqa: SLF001
    _check(answer, b"\n".join(kept))
    return answer


async def _connected(
    target: Target, line: Callable[[bytes, float], None]
) -> tuple[float, float, asyncio.Transport, Wire]:
    """Return the time to connect and that of TLS in it, and the connection [s]."""
    loop, begun = asyncio.get_running_loop(), clock()
    transport, wire = await loop.create_connection(lambda: Wire(line), target.host, target.port)
    opened = clock()
    if not target.secure:
        return opened - begun, 0.0, transport, wire
    try:
        upgraded = await loop.start_tls(transport, wire, _trusted(), server_hostname=target.host)
    except OSError as error:
        why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
        raise Failure("tls", f"TLS with {target.host}:{target.port} fails: {why}") from None
    if upgraded is None:
        raise Failure("tls", f"TLS with {target.host}:{target.port} fails: the server closed the connection")
    return clock() - begun, clock() - opened, upgraded, wire


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Return the authorities that this system trusts; reading them takes tens of milliseconds."""
    return ssl.create_default_context()


def _request(target: Target, method: str, path: str, body: bytes) -> bytes:
    host = urlsplit(target.url).netloc
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        "User-Agent: roofplan",
        "Accept: text/event-stream, application/json",
        "Connection: close",
    ]
    if target.key:
        lines.append(f"Authorization: Bearer {target.key}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def _no_connection(error: OSError, target: Target) -> Failure:
    """Return why there is no connection."""
    where = f"{target.host}:{target.port}"
    if isinstance(error, socket.gaierror):
        return Failure("no such host", f"{target.host} has no address: {error.strerror}")
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return Failure(
            "client out of files",
            f"this system lets the client open no more files: ulimit -n, or fewer streams ({error.strerror})",
        )
    if isinstance(error, ConnectionRefusedError):
        return Failure("refused", f"nothing listens at {where}")
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return Failure("cut off", f"{where} reset the connection")
    return Failure("no connection", f"{where}: {error.strerror or error}")


def _check(answer: Answer, text: bytes) -> None:
    """Refuse an answer that is not a good one.

    Raises
    ------
    Failure : says what came instead.
    """
    kind = answer.headers.get("content-type", "").lower()
    if 300 <= answer.status < 400:
        to = answer.headers.get("location", "another address")
        raise Failure("redirect", f"the server redirects to {to}: give that URL")
    if answer.status != 200:
        raise Failure(f"http {answer.status}", words_of(text) or f"the server answers with status {answer.status}")
    if "html" in kind:
        raise Failure("no API", "the server sends a web page: is /v1 missing, or another path before it?")


def words_of(text: bytes) -> str:
    """Return the message in the body of an error, shortened to a line.

    Parameters
    ----------
    text : the body, JSON or not.

    Returns
    -------
    Its message; empty without one.
    """
    said: object = text.decode("utf-8", "replace").strip()
    try:
        found = json.loads(str(said))
    except ValueError:
        found = said
    while isinstance(found, dict):
        found = found.get("error") or found.get("message") or found.get("detail") or ""
    return " ".join(str(found or "").split())[:LONGEST_TEXT]

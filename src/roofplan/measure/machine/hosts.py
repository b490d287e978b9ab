"""Messages between two hosts over TCP: one listens, the other sends messages of many sizes and waits for one byte back."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from roofplan.errors import InputError
from roofplan.measure.machine.windows import Seen, rate

SIZES = tuple(4**k for k in range(13))
"""Bytes of a message: 1 B to 16 MiB [B]."""

PIECE = 2**20
"""Bytes that are sent or read at once [B]."""

PATIENCE = 10.0
"""Longest silence of the other host [s]."""

HELLO = b"roofplan"
"""First bytes from both sides: nothing else is spoken with."""

MOST = 2**28
"""Largest message that a listener reads [B]."""


def address_of(text: str, flag: str) -> tuple[str, int]:
    """Return host and port of a text such as ``10.0.0.2:9000``.

    Parameters
    ----------
    text : the text.
    flag : that it was given for.

    Returns
    -------
    Host, and port [1].

    Raises
    ------
    InputError : no host or no port.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise InputError(f"{flag}: {text} is no HOST:PORT. Example: 10.0.0.2:9000", argument=flag, value=text)
    return host.strip("[]"), int(port)


def listen(text: str, ready: Callable[[str], None] = lambda _: None) -> int:
    """Answer one other host until it has measured the link.

    Parameters
    ----------
    text : HOST:PORT to listen on; the host names the interface.
    ready : called with the address when it listens.

    Returns
    -------
    Bytes that were received [B].

    Raises
    ------
    InputError : an address that cannot be listened on, or a host that speaks something else.
    """
    host, port = address_of(text, "--listen")
    try:
        server = socket.create_server((host, port))
    except OSError as error:
        raise InputError(f"--listen: {text}: {error.strerror or error}", argument="--listen", value=text) from None
    with server:
        ready(f"{host}:{port}")
        other, _ = server.accept()
        with other:
            other.settimeout(PATIENCE)
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _answered(other)


def _answered(other: socket.socket) -> int:
    """Read messages and answer each with one byte, until the other host closes."""
    taken = 0
    with suppress(ConnectionError, TimeoutError):
        if _exactly(other, len(HELLO)) != HELLO:
            raise InputError("--listen: the other host does not speak roofplan", argument="--listen")
        other.sendall(HELLO)
        while True:
            head = _exactly(other, 8)
            if not head:
                break
            (size,) = struct.unpack("<Q", head)
            if size > MOST:
                raise InputError(f"--listen: a message of {size:,} bytes", argument="--listen", value=str(size))
            left = size
            while left:
                got = len(other.recv(min(left, PIECE)))
                if not got:
                    return taken
                left -= got
            taken += size
            other.sendall(b"!")
    return taken


def _exactly(other: socket.socket, count: int) -> bytes:
    """Return the next bytes, fewer where the other host has closed."""
    out = b""
    while len(out) < count:
        more = other.recv(count - len(out))
        if not more:
            break
        out += more
    return out


def messages(text: str) -> Iterator[tuple[int, Seen]]:
    """Yield the time of messages of each of `SIZES` to a host that listens, and of the byte that comes back.

    Parameters
    ----------
    text : HOST:PORT of a host on which ``roofplan measure machine --listen HOST:PORT`` waits.

    Yields
    ------
    Bytes of a message, and its time [s].

    Raises
    ------
    InputError : a host that cannot be reached, does not listen, or speaks something else.
    """
    host, port = address_of(text, "--link")
    how = f"on that host: roofplan measure machine --listen {host}:{port}"
    try:
        other = socket.create_connection((host, port), PATIENCE)
    except OSError as error:
        said = f"--link: {text}: {error.strerror or error}; {how}"
        raise InputError(said, argument="--link", value=text) from None
    with other:
        other.settimeout(PATIENCE)
        other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            other.sendall(HELLO)
            if _exactly(other, len(HELLO)) != HELLO:
                raise InputError(f"--link: {text} does not speak roofplan; {how}", argument="--link", value=text)
            for size in SIZES:
                yield size, rate(1.0, _sender(other, size), "s", busy=None, windows=10)
        except OSError as error:
            said = f"--link: {text} fell silent: {error.strerror or error}"
            raise InputError(said, argument="--link", value=text) from None


def _sender(other: socket.socket, size: int) -> Callable[[int], None]:
    """Return what sends a message as often as it is told, each after the answer to the one before."""
    data = struct.pack("<Q", size) + bytes(size)

    def run(times: int) -> None:
        for _ in range(times):
            other.sendall(data)
            if not other.recv(1):
                raise ConnectionResetError("it closed the connection")

    return run

"""Where a server listens, and under which names it is reached."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from roofplan.errors import InputError
from roofplan.inputs import Listening
from roofplan.records.units import parse_count
from roofplan.workers.guard import LOOPBACK, is_loopback, token_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

MOST_PORT = 65_535
GRACE = 1
"""Time that answers which are under way get when a server ends [s]."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens.

    Parameters
    ----------
    host, port : address.
    hosts : names under which it is asked.
    token : that everybody must know; None where only this machine can ask.
    """

    host: str
    port: int
    hosts: frozenset[str]
    token: str | None

    @classmethod
    def of(cls, asked: Listening) -> Self:
        """Return the place that inputs mean.

        Parameters
        ----------
        asked : the inputs.

        Returns
        -------
        The place; a host or a name that others reach has a token.

        Raises
        ------
        InputError : no such port, an address of every interface without a name, or a short token.
        """
        port = parse_count(asked.port, "--port")
        if port > MOST_PORT:
            raise InputError(f"--port: {port} is above {MOST_PORT:,}", argument="--port", value=str(port))
        if _is_every_address(asked.host) and not asked.name:
            raise InputError(
                f"--host {asked.host}: under which name do others reach it? Add --name box.lan",
                argument="--host",
                value=asked.host,
            )
        own = is_loopback(asked.host) and not asked.name
        token = None if own else token_of(asked.token_env)
        return cls(asked.host, port, LOOPBACK | {one.lower() for one in (asked.host, *asked.name)}, token)

    @property
    def url(self) -> str:
        """Its address, as others on the same machine or network open it."""
        name = next((one for one in sorted(self.hosts - LOOPBACK) if not _is_every_address(one)), self.host)
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}/"


def _is_every_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False


def listen(app: ASGIApp, place: Place, announce: Callable[[], None]) -> None:
    """Listen until somebody interrupts.

    Parameters
    ----------
    app : what answers.
    place : where.
    announce : says that the server listens.

    Raises
    ------
    InputError : the address cannot be listened on.
    """
    import uvicorn

    class Announced(uvicorn.Server):
        """A server that says when it listens."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Begin to listen, and say so."""
            await super().startup(sockets)
            if self.started:
                announce()

    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    try:
        listening = socket.create_server((place.host, place.port), family=family)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0].lower()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise InputError(f"--host: {place.host}: {why}", argument="--host", value=place.host) from None
        message = f"--port: cannot listen on {place.port} of {place.host}: {why}; another --port?"
        raise InputError(message, argument="--port", value=str(place.port)) from None
    config = uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=GRACE)
    with listening, contextlib.suppress(KeyboardInterrupt):
        Announced(config).run([listening])

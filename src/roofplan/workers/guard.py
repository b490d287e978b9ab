"""Who may ask: hosts, origins, a token, and how large a question may be."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roofplan.errors import InputError

COOKIE = "roofplan-token"

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d+)?")
"""A Host header: a name or an address, and a port."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine."""

SHORTEST = 16
"""Fewest characters of a token [1]."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""Of every response."""


class Guard:
    """Refuses other hosts' names (DNS rebinding), other origins, strangers and bodies that are too large.

    Parameters
    ----------
    app : what answers.
    hosts : names under which this server is asked.
    token : that everybody must know; None where only this machine can ask.
    largest : most bytes of a body [B].
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], token: str | None, largest: int) -> None:
        self.app, self.hosts, self.token, self.largest = app, frozenset(hosts), token, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or say why not."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        refused = self._refused(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await (refused or self.app)(scope, _limited(receive, self.largest), guarded)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if _hostname(headers.get("host", "")) not in self.hosts:
            return PlainTextResponse("Unknown Host header: start the server with --name and that name.\n", 421)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return PlainTextResponse("Requests from pages of other origins are refused.\n", 403)
        site = headers.get("sec-fetch-site", "same-origin")
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if site in {"cross-site", "same-site"} and not (opened and scope["method"] == "GET"):
            return PlainTextResponse("Requests from pages of other sites are refused.\n", 403)
        if int(headers.get("content-length") or 0) > self.largest:
            return PlainTextResponse(f"A request has at most {self.largest:,} bytes.\n", 413)
        return None if self.token is None else self._stranger(scope, headers)

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the refusal of somebody who does not know the token; whoever has it in the address gets a cookie."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if self._known(dict(query).get("token", "")):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope["path"].lstrip("/")
            came = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            came.set_cookie(COOKIE, self.token or "", httponly=True, samesite="lax")
            return came
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        try:
            kept = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            kept = None
        if self._known(bearer) or (kept is not None and self._known(kept.value)):
            return None
        return PlainTextResponse("A token is needed: open the address that was printed when the server started.\n", 401)

    def _known(self, given: str) -> bool:
        return bool(given) and hmac.compare_digest(given.encode(), (self.token or "").encode())


class TooLarge(Exception):
    """A body holds more than it may."""


def _limited(receive: Receive, largest: int) -> Receive:
    """Return a receiver that ends bodies which say less than they hold."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > largest:
            raise TooLarge
        return message

    return limited


def _hostname(host: str) -> str:
    """Return the name in a Host header, without its port."""
    found = HOST.fullmatch(host.lower())
    return found[1].strip("[]") if found else ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    Parameters
    ----------
    host : name or address.

    Returns
    -------
    Whether it is this machine's own.
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(variable: str | None) -> str:
    """Return the token that everybody must know.

    Parameters
    ----------
    variable : environment variable that holds it; None for a new one.

    Returns
    -------
    The token.

    Raises
    ------
    InputError : the variable holds none, or a short one.
    """
    if variable is None:
        return secrets.token_urlsafe(24)
    found = os.environ.get(variable, "")
    if len(found) < SHORTEST:
        raise InputError(
            f"--token-env: {variable} holds no token of at least {SHORTEST} characters",
            argument="--token-env",
            value=variable,
        )
    return found

"""Access to the pages: the Host header against DNS rebinding, and a token against other users of the machine.

The token is in the printed address. The first request with it gets a cookie and is sent on to the address without it,
so that the token stays out of the history, of screenshots and of the Referer header.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Access(Protocol):
    """Decides about a request: None admits it, a response refuses it or sends it elsewhere."""

    def decide(self, scope: Scope) -> Response | None:
        """Return the response to send instead of the page, or None."""


class TokenAccess:
    """Admits the requests that carry one token.

    It is in a cookie, in `Authorization: Bearer`, or once in the address.
    """

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._cookie = f"podium-dashboard-{port}"  # cookies of a host are shared by all of its ports

    def decide(self, scope: Scope) -> Response | None:
        """Return None for a request with the token.

        A token in the address gives a redirect, none gives 401, and a wrong one gives 403.
        """
        given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=20).get("token", [""])[0]
        if given:
            if not self._is_token(given):
                return PlainTextResponse("The token is wrong; open the address that podium dashboard printed.\n", 403)
            path = scope["raw_path"].decode("latin-1").lstrip("/\\")  # `//host` would lead to another host
            response = RedirectResponse(f"/{path}", 303)
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
            return response
        headers = Headers(scope=scope)
        bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if self._is_token(_cookies(headers).get(self._cookie, "")) or self._is_token(bearer):
            return None
        text = "This page needs a token; open the whole address that podium dashboard printed.\n"
        return PlainTextResponse(text, 401, {"www-authenticate": "Bearer"})

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


class Guard:
    """Middleware: checks the Host header, asks `access`, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, access: Access, hosts: Iterable[str] = LOOPBACK) -> None:
        self._app = app
        self._access = access
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        try:
            host = Headers(scope=scope).get("host", "")
            if host_name(host) not in self._hosts:
                shown = host[:100] or "missing"
                text = f"The Host header is {shown!r}; it must be {' or '.join(sorted(self._hosts))}.\n"
                return PlainTextResponse(text, 421)
            if scope["method"] != "GET":
                return PlainTextResponse("Only GET is served.\n", 405, {"allow": "GET"})
            return self._access.decide(scope)
        except ValueError:  # more fields in the query than allowed, or bytes that are not text
            return PlainTextResponse("The request is malformed.\n", 400)


def host_name(header: str) -> str:
    """Return the name in a Host header, without the port.

    A tunnel of ssh may have another port than the server.
    """
    name, separator, port = header.rpartition(":")
    known = separator and port.isdecimal() and not name.endswith(":")
    return (name if known and (name.endswith("]") or ":" not in name) else header).lower()


def _cookies(headers: Headers) -> dict[str, str]:
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: one.value for name, one in jar.items()}


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message.get("headers", ())}
            added = [(name.encode(), text.encode()) for name, text in HEADERS.items() if name.encode() not in own]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return sending

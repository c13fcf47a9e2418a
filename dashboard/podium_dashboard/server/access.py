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
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podium_dashboard.server.viewer import RefusedError, Viewer

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
VIEWER = "viewer"  # name in the state of a request
METHODS = frozenset({"GET", "POST"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Access(Protocol):
    """Decides about a request."""

    async def admit(self, scope: Scope) -> Viewer | Response | None:
        """Return the viewer, or the response to send instead of the page.

        None: everyone may get this path. Raises RefusedError.
        """


class TokenAccess:
    """Admits the requests that carry one token.

    It is in a cookie, in `Authorization: Bearer`, or once in the address.
    """

    def __init__(self, token: str, port: int, viewer: Viewer) -> None:
        self._token = token
        self._viewer = viewer
        self._cookie = f"podium-dashboard-{port}"  # cookies of a host are shared by all of its ports

    async def admit(self, scope: Scope) -> Viewer | Response | None:
        """Return the only viewer for a request with the token.

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
        if self._is_token(cookies(headers).get(self._cookie, "")) or self._is_token(bearer):
            return self._viewer
        text = "This page needs a token; open the whole address that podium dashboard printed.\n"
        return PlainTextResponse(text, 401, {"www-authenticate": "Bearer"})

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


class Guard:
    """Middleware: checks Host header and method, asks `access`, and adds security headers to responses."""

    def __init__(self, app: ASGIApp, access: Access, hosts: Iterable[str] | None = LOOPBACK) -> None:
        """Wrap an application; `hosts=None` accepts any Host header."""
        self._app = app
        self._access = access
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        admitted = await self._admit(scope)
        if isinstance(admitted, Response):
            await admitted(scope, receive, _with_headers(send))
            return
        if admitted is not None:
            scope.setdefault("state", {})[VIEWER] = admitted
        await self._app(scope, receive, _with_headers(send))

    async def _admit(self, scope: Scope) -> Viewer | Response | None:
        try:
            host = Headers(scope=scope).get("host", "")
            if self._hosts is not None and host_name(host) not in self._hosts:
                shown = host[:100] or "missing"
                text = f"The Host header is {shown!r}; it must be {' or '.join(sorted(self._hosts))}.\n"
                return PlainTextResponse(text, 421)
            if scope["method"] not in METHODS:
                return PlainTextResponse("Only GET and POST are served.\n", 405, {"allow": "GET, POST"})
            return await self._access.admit(scope)
        except RefusedError as error:
            return PlainTextResponse(f"{error}\n", error.status)
        except ValueError:  # more fields in the query than allowed, or bytes that are not text
            return PlainTextResponse("The request is malformed.\n", 400)


def viewer_of(request: Request) -> Viewer:
    """Return the viewer that the guard has admitted."""
    viewer: Viewer = request.scope["state"][VIEWER]
    return viewer


def host_name(header: str) -> str:
    """Return the name in a Host header, without the port.

    A tunnel of ssh may have another port than the server.
    """
    name, separator, port = header.rpartition(":")
    known = separator and port.isdecimal() and not name.endswith(":")
    return (name if known and (name.endswith("]") or ":" not in name) else header).lower()


def cookies(headers: Headers) -> dict[str, str]:
    """Return the cookies of a request by name; none if the header is malformed."""
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

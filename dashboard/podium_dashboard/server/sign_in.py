"""Sign-in of a person with a browser: a page takes a bearer token, which stays in a cookie of the browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, RedirectResponse, Response

from podium_dashboard.pages.page import PACKAGE, parse_path
from podium_dashboard.server.access import LOOPBACK, cookies, host_name
from podium_dashboard.server.forms import REFERRER, read_form
from podium_dashboard.server.viewer import RefusedError
from podium_views.template import render

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
COOKIE = "podium-dashboard"
SECURE_COOKIE = f"__Host-{COOKIE}"  # browsers take a cookie of such a name by TLS only, for exactly this host
MAX_COOKIE = 3800  # characters of a token; browsers keep cookies of up to 4096


def is_encrypted(headers: Headers) -> bool:
    """Return whether the browser's connection has TLS, which ends at the ingress."""
    return headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https"


def bearer_token(headers: Headers) -> str | None:
    """Return the token of the header Authorization, which a proxy may set, else that of the cookie."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip()
    return cookies(headers).get(SECURE_COOKIE if is_encrypted(headers) else COOKIE) or None


class SignIn:
    """The pages of sign-in and sign-out."""

    def __init__(self, check: Callable[[str], Awaitable[object]], *, plain_http: bool) -> None:
        """Prepare; `check` raises RefusedError for an invalid token.

        `plain_http`: take tokens also without TLS. Otherwise only loopback may do without.
        """
        self._check = check
        self._plain_http = plain_http

    def page(self, headers: Headers, path: str, problem: str = "", status: int = 401) -> Response:
        """Return the page that asks for a token and leads to `path`."""
        more = REFERRER | ({"www-authenticate": "Bearer"} if status == 401 else {})
        text = render(PACKAGE, "sign_in.html.j2", problem=problem, next=_local(path), open=self._takes_tokens(headers))
        return HTMLResponse(text, status, more)

    def add_to(self, app: FastAPI) -> None:
        """Add the pages to the application."""

        @app.get(SIGN_IN)
        async def show(request: Request) -> Response:
            """Ask for a token."""
            return self.page(request.headers, "/", status=200)

        @app.post(SIGN_IN)
        async def sign_in(request: Request) -> Response:
            """Keep the token in a cookie, if the API server accepts it."""
            form = await read_form(request)
            path, token = _local(form.get("next", "/")), form.get("token", "").strip()
            if not self._takes_tokens(request.headers):
                return self.page(request.headers, path, status=403)
            try:
                if len(token) > MAX_COOKIE:
                    cure = "let a proxy send it in the header Authorization"
                    raise RefusedError(400, f"The token has more than {MAX_COOKIE} characters; {cure}.")
                await self._check(token)
            except RefusedError as error:
                return self.page(request.headers, path, str(error), error.status)
            secure = is_encrypted(request.headers)
            response = RedirectResponse(path, 303, REFERRER)
            name = SECURE_COOKIE if secure else COOKIE
            response.set_cookie(name, token, path="/", httponly=True, samesite="strict", secure=secure)
            return response

        @app.post(SIGN_OUT)
        async def sign_out(request: Request) -> Response:
            """Delete the cookie."""
            await read_form(request)
            response = RedirectResponse(SIGN_IN, 303, REFERRER)
            for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
                response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=secure)
            return response

    def _takes_tokens(self, headers: Headers) -> bool:
        return self._plain_http or is_encrypted(headers) or host_name(headers.get("host", "")) in LOOPBACK


def _local(path: str) -> str:
    """Return the path if it is that of a page here, else that of the first page."""
    ref = parse_path(path.partition("?")[0]) if path.startswith("/") else None
    return "/" if ref is None else ref.path

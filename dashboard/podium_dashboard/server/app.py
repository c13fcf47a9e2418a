"""The application: pages, the stream of their changes, and the files of style and script."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from podium_dashboard.hub import Hub
from podium_dashboard.pages.page import PACKAGE, Page, parse_path
from podium_dashboard.pages.renderer import PageRenderer
from podium_dashboard.server.access import Access, Guard
from podium_dashboard.server.events import EventStream
from podium_dashboard.sources.source import Source
from podium_views.template import render

MAX_STREAMS = 200  # browsers that look at once
LIVE = "/live"


class Streams:
    """The number of open streams. A further one is refused, and the page tries again later."""

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self._most = most
        self.open = 0

    def respond(self, stream: EventStream) -> ASGIApp:
        """Return the stream, counted while it is open, or a refusal."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if self.open >= self._most:
                text = f"{self._most} browsers look already, as many as allowed; try again later.\n"
                await PlainTextResponse(text, 503, {"retry-after": "10"})(scope, receive, send)
                return
            self.open += 1
            try:
                await stream(scope, receive, send)
            finally:
                self.open -= 1

        return counted


def create_app(source: Source, hub: Hub, access: Access) -> ASGIApp:
    """Return the application for one source."""
    pages = PageRenderer(source, hub)
    streams = Streams()

    app = FastAPI(title="Podium dashboard", docs_url=None, redoc_url=None, openapi_url=None)
    assets = _assets()

    @app.get("/assets/{name}")
    async def asset(name: str) -> Response:
        """Return a file of style or script."""
        found = assets.get(name)
        return _missing(f"/assets/{name}") if found is None else Response(found[0], media_type=found[1])

    @app.get(LIVE + "{path:path}")
    async def live(request: Request) -> Response:
        """Stream the changes of a page."""
        ref = parse_path(_raw_path(request).removeprefix(LIVE) or "/")
        if ref is None or await pages.page(ref) is None:
            return _missing(_raw_path(request))
        return _Delegated(streams.respond(EventStream(pages, hub, ref)))

    @app.get("/what-if/{namespace}/{name}/start")
    async def start_replay(request: Request) -> Response:
        """Start a replay, one at a time, and lead back to its page."""
        path = _raw_path(request).removesuffix("/start")
        ref = parse_path(path)
        if ref is None or await pages.page(ref) is None:
            return _missing(path)
        pages.requests.start_replay((ref.namespace, ref.name))
        return RedirectResponse(ref.path, 303)

    @app.get("/{path:path}")
    async def page(request: Request) -> Response:
        """Return a page; it is complete without the script."""
        ref = parse_path(_raw_path(request))
        made = None if ref is None else await pages.page(ref)
        if made is None:
            return _missing(_raw_path(request))
        return HTMLResponse(document(made, source.title))

    return Guard(app, access)


class _Delegated(Response):
    """A response that another application writes."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def document(page: Page, source: str) -> str:
    """Return the whole HTML document of a page."""
    return render(PACKAGE, "page.html.j2", page=page, source=source, live=LIVE + page.ref.path, path=page.ref.path)


def _raw_path(request: Request) -> str:
    """Return the path as the browser sent it, so that a slash in a name remains encoded."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("latin-1").partition("?")[0]


def _missing(path: str) -> Response:
    text = render(PACKAGE, "missing.html.j2", path=path[:300])
    return HTMLResponse(text, 404)


def _assets() -> dict[str, tuple[bytes, str]]:
    """Return the files by name, with their types. The style of reports is part of that of the pages."""
    own, shared = files(PACKAGE) / "assets", files("podium_views") / "templates" / "page.css"
    style = shared.read_bytes() + b"\n" + (own / "dashboard.css").read_bytes()
    return {
        "style.css": (style, "text/css; charset=utf-8"),
        "live.js": ((own / "live.js").read_bytes(), "text/javascript; charset=utf-8"),
        "icon.svg": ((own / "icon.svg").read_bytes(), "image/svg+xml"),
    }

"""The application: pages, the stream of their changes, and the files of style and script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from podium_dashboard.hub import Hub
from podium_dashboard.pages.page import PACKAGE, Page, parse_path
from podium_dashboard.server.access import LOOPBACK, Access, Guard, viewer_of
from podium_dashboard.server.actions import FOLDER, actions_of, add_actions
from podium_dashboard.server.events import EventStream
from podium_dashboard.server.forms import REFERRER, read_form
from podium_dashboard.server.viewer import RefusedError, Viewer
from podium_views.template import render

MAX_STREAMS = 200  # browsers that look at once
LIVE = "/live"


class Streams:
    """The number of open streams. A further one is refused, and the page tries again later."""

    def __init__(self, most: int, most_each: int) -> None:
        """Allow `most` streams, and `most_each` of them for one viewer."""
        self._most = most
        self._most_each = most_each
        self.open: Counter[str] = Counter()

    def respond(self, stream: EventStream, name: str) -> ASGIApp:
        """Return the stream, counted for a viewer while it is open, or a refusal."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            text = ""
            if self.open.total() >= self._most:
                text = f"{self._most} browsers look already, as many as allowed; try again later.\n"
            elif self.open[name] >= self._most_each:
                text = f"You look at {self._most_each} pages already, as many as allowed; close some.\n"
            if text:
                await PlainTextResponse(text, 503, {"retry-after": "10"})(scope, receive, send)
                return
            self.open[name] += 1
            try:
                await stream(scope, receive, send)
            finally:
                self.open[name] -= 1
                if not self.open[name]:
                    del self.open[name]

        return counted


@dataclass(frozen=True, slots=True)
class Limits:
    """Names that the Host header may have (None: any), and most streams of one viewer."""

    hosts: Iterable[str] | None = LOOPBACK
    streams_each: int = MAX_STREAMS


def create_app(
    hub: Hub, access: Access, limits: Limits = Limits(), more: Callable[[FastAPI], None] | None = None
) -> ASGIApp:
    """Return the application; `more` adds routes to it."""
    streams = Streams(MAX_STREAMS, limits.streams_each)

    app = FastAPI(title="Podium dashboard", docs_url=None, redoc_url=None, openapi_url=None)
    assets = _assets()

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        """Return why the viewer gets nothing."""
        return HTMLResponse(render(PACKAGE, "refused.html.j2", text=str(error)), error.status)

    @app.get("/assets/{name}")
    async def asset(name: str) -> Response:
        """Return a file of style or script."""
        found = assets.get(name)
        return _missing(f"/assets/{name}") if found is None else Response(found[0], media_type=found[1])

    @app.get(LIVE + "{path:path}")
    async def live(request: Request) -> Response:
        """Stream the changes of a page."""
        ref, viewer = parse_path(_raw_path(request).removeprefix(LIVE) or "/"), viewer_of(request)
        if ref is None or await viewer.pages.page(ref) is None:
            return _missing(_raw_path(request))
        return _Delegated(streams.respond(EventStream(viewer.pages, hub, ref), viewer.name))

    add_actions(app)
    if more is not None:
        more(app)

    @app.post("/what-if/{namespace}/{name}")
    async def start_replay(request: Request) -> Response:
        """Start a replay, one at a time, and lead back to its page."""
        await read_form(request)  # one of this server
        ref, pages = parse_path(_raw_path(request)), viewer_of(request).pages
        if ref is None or await pages.page(ref) is None:
            return _missing(_raw_path(request))
        if not await pages.start_replay(ref):
            raise RefusedError(503, "Several replays wait already, as many as allowed; try again in a few minutes.")
        return RedirectResponse(ref.path, 303)

    @app.get("/{path:path}")
    async def page(request: Request) -> Response:
        """Return a page; it is complete without the script."""
        ref, viewer = parse_path(_raw_path(request)), viewer_of(request)
        made = None if ref is None else await viewer.pages.page(ref)
        if made is None:
            return _missing(_raw_path(request))
        return HTMLResponse(document(made, viewer.title, viewer), headers=REFERRER if viewer.signed_in else None)

    return Guard(app, access, limits.hosts)


class _Delegated(Response):
    """A response that another application writes."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def document(page: Page, source: str, viewer: Viewer | None = None) -> str:
    """Return the whole HTML document of a page, with the actions that this viewer can ask for."""
    actions = actions_of(page.ref)
    may_act = viewer is not None and viewer.api is not None
    return render(
        PACKAGE,
        "page.html.j2",
        page=page,
        source=source,
        live=LIVE + page.ref.path,
        path=page.ref.path,
        actions=actions if may_act else [],
        note=FOLDER if actions and not may_act else "",
        signed_in=viewer is not None and viewer.signed_in,
    )


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

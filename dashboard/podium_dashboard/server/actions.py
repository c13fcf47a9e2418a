"""Actions: a page that asks for confirmation, and the request to the API server with the viewer's own rights."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from urllib.parse import quote, unquote

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from podium_cluster.errors import ApiError
from podium_cluster.intents import INTENTS, PIN, RESUME, STOP, SUSPEND, UNPIN, Intent, carry_out
from podium_cluster.resources import JOBS
from podium_core.domain.phase import TrialPhase, is_final
from podium_core.schema.job_status import ENDED
from podium_dashboard.pages.page import MAX_NAME, PACKAGE, Kind, PageRef
from podium_dashboard.server.access import viewer_of
from podium_dashboard.server.forms import REFERRER, read_form
from podium_dashboard.server.viewer import RefusedError, Viewer
from podium_views.template import render

ACTIONS = "/actions"
MANAGER = "podium-dashboard"
OF_KIND = {Kind.SEARCH: (SUSPEND, RESUME), Kind.TRIAL: (PIN, UNPIN, STOP)}
FINAL = {one.value for one in TrialPhase if is_final(one)} | ENDED
FOLDER = (
    "This page shows a folder, so nothing can be changed here. Ctrl-C in the terminal of `podium run` stops the "
    "search, and the same command continues it."
)


@dataclass(frozen=True, slots=True)
class Action:
    """An intent for one search or trial."""

    intent: Intent
    namespace: str
    name: str

    @property
    def ref(self) -> PageRef:
        """Return the page of the search or trial."""
        return PageRef(Kind.SEARCH if self.intent.resource is JOBS else Kind.TRIAL, self.namespace, self.name)

    @property
    def path(self) -> str:
        """Return the path of the page that asks for confirmation."""
        return "/".join([ACTIONS, self.intent.name, *(quote(part, safe="") for part in (self.namespace, self.name))])


def actions_of(ref: PageRef) -> list[Action]:
    """Return what can be asked on a page."""
    return [Action(one, ref.namespace, ref.name) for one in OF_KIND.get(ref.kind, ())]


def parse_action(path: str) -> Action | None:
    """Return the action of a path as the browser sent it; None if there is none."""
    match [unquote(part) for part in path.removeprefix(f"{ACTIONS}/").split("/")]:
        case [intent, namespace, name] if intent in INTENTS and 0 < len(name) <= MAX_NAME >= len(namespace) > 0:
            return Action(INTENTS[intent], namespace, name)
    return None


def add_actions(app: FastAPI) -> None:
    """Add the pages of actions to the application."""

    @app.get(ACTIONS + "/{path:path}")
    async def confirm(request: Request) -> Response:
        """Ask for confirmation."""
        action, viewer = await _asked(request)
        found = await _fetch(viewer, action)
        phase = str(found.get("status", {}).get("phase", ""))
        problem = f"It has ended ({phase}), so nothing can be changed." if phase in FINAL else ""
        return _page(action, viewer, uid=str(found["metadata"].get("uid", "")), problem=problem)

    @app.post(ACTIONS + "/{path:path}")
    async def perform(request: Request) -> Response:
        """Carry the action out."""
        form = await read_form(request)
        action, viewer = await _asked(request)
        if not hmac.compare_digest(form.get("form", "").encode(), viewer.form_token(action.path).encode()):
            raise RefusedError(403, "The form is not one that this dashboard made for you; open its page again.")
        if viewer.api is None or not form.get("uid"):
            raise RefusedError(400, "The form is incomplete; open its page again.")
        try:
            await carry_out(viewer.api, action.intent, action.name, action.namespace, manager=MANAGER, uid=form["uid"])
        except ApiError as error:
            return _page(action, viewer, problem=_sentence(error), status=_status(error))
        return _page(action, viewer, result=f"{action.name} {action.intent.result}.")


async def _asked(request: Request) -> tuple[Action, Viewer]:
    """Return the action of a request, on a search or trial that the viewer sees. Raises RefusedError."""
    raw: bytes = request.scope["raw_path"]
    action, viewer = parse_action(raw.decode("latin-1").partition("?")[0]), viewer_of(request)
    if viewer.api is None:
        raise RefusedError(409, FOLDER)
    if action is None or await viewer.pages.page(action.ref) is None:
        raise RefusedError(404, "There is no such search or trial, or you may not see it.")
    return action, viewer


async def _fetch(viewer: Viewer, action: Action) -> dict[str, dict[str, object]]:
    assert viewer.api is not None  # `_asked` has refused the others
    try:
        return await viewer.api.get(action.intent.resource, action.name, action.namespace)
    except ApiError as error:
        raise RefusedError(_status(error), _sentence(error)) from error


def _page(
    action: Action, viewer: Viewer, *, uid: str = "", problem: str = "", result: str = "", status: int = 200
) -> Response:
    text = render(
        PACKAGE,
        "action.html.j2",
        action=action,
        kind="search" if action.intent.resource is JOBS else "trial",
        form=viewer.form_token(action.path),
        uid=uid,
        problem=problem,
        result=result,
    )
    return HTMLResponse(text, status, REFERRER)


def _sentence(error: ApiError) -> str:
    if error.status == 403:
        return f"You may not do that: {error.message}"
    if _is_another(error):
        return "Another object has this name now; open its page again."
    return f"The API server refused it: {error.message}"


def _status(error: ApiError) -> int:
    if _is_another(error):
        return 409
    return error.status if 400 <= error.status < 600 else 503


def _is_another(error: ApiError) -> bool:
    """Return whether the object has another uid; it then refuses the uid as a change of a fixed field."""
    return error.conflict or (error.status == 422 and "metadata.uid" in error.message)

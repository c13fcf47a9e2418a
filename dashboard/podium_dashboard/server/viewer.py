"""A viewer of the pages: what the pages show to it, and which rights its actions use."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from podium_dashboard.pages.page import Page, PageRef

if TYPE_CHECKING:  # the dashboard of a folder has no client of the API server
    from podium_cluster.client import Api


class RefusedError(Exception):
    """A caller gets nothing: `status` is that of HTTP, the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Pages(Protocol):
    """The pages that a viewer may see."""

    async def page(self, ref: PageRef) -> Page | None:
        """Return the newest rendering of a page; None if there is none. Raises RefusedError."""

    async def start_replay(self, ref: PageRef) -> bool:
        """Start the replay of a what-if page; return False if too many wait. Raises RefusedError."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person or program that looks at the pages.

    `name`: its streams are counted by it. `secret`: what only the server and this viewer know. `api`: the client
    with the viewer's rights; None where the source cannot be changed. `signed_in`: it can sign out.
    """

    pages: Pages
    name: str
    title: str
    secret: str
    api: Api | None = None
    signed_in: bool = False

    def form_token(self, path: str) -> str:
        """Return the token of the form of a path; a page of another site cannot know it."""
        return hmac.new(self.secret.encode(), b"form " + path.encode(), hashlib.sha256).hexdigest()

"""Access in a cluster: every caller has a bearer token, and sees what the API server lets this token read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from podium_cluster.client import Api
from podium_dashboard.callers.renderings import Renderings
from podium_dashboard.callers.reviews import Reviews
from podium_dashboard.pages.page import Kind, Page, PageRef
from podium_dashboard.rights import Rights
from podium_dashboard.server.sign_in import SIGN_IN, SIGN_OUT, SignIn, bearer_token
from podium_dashboard.server.viewer import RefusedError, Viewer

PUBLIC = "/assets/"  # style and script, which are in the package


@dataclass(frozen=True, slots=True)
class CallerPages:
    """The pages that a token may see.

    Token and rights are checked again for every page, by short memories.
    """

    reviews: Reviews
    renderings: Renderings
    token: str
    api: Api

    async def page(self, ref: PageRef) -> Page | None:
        """Return a page; None if there is none, or if the caller may not see it. Raises RefusedError."""
        rights = await self._rights()
        if ref.kind is Kind.TRIAL:
            return await self.renderings.own(rights, self.token, self.api).page(ref)
        return await self.renderings.shared(rights).page(ref)

    async def start_replay(self, ref: PageRef) -> bool:
        """Start the replay of a what-if page; return False if too many wait. Raises RefusedError."""
        return await self.renderings.shared(await self._rights()).start_replay(ref)

    async def _rights(self) -> Rights:
        identity = await self.reviews.identify(self.token)
        return await self.reviews.rights(identity, self.renderings.namespaces())


class CallerAccess:
    """Admits requests with a token that the API server accepts; others get the sign-in page."""

    def __init__(
        self, reviews: Reviews, renderings: Renderings, client_of: Callable[[str], Api], sign_in: SignIn
    ) -> None:
        """Prepare; `client_of` returns the client that uses a token."""
        self._reviews = reviews
        self._renderings = renderings
        self._client_of = client_of
        self._sign_in = sign_in

    async def admit(self, scope: Scope) -> Viewer | Response | None:
        """Return whose token the request has, or the sign-in page."""
        path: str = scope["path"]
        if path in (SIGN_IN, SIGN_OUT) or path.startswith(PUBLIC):
            return None
        headers = Headers(scope=scope)
        token = bearer_token(headers)
        raw = scope["raw_path"].decode("latin-1")
        if token is None:
            return self._sign_in.page(headers, raw)
        try:
            identity = await self._reviews.identify(token)
        except RefusedError as error:
            return self._sign_in.page(headers, raw, str(error), error.status)
        api = self._client_of(token)
        return Viewer(
            pages=CallerPages(self._reviews, self._renderings, token, api),
            name=identity.user,
            title=identity.user,
            secret=token,
            api=api,
            signed_in="authorization" not in headers,
        )

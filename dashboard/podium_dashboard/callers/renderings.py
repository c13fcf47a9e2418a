"""Renderings of pages for the rights of callers. Callers with equal rights share them."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from podium_cluster.client import Api
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.hub import Hub
from podium_dashboard.pages.renderer import PageRenderer, Workers
from podium_dashboard.rights import Rights, permitted, permitted_nodes
from podium_dashboard.sources.account_reader import AccountReader
from podium_dashboard.sources.source import EventList, LogTail, Source
from podium_dashboard.state import State

MAX_RENDERERS, MAX_PAGES = 24, 6  # that are kept, and pages of each
NO_LOG = LogTail(note="Logs are on the page of a trial.")
NO_EVENTS = EventList(note="Events are on the page of a trial.")


class PermittedSource:
    """The part of a source that some rights allow. Logs and Events are read with the rights of one caller."""

    def __init__(self, source: Source, rights: Rights, api: Api | None) -> None:
        """Prepare; `api` reads logs and Events with the rights of the caller."""
        self._source = source
        self._rights = rights
        self._reader = None if api is None else AccountReader(api)
        self._of: State | None = None
        self._nodes: tuple[GPUNode, ...] = ()  # pages compare identities
        self._permitted = State(ready=False)

    def state(self) -> State:
        """Return the permitted part of the newest state."""
        whole = self._source.state()
        if whole is not self._of:
            if self._of is None or whole.nodes is not self._of.nodes:
                self._nodes = permitted_nodes(whole.nodes, self._rights)
            self._of, self._permitted = whole, permitted(whole, self._rights, self._nodes)
        return self._permitted

    def now(self) -> datetime:
        """Return the present time of the source."""
        return self._source.now()

    async def log_tail(self, trial: HyperParamTrial) -> LogTail:
        """Return the end of the log of a trial, with the caller's rights."""
        return NO_LOG if self._reader is None else await self._reader.log_tail(trial)

    async def events(self, trial: HyperParamTrial) -> EventList:
        """Return the Events of a trial, with the caller's rights."""
        return NO_EVENTS if self._reader is None else await self._reader.events(trial)


class Renderings:
    """One renderer for each combination of rights, and one for each caller that looks at single trials."""

    def __init__(self, source: Source, hub: Hub) -> None:
        self._source = source
        self._hub = hub
        self._workers = Workers.of(hub)  # one page and one task at a time for all callers
        self._renderers: OrderedDict[tuple[Rights, str], PageRenderer] = OrderedDict()
        self._of: State | None = None
        self._namespaces: frozenset[str] = frozenset()

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have searches."""
        state = self._source.state()
        if state is not self._of:
            self._of, self._namespaces = state, frozenset(one.key[0] for one in state.searches)
        return self._namespaces

    def shared(self, rights: Rights) -> PageRenderer:
        """Return the renderer of the callers with these rights."""
        return self._get(rights, "", None)

    def own(self, rights: Rights, token: str, api: Api) -> PageRenderer:
        """Return the renderer of one caller, whose pages have logs that its token may read."""
        return self._get(rights, token, api)

    def _get(self, rights: Rights, token: str, api: Api | None) -> PageRenderer:
        key = (rights, token)
        found = self._renderers.get(key)
        if found is None:
            source = PermittedSource(self._source, rights, api)
            found = self._renderers[key] = PageRenderer(source, self._hub, MAX_PAGES, self._workers, rights)
        self._renderers.move_to_end(key)
        while len(self._renderers) > MAX_RENDERERS:
            self._renderers.popitem(last=False)
        return found

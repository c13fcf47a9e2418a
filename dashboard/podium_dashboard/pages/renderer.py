"""Pages, rendered once for each version of the state, however many browsers look at them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from podium_dashboard.hub import Hub
from podium_dashboard.pages import gpus, search, searches, trial
from podium_dashboard.pages.page import Extra, Fragment, Kind, Page, PageRef, fragment
from podium_dashboard.sources.source import Shown
from podium_dashboard.state import State

FRAME_SECONDS = 0.4  # least time between two renderings of a page
TICK_SECONDS = 5.0  # largest age of a page, so that durations advance
MAX_PAGES = 32  # that are kept


@dataclass(frozen=True, slots=True)
class _Kept:
    """A page and when it was rendered; None if it does not exist."""

    page: Page | None
    at: float


class PageRenderer:
    """Renders pages in a thread and keeps the newest rendering of each."""

    def __init__(self, source: Shown, hub: Hub, most: int = MAX_PAGES) -> None:
        self.source = source
        self._hub = hub
        self._most = most
        self._kept: OrderedDict[PageRef, _Kept] = OrderedDict()
        self._running: dict[PageRef, asyncio.Task[_Kept]] = {}

    async def page(self, ref: PageRef) -> Page | None:
        """Return the newest rendering of a page; None if there is no such search or trial."""
        kept = self._kept.get(ref)
        if kept is None or not self._fresh(kept):
            running = self._running.get(ref)
            if running is None:
                running = asyncio.create_task(self._render(ref))
                self._running[ref] = running
                running.add_done_callback(lambda _: self._running.pop(ref, None))
            kept = await asyncio.shield(running)  # others may wait for it, too
        return kept.page

    def _fresh(self, kept: _Kept) -> bool:
        age = time.monotonic() - kept.at
        version = self._hub.version if kept.page is None else kept.page.version
        return age < FRAME_SECONDS or (age < TICK_SECONDS and version == self._hub.version)

    async def _render(self, ref: PageRef) -> _Kept:
        version, state = self._hub.version, self.source.state()
        extra = Extra(now=self.source.now())
        if ref.kind is Kind.TRIAL:
            found = state.trial(ref.namespace, ref.name)
            if found is not None:
                extra = replace(extra, log=await self.source.log_tail(found[1]))
        page = await asyncio.to_thread(render, state, ref, extra, version)
        kept = _Kept(page, time.monotonic())
        if page is not None:
            self._kept[ref] = kept
            self._kept.move_to_end(ref)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return kept


def render(state: State, ref: PageRef, extra: Extra, version: int) -> Page | None:
    """Return a page of a state; None if there is no such search or trial."""
    made = _fragments(state, ref, extra, extra.now or datetime.now(UTC))
    if not made:
        return None
    title = ref.name or ("GPUs" if ref.kind is Kind.GPUS else "Searches")
    problems = fragment("problems", "problems.html.j2", problems=state.problems, stopped=state.stopped)
    return Page(ref, title, (problems, *made), version)


def _fragments(state: State, ref: PageRef, extra: Extra, now: datetime) -> tuple[Fragment, ...]:
    match ref.kind:
        case Kind.SEARCHES:
            return searches.fragments(state, now)
        case Kind.GPUS:
            return gpus.fragments(state, now)
        case Kind.SEARCH:
            return search.fragments(state, (ref.namespace, ref.name), now)
        case Kind.TRIAL:
            return trial.fragments(state, ref.namespace, ref.name, now, extra)

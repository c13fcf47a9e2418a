"""Pages, rendered once for each version of the state, however many browsers look at them."""

from __future__ import annotations

import asyncio
import operator
import time
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from podium_dashboard.background.requests import Requests
from podium_dashboard.background.runner import BackgroundTasks
from podium_dashboard.hub import Hub
from podium_dashboard.pages import gpus, search, searches, trial, what_if
from podium_dashboard.pages.page import Extra, Fragment, Kind, Page, PageRef, fragment
from podium_dashboard.sources.source import Shown
from podium_dashboard.state import State

FRAME_SECONDS = 0.4  # least time between two renderings of a page
TICK_SECONDS = 5.0  # largest age of a page, so that durations advance
IDLE_SHARE = 0.25  # of one core, for pages of which only durations advance; they are older where there are many
MAX_PAGES = 64  # that are kept


@dataclass(frozen=True, slots=True)
class _Kept:
    """A page and when it was rendered; None if it does not exist.

    `basis`: the objects that it shows. `cost`: CPU seconds of its rendering.
    """

    page: Page | None
    at: float
    basis: tuple[object, ...] = ()
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Workers:
    """What renderers may share: the thread that renders, and the background tasks."""

    thread: ThreadPoolExecutor
    tasks: BackgroundTasks

    @classmethod
    def of(cls, hub: Hub) -> Workers:
        """Return new workers; results of tasks are changes of the hub."""
        return cls(ThreadPoolExecutor(1, "pages"), BackgroundTasks(hub.changed))


class PageRenderer:
    """Renders pages in one thread and keeps the newest rendering of each."""

    def __init__(
        self,
        source: Shown,
        hub: Hub,
        most: int = MAX_PAGES,
        workers: Workers | None = None,
        scope: Hashable = None,
    ) -> None:
        """Prepare; renderers of different `scope` share the `workers` but not what depends on other searches."""
        workers = workers or Workers.of(hub)
        self.source = source
        self._hub = hub
        self.requests = Requests(source, hub, workers.tasks, scope)
        self._thread = workers.thread
        self._most = most
        self._kept: OrderedDict[PageRef, _Kept] = OrderedDict()
        self._running: dict[PageRef, asyncio.Task[_Kept]] = {}

    async def page(self, ref: PageRef) -> Page | None:
        """Return the newest rendering of a page; None if there is no such search or trial."""
        kept = self._kept.get(ref)
        if kept is None or not self._fresh(ref, kept):
            running = self._running.get(ref)
            if running is None:
                running = asyncio.create_task(self._render(ref))
                self._running[ref] = running
                running.add_done_callback(lambda _: self._running.pop(ref, None))
            kept = await asyncio.shield(running)  # others may wait for it, too
        return kept.page

    async def start_replay(self, ref: PageRef) -> bool:
        """Start the replay of a what-if page; return False if too many wait."""
        return self.requests.start_replay((ref.namespace, ref.name))

    def _fresh(self, ref: PageRef, kept: _Kept) -> bool:
        age = time.monotonic() - kept.at
        if age < FRAME_SECONDS:
            return True
        tick = max(TICK_SECONDS, sum(one.cost for one in self._kept.values()) / IDLE_SHARE)
        basis = self._basis(self.source.state(), ref)
        return age < tick and all(map(operator.is_, kept.basis, basis))

    def _basis(self, state: State, ref: PageRef) -> tuple[object, ...]:
        """Return the objects that a page shows; it is rendered again when one of them is another object."""
        key, requests = (ref.namespace, ref.name), self.requests
        results: tuple[object, ...] = ()
        match ref.kind:
            case Kind.SEARCHES:
                return (state,)
            case Kind.GPUS:
                return (state.nodes, state.problems)
            case Kind.WHAT_IF:
                return (requests.replay(key), requests.is_replaying(key), state.by_key.get(key))
            case Kind.SEARCH:
                shown, results = state.by_key.get(key), requests.known(key)
            case Kind.TRIAL:
                shown = state.search_of(*key)
        return (shown and shown.job, shown and shown.trials, *results)

    async def _render(self, ref: PageRef) -> _Kept:
        version, state = self._hub.version, self.source.state()
        basis = self._basis(state, ref)
        extra = await self._extra(state, ref)
        loop = asyncio.get_running_loop()
        page, cost = await loop.run_in_executor(self._thread, _timed, state, ref, extra, version)
        kept = _Kept(page, time.monotonic(), basis, cost)
        if page is not None:
            self._kept[ref] = kept
            self._kept.move_to_end(ref)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return kept

    async def _extra(self, state: State, ref: PageRef) -> Extra:
        now, key = self.source.now(), (ref.namespace, ref.name)
        if ref.kind is Kind.TRIAL and (found := state.trial(*key)) is not None:
            log, events = await asyncio.gather(self.source.log_tail(found[1]), self.source.events(found[1]))
            return Extra(now=now, log=log, events=events)
        if ref.kind is Kind.SEARCH and key in state.by_key:
            return Extra(now=now, importance=self.requests.importance(key), explanation=self.requests.explanation(key))
        if ref.kind is Kind.WHAT_IF:
            return Extra(now=now, replay=self.requests.replay(key), replaying=self.requests.is_replaying(key))
        return Extra(now=now)


def _timed(state: State, ref: PageRef, extra: Extra, version: int) -> tuple[Page | None, float]:
    """Return a page and the CPU seconds that it took."""
    began = time.thread_time()
    return render(state, ref, extra, version), time.thread_time() - began


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
            return search.fragments(state, (ref.namespace, ref.name), now, extra)
        case Kind.TRIAL:
            return trial.fragments(state, ref.namespace, ref.name, now, extra)
        case Kind.WHAT_IF:
            return what_if.fragments(state, (ref.namespace, ref.name), extra)

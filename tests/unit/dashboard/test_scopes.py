"""Callers with different rights share one dashboard: nothing of a namespace reaches those who may not list it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dashboard_scene import write_objects
from test_rights import node_of

from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.callers.renderings import NO_EVENTS, NO_LOG, Renderings
from podium_dashboard.hub import Hub
from podium_dashboard.pages.page import PageRef, parse_path
from podium_dashboard.pages.renderer import PageRenderer
from podium_dashboard.rights import Rights
from podium_dashboard.server.app import document
from podium_dashboard.sources.folder import FolderSource
from podium_dashboard.sources.source import EventList, LogTail
from podium_dashboard.state import Search, State

OPEN, EVERYTHING = Rights(frozenset({"default"}), True), Rights(None, True)
PATHS = ["/", "/gpus", "/searches/default/digits", "/trials/default/digits-0", "/what-if/default/digits"]
OF_OTHERS = ["/searches/secret/covert", "/trials/secret/covert-0", "/what-if/secret/covert"]


class Two:
    """A source with a search in each of two namespaces, and GPUs that hold trials of both."""

    title = "two"

    def __init__(self, folder: Path) -> None:
        mine, others = folder / "mine", folder / "others"
        write_objects(mine)
        write_objects(others)
        for file in others.rglob("*"):
            if file.is_file():
                text = file.read_text()
                file.write_text(text.replace("default", "secret").replace("digits", "covert"))
        searches = (*self._searches(mine), *self._searches(others))
        self._state = State.of(searches, (node_of("secret", "default"), node_of("default", "secret")))

    def state(self) -> State:
        """Return the state."""
        return self._state

    def now(self) -> datetime:
        """Return the time of the objects."""
        return datetime(2026, 1, 1, 1, tzinfo=UTC)

    async def log_tail(self, trial: HyperParamTrial) -> LogTail:
        """Return what only the dashboard's own account may read."""
        return LogTail(text="covert log")

    async def events(self, trial: HyperParamTrial) -> EventList:
        """Return what only the dashboard's own account may read."""
        return EventList(note="covert events")

    async def run(self, changed: Callable[[], None]) -> None:
        """Do nothing: nothing changes."""

    @staticmethod
    def _searches(folder: Path) -> tuple[Search, ...]:
        return FolderSource(folder).state().searches


def ref_of(path: str) -> PageRef:
    ref = parse_path(path)
    assert ref is not None
    return ref


async def html(renderer: PageRenderer, path: str) -> str:
    page = await renderer.page(ref_of(path))
    return "" if page is None else document(page, "")


async def explained(renderer: PageRenderer, hub: Hub) -> str:
    """Return the page of the search once its wait was computed."""
    path = "/searches/default/digits"
    async with asyncio.timeout(60):
        while "being computed" in (text := await html(renderer, path)):
            await hub.wait_newer(hub.version, 1.0)
            await asyncio.sleep(0.5)  # a rendering is used again for so long
    return text


def test_no_page_names_what_a_caller_may_not_list(tmp_path: Path) -> None:
    async def work() -> None:
        hub = Hub()
        renderings = Renderings(Two(tmp_path), hub)
        whole, part = renderings.shared(EVERYTHING), renderings.shared(OPEN)
        every = await explained(whole, hub)
        assert "not counted" not in every
        text = await explained(part, hub)
        assert "Searches that you may not list are not counted" in text
        for path in PATHS:
            shown = text if path == "/searches/default/digits" else await html(part, path)
            assert shown, path
            assert "covert" not in shown, path
            assert "secret" not in shown, path
        assert "covert" in await html(whole, "/")

    asyncio.run(work())


@pytest.mark.parametrize("path", OF_OTHERS)
def test_pages_of_another_namespace_do_not_exist_and_start_nothing(tmp_path: Path, path: str) -> None:
    async def work() -> None:
        hub = Hub()
        renderings = Renderings(Two(tmp_path), hub)
        part, whole = renderings.shared(OPEN), renderings.shared(EVERYTHING)
        await part.start_replay(ref_of("/what-if/secret/covert"))
        assert await html(part, path) == ""
        assert not whole.requests.is_replaying(("secret", "covert"))
        assert await html(whole, path)
        assert await html(part, path) == "", "also after another caller has seen it"

    asyncio.run(work())


def test_logs_and_events_need_the_callers_own_account(tmp_path: Path) -> None:
    async def work() -> None:
        part = Renderings(Two(tmp_path), Hub()).shared(OPEN)
        found = part.source.state().trial("default", "digits-0")
        assert found is not None
        assert await part.source.log_tail(found[1]) == NO_LOG
        assert await part.source.events(found[1]) == NO_EVENTS

    asyncio.run(work())


def test_all_callers_share_the_background_and_its_replays_are_bounded(tmp_path: Path) -> None:
    async def work() -> None:
        renderings = Renderings(Two(tmp_path), Hub())
        part, whole = renderings.shared(OPEN), renderings.shared(EVERYTHING)
        assert part.requests.tasks is whole.requests.tasks
        tasks = part.requests.tasks
        for number in range(4):
            tasks.start(("replay", ("other", str(number))), 1, object)  # type: ignore[arg-type]
        assert not await part.start_replay(ref_of("/what-if/default/digits"))
        await tasks.close()

    asyncio.run(work())

"""A cache of one kind of object, kept up to date by list and watch.

`run` lists the objects and then follows the watch. A watch that ends continues from the last version. A new list is
needed if the server no longer has that version, or if events may be missing. Failures lead to an exponential back-off
with jitter, and to at most one request a second.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podium_cluster.access.answers import Manifest, check_event, check_list
from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.errors import ANSWER_TOO_LARGE, INVALID_ANSWER, STALE_LIST
from podium_cluster.object_store import ObjectStore, key_of, version_of
from podium_cluster.resources import Page, Selection
from podium_cluster.versions import Key, SeenVersions, is_older

__all__ = ["Key", "Timing", "WatchCache", "wait_all_synced"]
T = TypeVar("T")
log = logging.getLogger(__name__)

WATCH_SECONDS = 240
HEALTHY_SECONDS = 5.0  # a watch that lasted for so long ends the back-off, also without an event
REQUEST_SECONDS = 1.0  # minimum time for each request of an attempt
RESUME_TRIES = 5  # consecutive failures of a watch after which the objects are listed again
RELIST_SECONDS = 1800.0  # bounds how long an event that was lost without an error is missing
RELIST_RETRY_SECONDS = 300.0
STALE_SECONDS = 60.0  # a server that is behind for longer was restored from a backup
MIN_PAGE = 16
MAX_PAGES = 10_000
PARSE_BATCH = 32  # objects parsed before other tasks run: 4 ms, while a whole list of GPUNodes takes 0.6 s


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock of a cache, and the source of its jitter."""

    clock: Callable[[], float] = time.monotonic
    chance: random.Random = field(default_factory=random.Random)


class WatchCache(ObjectStore[T]):
    """The parsed objects of one selection; the keys are (namespace, name).

    `parse` turns a payload into a value and may raise ValueError.
    """

    def __init__(
        self, api: Api, selection: Selection, parse: Callable[[Mapping[str, Any]], T], timing: Timing | None = None
    ) -> None:
        super().__init__(selection.resource.kind, parse)
        timing = timing or Timing()
        self._api = api
        self._selection = selection
        self._plural = selection.resource.plural
        self._clock = timing.clock
        self._chance = timing.chance
        self._backoff = Backoff(timing.chance)
        self._page_size = selection.page
        self._heard = timing.clock()
        self._error: ApiError | None = None  # the last one since then
        self._failing_since = math.inf
        self._must_list = True
        self._list_at = math.inf
        self._stale_since = math.inf
        self._requests = 0  # of this attempt

    def age(self) -> float:
        """Return the seconds since the last list, event or bookmark of the server."""
        return self._clock() - self._heard

    def current_at(self) -> float:
        """Return until when the cache is known to be current: now, or the last answer while its requests fail."""
        return self._clock() if self._backoff.failures == 0 else self._heard

    def refusal(self, seconds: float) -> ApiError | None:
        """Return the error if the server has refused (401 or 403) the calls of at least the last `seconds`."""
        refused = self._error is not None and self._error.status in (401, 403)
        return self._error if refused and self._clock() - self._failing_since >= seconds else None

    async def run(self) -> None:
        """List and watch until cancelled; nothing else ends it."""
        while True:
            began, self._requests, pause = self._clock(), 0, 0.0
            try:
                await self._list_if_due()
                if not await self._follow():
                    pause = self._backoff.pause()
            except ApiError as error:
                self._error, self._failing_since = error, min(self._failing_since, self._clock())
                pause = self._backoff.pause(error.retry_after)
                # the rest of a stream with an invalid event is unknown; most other errors affect only this connection
                self._must_list |= error.expired or error.malformed or error.stale or not error.transient
                log.warning("watch of %s failed, retrying in %.1f s: %s", self._plural, pause, error)
            except Exception:
                pause = self._backoff.pause()
                self._must_list = True
                log.exception("watch of %s failed, retrying in %.1f s", self._plural, pause)
            self._must_list |= self._backoff.failures > 0 and self._backoff.failures % RESUME_TRIES == 0
            await asyncio.sleep(max(pause, self._requests * REQUEST_SECONDS - (self._clock() - began)))

    async def _list_if_due(self) -> None:
        """List if that is necessary; the failure of a list that is only due does not end the watch."""
        if self._must_list:
            await self._list()
        elif self._clock() >= self._list_at:
            try:
                await self._list()
            except ApiError as error:
                if error.stale:
                    raise
                self._list_at = self._clock() + RELIST_RETRY_SECONDS
                log.warning("%s could not be listed again: %s", self._plural, error)

    async def _list(self) -> None:
        page, listed = Page(self._page_size, not_older_than=self._oldest_accepted()), ""
        fresh: dict[Key, T] = {}
        versions: dict[Key, str] = {}
        for _ in range(MAX_PAGES):
            answer = await self._read_page(page)
            listed = listed or version_of(answer)
            for number, payload in enumerate(answer["items"], start=1):
                versions[key_of(payload)] = version_of(payload)
                self._copy(fresh, listed, payload)
                if number % PARSE_BATCH == 0:
                    await asyncio.sleep(0)
            after = answer["metadata"].get("continue") or ""
            if not after:
                break
            if after == page.after:
                raise ApiError(0, INVALID_ANSWER, f"page {after!r} of {self._plural} continues with itself")
            page = Page(self._page_size, after)
        else:
            raise ApiError(0, INVALID_ANSWER, f"the list of {self._plural} has not ended after {MAX_PAGES} pages")
        self._replace(fresh, SeenVersions(listed, versions))
        self._note_answer()
        now = self._heard
        self._must_list, self._stale_since = False, math.inf
        self._list_at = now + RELIST_SECONDS * self._chance.uniform(0.75, 1.0)

    async def _read_page(self, page: Page) -> Manifest:
        chosen = self._selection
        self._requests += 1
        try:
            answer = check_list(
                await self._api.list(
                    chosen.resource, chosen.namespace, labels=chosen.labels, fields=chosen.fields, page=page
                ),
                self._plural,
            )
            if is_older(version_of(answer), page.not_older_than):
                raise ApiError(0, STALE_LIST, f"version {version_of(answer)} is older than {page.not_older_than}")
        except ApiError as error:
            if error.reason == ANSWER_TOO_LARGE:
                self._page_size = min(self._page_size, max(MIN_PAGE, self._page_size // 2))
            if error.stale:
                self._stale_since = min(self._stale_since, self._clock())
            elif page.not_older_than and error.status in (400, 410):
                self._stale_since = -math.inf  # this server does not know the parameter
            raise
        return answer

    def _oldest_accepted(self) -> str:
        """Return the version that a list must contain, so that a server that is behind does not undo events.

        A server that stays behind was restored from a backup: its state is the truth, and the versions start again.
        """
        if self._clock() - self._stale_since < STALE_SECONDS:
            return self._seen.newest
        log.warning("%s: the server stays behind version %s; listing any version", self._plural, self._seen.newest)
        return ""

    async def _follow(self) -> bool:
        """Follow a watch to its end; return whether it was healthy."""
        chosen, began, healthy = self._selection, self._clock(), False
        self._requests += 1
        events = self._api.watch(
            chosen.resource,
            chosen.namespace,
            version=self._seen.newest,
            labels=chosen.labels,
            fields=chosen.fields,
            seconds=round(WATCH_SECONDS * self._chance.uniform(1.0, 1.25)),
        )
        try:
            async with aclosing(events):
                async for event in events:
                    kind, payload = check_event(event, self._plural)
                    self._note_answer()
                    healthy |= self._take(kind, payload)
        finally:
            healthy |= self._clock() - began >= HEALTHY_SECONDS
            if healthy:
                self._backoff.reset()
        return healthy

    def _note_answer(self) -> None:
        self._heard, self._error, self._failing_since = self._clock(), None, math.inf


async def wait_all_synced(caches: Iterable[WatchCache[Any]]) -> None:
    """Wait until the first list of each cache is complete."""
    await asyncio.gather(*(cache.wait_synced() for cache in caches))

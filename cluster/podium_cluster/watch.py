"""A cache of one kind of object, kept true by list and watch; the eyes of operator, extender, agent and command line.

`run` lists, then follows the watch, and begins again when the server forgot the version or the connection broke, with
a growing pause. Objects that cannot be parsed are left out and logged once a version: one bad object blinds nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource

T = TypeVar("T")
Key = tuple[str, str]
Listener = Callable[[], None]
log = logging.getLogger(__name__)

WATCH_SECONDS = 240
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
TURN = 32  # objects of a list that are parsed before others have their turn: 4 ms, of a whole list of GPUNodes 0.6 s


class WatchCache(Generic[T]):
    """`parse` turns a payload into a value (it may raise ValueError). Keys are (namespace, name). `page`: objects that
    are listed at a time, for kinds of which there are too many to hold them all as they come; None: all at once.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        parse: Callable[[Mapping[str, Any]], T],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        page: int | None = None,
    ) -> None:
        self._api = api
        self._page = page
        self._resource = resource
        self._parse = parse
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._items: dict[Key, T] = {}
        self._synced = asyncio.Event()
        self._listeners: list[Listener] = []
        self._followers: list[Callable[[Key, T | None, T | None], None]] = []
        self._heard = time.monotonic()

    def get(self, namespace: str, name: str) -> T | None:
        return self._items.get((namespace, name))

    def values(self) -> list[T]:
        """All objects, ordered by namespace and name."""
        return [self._items[key] for key in sorted(self._items)]

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` (quick, on the event loop) after every change."""
        self._listeners.append(listener)

    def follow(self, follower: Callable[[Key, T | None, T | None], None]) -> None:
        """Call `follower(key, before, after)` (quick, on the event loop) for each object that changed; None: it is not
        there. For indexes that are kept rather than made anew after every change.
        """
        self._followers.append(follower)

    @property
    def synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def age(self) -> float:
        """Seconds since the server was last heard."""
        return time.monotonic() - self._heard

    async def run(self) -> None:
        """List and watch until cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                version = await self._list()
                pause = FIRST_PAUSE
                while True:
                    version = await self._follow(version)
            except ApiError as error:
                if error.expired:
                    continue
                log.warning("watch of %s broken, again in %.1f s: %s", self._resource.plural, pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _list(self) -> str:
        fresh: dict[Key, T] = {}
        after: str | None = ""
        while after is not None:
            answer = await self._list_page(after)
            for number, payload in enumerate(answer["items"], start=1):
                self._put(fresh, payload)
                if number % TURN == 0:
                    await asyncio.sleep(0)
            after = answer["metadata"].get("continue") or None
        before, self._items = self._items, fresh
        for key in before.keys() | fresh.keys():
            self._tell(key, before.get(key), fresh.get(key))
        self._touched()
        self._synced.set()
        version: str = answer["metadata"]["resourceVersion"]
        return version

    async def _list_page(self, after: str) -> Mapping[str, Any]:
        kind, labels, fields = self._resource, self._labels, self._fields
        if self._page is None:
            return await self._api.list(kind, self._namespace, labels=labels, fields=fields)
        return await self._api.list(kind, self._namespace, labels=labels, fields=fields, limit=self._page, after=after)

    async def _follow(self, version: str) -> str:
        events = self._api.watch(
            self._resource,
            self._namespace,
            version=version,
            labels=self._labels,
            fields=self._fields,
            seconds=WATCH_SECONDS,
        )
        async for event in events:
            payload = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(payload.get("code", 0), payload.get("reason", "Error"), payload.get("message", ""))
            version = payload["metadata"]["resourceVersion"]
            self._heard = time.monotonic()
            if event["type"] == "BOOKMARK":
                continue
            key = _key(payload)
            before = self._items.get(key)
            if event["type"] == "DELETED":
                self._items.pop(key, None)
            else:
                self._put(self._items, payload)
            self._tell(key, before, self._items.get(key))
            self._touched()
        return version

    def _put(self, items: dict[Key, T], payload: Mapping[str, Any]) -> None:
        key = _key(payload)
        try:
            items[key] = self._parse(payload)
        except ValueError as error:
            items.pop(key, None)
            log.error("%s %s/%s cannot be read and is left out: %s", self._resource.kind, *key, error)

    def _tell(self, key: Key, before: T | None, after: T | None) -> None:
        for follower in self._followers:
            follower(key, before, after)

    def _touched(self) -> None:
        self._heard = time.monotonic()
        for listener in self._listeners:
            listener()


async def wait_all_synced(caches: Iterable[WatchCache[Any]]) -> None:
    await asyncio.gather(*(cache.wait_synced() for cache in caches))


def _key(payload: Mapping[str, Any]) -> Key:
    meta = payload["metadata"]
    return meta.get("namespace", ""), meta["name"]

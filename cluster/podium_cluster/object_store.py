"""The parsed objects of a cache and the listeners for changes; it applies lists and events, and sends no requests.

`watch` fills it. Objects that cannot be parsed are omitted and logged once for each version, so an invalid object does
not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from podium_cluster.access.answers import Manifest
from podium_cluster.errors import OUT_OF_ORDER, ApiError
from podium_cluster.versions import EventVerdict, Key, SeenVersions, is_older

T = TypeVar("T")
Listener = Callable[[], None]
log = logging.getLogger(__name__)


class ObjectStore(Generic[T]):
    """The parsed objects of one kind; the keys are (namespace, name).

    `parse` turns a payload into a value and may raise ValueError.
    """

    def __init__(self, kind: str, parse: Callable[[Mapping[str, Any]], T]) -> None:
        self._kind = kind
        self._parse = parse
        self._items: dict[Key, T] = {}
        self._seen = SeenVersions()
        self._synced = asyncio.Event()
        self._listeners: list[Listener] = []
        self._followers: list[Callable[[Key, T | None, T | None], None]] = []

    def get(self, namespace: str, name: str) -> T | None:
        """Return an object, or None."""
        return self._items.get((namespace, name))

    def values(self) -> list[T]:
        """Return all objects, ordered by namespace and name."""
        return [self._items[key] for key in sorted(self._items)]

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` after every change; it runs on the event loop and must be quick."""
        self._listeners.append(listener)

    def follow(self, follower: Callable[[Key, T | None, T | None], None]) -> None:
        """Call `follower(key, before, after)` for each object that changed; None means that it does not exist.

        The follower runs on the event loop and must be quick. It is meant for indexes that are updated incrementally.
        """
        self._followers.append(follower)

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the first list is complete."""
        await self._synced.wait()

    def _replace(self, fresh: dict[Key, T], seen: SeenVersions) -> None:
        """Take over a complete list."""
        before, self._items, self._seen = self._items, fresh, seen
        changed = [key for key in before.keys() | fresh.keys() if before.get(key) is not fresh.get(key)]
        for key in changed:
            self._notify(key, before.get(key), fresh.get(key))
        if changed or not self.synced:
            self._call_listeners()
        self._synced.set()

    def _copy(self, fresh: dict[Key, T], listed: str, payload: Mapping[str, Any]) -> None:
        """Add an object of the list of version `listed`; an object of a known version is not parsed again."""
        key, version = key_of(payload), version_of(payload)
        # after a restore of the server from a backup, a version may name another state
        known = version != "" and version == self._seen.objects.get(key) and not is_older(listed, self._seen.newest)
        if not known:
            self._put(fresh, payload)
        elif key in self._items:
            fresh[key] = self._items[key]

    def _take(self, kind: str, payload: Manifest) -> bool:
        """Apply an event and return whether it changed something; raise ApiError if the stream is not in order."""
        if kind == "BOOKMARK":
            verdict = self._seen.bookmark(version_of(payload))
        else:
            verdict = self._seen.add(key_of(payload), version_of(payload), deleted=kind == "DELETED")
            if verdict is EventVerdict.OLD:
                return False
            self._change(kind, payload)
        if verdict is EventVerdict.LATE:
            # another event may be late, too, and would be lost if the connection ended now
            message = f"version {version_of(payload)} came after version {self._seen.newest}"
            raise ApiError(0, OUT_OF_ORDER, message)
        return kind != "BOOKMARK"

    def _change(self, kind: str, payload: Manifest) -> None:
        key = key_of(payload)
        before = self._items.get(key)
        if kind == "DELETED":
            self._items.pop(key, None)
        else:
            self._put(self._items, payload)
        self._notify(key, before, self._items.get(key))
        self._call_listeners()

    def _put(self, items: dict[Key, T], payload: Mapping[str, Any]) -> None:
        key = key_of(payload)
        items.pop(key, None)
        try:
            items[key] = self._parse(payload)
        except ValueError as error:
            log.error("%s %s/%s cannot be parsed and is omitted: %s", self._kind, *key, error)
        except Exception:
            log.exception("%s %s/%s cannot be parsed and is omitted", self._kind, *key)

    def _notify(self, key: Key, before: T | None, after: T | None) -> None:
        for follower in self._followers:
            self._call(follower, key, before, after)

    def _call_listeners(self) -> None:
        for listener in self._listeners:
            self._call(listener)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a listener; one that fails must not end the cache for all others."""
        try:
            function(*arguments)
        except Exception:
            log.exception("a listener for changes of %s failed", self._kind)


def key_of(payload: Mapping[str, Any]) -> Key:
    """Return the namespace (empty if it has none) and the name of an object."""
    metadata = payload["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def version_of(payload: Mapping[str, Any]) -> str:
    """Return the resource version of an object, or an empty text."""
    version: str = payload["metadata"].get("resourceVersion", "")
    return version

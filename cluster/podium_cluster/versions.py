"""Resource versions: which event is newer than what a cache holds.

Kubernetes 1.35 and newer guarantee that the versions of one kind are decimal numbers that grow. Any other text is
opaque: it can be equal to another one, and nothing else is known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum

Key = tuple[str, str]
MAX_DELETED = 10_000  # deleted objects whose versions are remembered


class EventVerdict(Enum):
    """What an event means for a cache."""

    NEWS = "newer than what is known"
    OLD = "already known or replaced"
    LATE = "newer for its object, but an event with a higher version came before it"


def is_older(version: str, than: str) -> bool:
    """Return whether both versions are numbers and the first one is lower. Pure."""
    if not (_is_number(version) and _is_number(than)):
        return False
    return (len(version), version) < (len(than), than)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit() and not version.startswith("0")


class SeenVersions:
    """The version of each object in a list, and of the events since then.

    `listed` is the version of the list. `newest` is the highest version seen, from which a watch continues.
    """

    def __init__(self, listed: str = "", objects: Mapping[Key, str] | None = None) -> None:
        self.listed = self.newest = listed
        self.objects: dict[Key, str] = dict(objects or {})
        self._deleted: OrderedDict[Key, str] = OrderedDict()

    def add(self, key: Key, version: str, *, deleted: bool) -> EventVerdict:
        """Record an event and return what it means."""
        late = is_older(version, self.newest)
        if self._is_old(key, version, deleted):
            return EventVerdict.OLD
        if deleted:
            self.objects.pop(key, None)
            self._deleted[key] = version
            if len(self._deleted) > MAX_DELETED:
                self._deleted.popitem(last=False)
        else:
            self._deleted.pop(key, None)
            self.objects[key] = version
        if late:
            return EventVerdict.LATE
        self.newest = version or self.newest
        return EventVerdict.NEWS

    def bookmark(self, version: str) -> EventVerdict:
        """Record that the stream has reached `version`."""
        if is_older(version, self.newest):
            return EventVerdict.LATE
        self.newest = version
        return EventVerdict.NEWS

    def _is_old(self, key: Key, version: str, deleted: bool) -> bool:
        if key in self.objects:
            known = self.objects[key]
            # some servers send a deletion with the object's last version
            return is_older(version, known) or (version == known != "" and not deleted)
        known = self._deleted.get(key, self.listed)
        return is_older(version, known) or version == known != ""

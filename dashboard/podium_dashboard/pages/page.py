"""Names of pages, and a page as fragments that the browser replaces one by one."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from urllib.parse import quote, unquote

from podium_dashboard.background.runner import Result
from podium_dashboard.sources.source import EventList, LogTail
from podium_views.template import environment

PACKAGE = "podium_dashboard"
MAX_UNPACKED = 48  # fragments; those of about five pages
MAX_NAME = 253  # characters of a name in Kubernetes


class Kind(StrEnum):
    """The kinds of pages, by the first part of their paths."""

    SEARCHES = ""
    SEARCH = "searches"
    TRIAL = "trials"
    GPUS = "gpus"
    WHAT_IF = "what-if"


@dataclass(frozen=True, slots=True)
class PageRef:
    """Which page: its kind, and for a search or a trial its namespace and name."""

    kind: Kind
    namespace: str = ""
    name: str = ""

    @property
    def path(self) -> str:
        """Return the path of the page, for links."""
        parts = [self.kind.value] + ([self.namespace, self.name] if self.name else [])
        return "/" + "/".join(quote(part, safe="") for part in parts)


def parse_path(path: str) -> PageRef | None:
    """Return the page of a path as the browser sent it; None if there is no such page."""
    match [unquote(part) for part in path.lstrip("/").split("/")]:
        case [""]:
            return PageRef(Kind.SEARCHES)
        case ["gpus"]:
            return PageRef(Kind.GPUS)
        case [("searches" | "trials" | "what-if") as kind, namespace, name]:
            if 0 < len(name) <= MAX_NAME >= len(namespace):
                return PageRef(Kind(kind), namespace, name)
    return None


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page with the name of its place, and a digest by which a change is noticed.

    It is kept compressed, because a large search has a megabyte of drawings and fifty of them may be looked at.
    """

    name: str
    digest: str
    packed: bytes

    @classmethod
    def of(cls, name: str, html: str) -> Fragment:
        """Return the fragment with its digest."""
        digest = hashlib.sha256(html.encode()).hexdigest()[:12]
        wire = json.dumps({"name": name, "digest": digest, "html": html})
        return cls(name, digest, zlib.compress(wire.encode(), 1))

    @property
    def wire(self) -> bytes:
        """Return the fragment as JSON; browsers that get it at about the same time share it."""
        return _unpacked(self.packed)

    @property
    def html(self) -> str:
        """Return the fragment's HTML."""
        html: str = json.loads(self.wire)["html"]
        return html


@lru_cache(maxsize=MAX_UNPACKED)
def _unpacked(packed: bytes) -> bytes:
    return zlib.decompress(packed)


@dataclass(frozen=True, slots=True)
class Page:
    """All fragments of a page at one version of the state."""

    ref: PageRef
    title: str
    fragments: tuple[Fragment, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Extra:
    """What a page needs besides the state."""

    log: LogTail | None = None
    events: EventList | None = None
    importance: Result | None = None
    explanation: Result | None = None
    replay: Result | None = None
    replaying: bool = False
    now: datetime | None = None  # None: the clock of this machine


def fragment(name: str, template: str, /, **values: object) -> Fragment:
    """Return the fragment that a template makes of the values."""
    made = environment(PACKAGE).get_template(template).render(values, link=link)
    return Fragment.of(name, made.strip())


def link(kind: str, namespace: str, name: str) -> str:
    """Return the path of a search or a trial."""
    return PageRef(Kind(kind), namespace, name).path

"""What the server needs of a source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from podium_core.schema.trial import HyperParamTrial
from podium_dashboard.state import State

TAIL_LINES, TAIL_BYTES = 200, 1 << 16  # of a log


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a trial's log, or a sentence that explains why there is none."""

    text: str = ""
    note: str = ""

    @classmethod
    def of(cls, content: bytes, *, complete: bool) -> LogTail:
        """Return the last lines of the bytes. Unless they are the complete log, their first line may be cut."""
        lines = content.decode("utf-8", "replace").splitlines()
        cut = not complete or len(lines) > TAIL_LINES
        if not complete:
            lines = lines[1:] or lines
        shown = lines[-TAIL_LINES:]
        if not shown:
            return cls(note="The log is empty.")
        return cls("\n".join(shown), f"The last {len(shown)} lines." if cut else "")


@dataclass(frozen=True, slots=True)
class EventLine:
    """One Kubernetes Event of a trial or of its pod."""

    at: datetime | None
    about: str
    kind: str
    reason: str
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class EventList:
    """The Events of a trial, the newest first, or a sentence that explains why there are none."""

    lines: tuple[EventLine, ...] = ()
    note: str = ""


class Shown(Protocol):
    """What pages are made of: a source, or the part of one that a caller may see."""

    def state(self) -> State:
        """Return the newest state. It is called on the event loop and must be quick."""

    def now(self) -> datetime:
        """Return the present time by the clock that wrote the times in the objects."""

    async def log_tail(self, trial: HyperParamTrial) -> LogTail:
        """Return the end of the log of a trial."""

    async def events(self, trial: HyperParamTrial) -> EventList:
        """Return the Events of a trial and of its pod."""


class Source(Shown, Protocol):
    """Objects of searches, and changes of them."""

    @property
    def title(self) -> str:
        """Return what is shown, for the head of each page."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the source until cancelled, and call `changed` after each change of the state."""

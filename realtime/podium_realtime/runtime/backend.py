"""What a back-end is: it takes committed works and says when they are done. The executive knows nothing else of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podium_realtime.scheduling.work import Work


@dataclass(frozen=True, slots=True)
class Availability:
    """Can this back-end run here? The reason says what is missing, or what was found."""

    runs: bool
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A work that is done; times of the back-end's clock (the executive's), in seconds."""

    number: int
    began: float
    ended: float


class Session(Protocol):
    """Partitions that are made and warmed; a context manager that ends them."""

    def submit(self, work: Work) -> None:
        """Hands a work to the stream that it was committed to; returns at once."""
        ...

    def wait(self, seconds: float) -> Sequence[Finished]:
        """What is done, at the latest after `seconds`; empty when nothing was."""
        ...

    def close(self) -> None: ...

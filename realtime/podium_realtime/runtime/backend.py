"""Interface of the back-ends, which run the batches that the dispatcher commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from podium_realtime.scheduling.jobs import StageBatch


@dataclass(frozen=True, slots=True)
class BackendAvailability:
    """Availability of a back-end on this machine. The message describes the device, or what is missing."""

    available: bool
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class CompletedBatch:
    """A finished batch. Times are in seconds of the clock `time.perf_counter`."""

    number: int
    started: float
    finished: float


class BackendSession(Protocol):
    """Created and warmed partitions of a back-end."""

    def submit(self, batch: StageBatch) -> None:
        """Pass a batch to the stream to which it was committed; return at once."""
        ...

    def wait(self, seconds: float) -> Sequence[CompletedBatch]:
        """Return batches that finished, after at most `seconds`; empty if none did."""
        ...

    def close(self) -> None:
        """End the workers and release the partitions."""
        ...

"""What `Search` needs of the place where a search runs; `local_run` and `cluster_job` implement it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial


@dataclass(frozen=True, slots=True)
class Objects:
    """The job and its trials by number, at one moment. `running`: something still works on the search."""

    job: HyperParamJob
    trials: tuple[HyperParamTrial, ...]
    running: bool = True


class Backend(Protocol):
    """A search that was started. Every method raises SearchError with a cure."""

    place: str  # for people: the folder or the namespace

    def read(self) -> Objects:
        """Return the job and its trials."""

    def log(self, trial: HyperParamTrial, lines: int) -> str:
        """Return the last lines that the trial printed."""

    def suspend(self) -> None:
        """Let the trials give up their GPUs and keep their progress."""

    def resume(self) -> None:
        """Continue a suspended search."""

    def stop(self) -> None:
        """End the search and keep its results."""

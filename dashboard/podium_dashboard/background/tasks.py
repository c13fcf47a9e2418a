"""The tasks of a background process: what each gets and returns. All values can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.waiting.explanation import JobExplanation
from podium_dashboard.stored_trial import StoredTrial
from podium_simulator.expected.times import ExpectedTimes


class Task(Protocol):
    """Something to compute from its own fields alone."""

    def run(self) -> object:
        """Return the result. Raises UnknownError with a sentence.

        It is called in a process of its own.
        """


class UnknownError(Exception):
    """There is no result, for the reason in the text."""


@dataclass(frozen=True, slots=True)
class Importances:
    """Share of each parameter, the largest first; they add up to 1.

    `trials`: number of ended trials that they come from.
    """

    shares: tuple[tuple[str, float], ...]
    trials: int


@dataclass(frozen=True, slots=True)
class ImportanceTask:
    """Importance of the parameters of one search."""

    job: HyperParamJob
    trials: tuple[StoredTrial, ...]

    def run(self) -> object:
        """Return the importances."""
        from podium_dashboard.background.importance import importances  # Optuna takes 100 MiB and a second

        return importances(self.job.spec, [one.whole() for one in self.trials])


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a search runs or waits, and when it ends.

    `times`: None if it cannot run. `now`: time of the state, in seconds since the Unix epoch.
    """

    explanation: JobExplanation
    times: ExpectedTimes | None
    now: float


@dataclass(frozen=True, slots=True)
class ExplanationTask:
    """The wait of one search, with all searches that compete with it."""

    job: HyperParamJob
    jobs: tuple[HyperParamJob, ...]
    trials: tuple[StoredTrial, ...]
    nodes: tuple[GPUNode, ...]
    now: float
    local: bool

    def run(self) -> object:
        """Return the explanation."""
        from podium_dashboard.background.waiting import explained

        return explained(self)


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """A replay of the curves of one search under every policy."""

    job: HyperParamJob
    trials: tuple[StoredTrial, ...]

    def run(self) -> object:
        """Return the comparison."""
        from podium_dashboard.background.replay import replayed

        return replayed(self.job, [one.whole() for one in self.trials])

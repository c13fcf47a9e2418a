"""Outcome of a simulated system. The engine writes it; reports, `podium plan` and comparisons read it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase

TRAINING = "training"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Span:
    """Period in which a trial held a GPU.

    `use`: training, or what kept the GPU busy instead (starting, loading, suspending, resuming, saving).
    """

    gpu: str
    trial: TrialKey
    number: int
    start: float
    end: float
    use: str

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Value:
    """Evaluation that a trial reached at this time. `value` is as recorded."""

    time: float
    job: JobKey
    trial: TrialKey
    step: float
    value: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of the operator that made a trial the first in a GPU's run queue."""

    time: float
    gpu: str
    trial: TrialKey
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """Result of one trial.

    `started`: when it first held a GPU; None: never. `lost_seconds`: lost training, on its `gpus` at once.
    """

    trial: TrialKey
    job: JobKey
    number: int
    gpus: int
    phase: TrialPhase
    started: float | None
    ended: float | None
    evaluations: int
    gpu_seconds: float
    lost_seconds: float
    suspensions: int
    checkpoints: int  # each followed by a new pod
    attempts: int
    migrations: int = 0  # live migrations to another node


@dataclass(frozen=True, slots=True)
class JobEnd:
    job: JobKey
    arrived: float
    ended: float
    succeeded: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a scenario. Times are virtual seconds.

    `events`: number of all events; `plans`: number of the operator's cycles. `broken`: violations of
    `planning.invariants`, where the caller asked for the check.
    """

    jobs: tuple[JobEnd, ...]
    trials: tuple[TrialEnd, ...]
    values: tuple[Value, ...]
    spans: tuple[Span, ...]
    decisions: tuple[Decision, ...]
    gpus: tuple[str, ...]
    events: int
    plans: int
    broken: tuple[str, ...]

    @property
    def makespan(self) -> float:
        return max(job.ended for job in self.jobs)

    @property
    def only(self) -> JobEnd:
        """The only job. Raises ValueError where there are several; see `by_job`."""
        (job,) = self.jobs
        return job

    def by_job(self) -> Mapping[JobKey, Outcome]:
        """Return the outcome of each job, in the order of `jobs`. O(spans + values).

        GPUs, events, plans and `broken` are those of all jobs. Times are those of the whole simulation.
        """
        job_of = {trial.trial: trial.job for trial in self.trials}
        trials, values = _by(self.trials, lambda trial: trial.job), _by(self.values, lambda value: value.job)
        spans, decisions = _by(self.spans, lambda s: job_of[s.trial]), _by(self.decisions, lambda d: job_of[d.trial])
        return {
            end.job: replace(
                self,
                jobs=(end,),
                trials=tuple(trials[end.job]),
                values=tuple(values[end.job]),
                spans=tuple(spans[end.job]),
                decisions=tuple(decisions[end.job]),
            )
            for end in self.jobs
        }

    def gpu_seconds(self, use: str | None = None, trials: Iterable[TrialKey] | None = None) -> float:
        """Return the GPU-seconds of one use and of some trials (default: all)."""
        mine = None if trials is None else set(trials)
        return math.fsum(
            s.seconds for s in self.spans if (use is None or s.use == use) and (mine is None or s.trial in mine)
        )


def _by(items: Sequence[_T], job: Callable[[_T], JobKey]) -> defaultdict[JobKey, list[_T]]:
    groups: defaultdict[JobKey, list[_T]] = defaultdict(list)
    for one in items:
        groups[job(one)].append(one)
    return groups

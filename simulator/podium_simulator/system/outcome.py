"""What happened in a simulated system: written by the engine, read by reports, `podium plan` and comparisons."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import JobKey, TrialKey

TRAINING = "training"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Span:
    """A trial had a GPU from `start` to `end`; `use`: training, or what kept the GPU busy instead (starting,
    loading, suspending, resuming, saving).
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
    """A trial had trained to an evaluation at this time. `value` as recorded."""

    time: float
    job: JobKey
    trial: TrialKey
    step: float
    value: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The operator made a trial the first of a GPU's order."""

    time: float
    gpu: str
    trial: TrialKey
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """`started`: when it first had a GPU; None: never. `lost_seconds`: of training, on its `gpus` at once."""

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
    saves: int  # to go on in a new pod
    attempts: int
    carries: int = 0  # to another node, alive


@dataclass(frozen=True, slots=True)
class JobEnd:
    job: JobKey
    arrived: float
    ended: float
    succeeded: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times are virtual seconds. `events`: all that happened, `plans`: cycles of the operator among them; `broken`:
    rules of sound plans that were violated (`planning.invariants`), where the caller asked for the check.
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
        """Its one job; ValueError where there are several: what is said of one must not mix them (see `apart`)."""
        (job,) = self.jobs
        return job

    def apart(self) -> Mapping[JobKey, Outcome]:
        """What happened of each job by itself, in the order of `jobs`; GPUs, events, plans and `broken` are those of
        all. Times stay those of the whole. O(spans + values).
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
        """Of one use (all by default), of some trials (all by default)."""
        mine = None if trials is None else set(trials)
        return math.fsum(
            s.seconds for s in self.spans if (use is None or s.use == use) and (mine is None or s.trial in mine)
        )


def _by(found: Sequence[_T], job: Callable[[_T], JobKey]) -> defaultdict[JobKey, list[_T]]:
    groups: defaultdict[JobKey, list[_T]] = defaultdict(list)
    for one in found:
        groups[job(one)].append(one)
    return groups

"""Predicted-SJF and predicted-SRPT: the shortest by prediction goes first, learned only from jobs that have ended.

A job's prediction is made when it arrives. When jobs of its narrowest class end and change what is expected by more
than a tenth, the waiting jobs of the class are queued anew. With preemption a job that outlives its prediction is taken
for twice as long as was thought, and again at each doubling: a wrong guess costs at most a few turns. Run like every
policy: `simulate(workload, cluster, PredictedSjf(), costs)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.priority import PriorityDecider, Static
from podium_optimisers.engine.simulation import JobState
from podium_optimisers.engine.workload import Workload
from podium_optimisers.prediction.history import Class, DurationHistory, HistorySettings, classes_of

TOLERANCE = 0.1  # share by which a class's expectation must change before its waiting jobs are queued anew


class PredictedShortest(Static):
    """The order by predicted duration; never reads a job's duration before the job has ended."""

    def __init__(self, workload: Workload, history: DurationHistory) -> None:
        self.workload = workload
        self.history = history
        self._expected: dict[Class, float] = {}  # what the waiting jobs of a class were last queued under
        self._members: dict[Class, list[JobState]] = {}

    def key(self, job: JobState, now: float) -> float:
        classes = classes_of(self.workload, job.index)
        guess = self.history.predict(classes)
        if job.place is None:
            self._members.setdefault(classes[-1], []).append(job)
        return guess

    def finished(self, job: JobState, now: float) -> Iterable[JobState]:
        classes = classes_of(self.workload, job.index)
        self.history.observe(classes, job.duration)
        guess, before = self.history.predict(classes), self._expected.get(classes[-1])
        if before is not None and abs(guess - before) <= TOLERANCE * before:
            return ()
        self._expected[classes[-1]] = guess
        return self._members.pop(classes[-1], ())


class PredictedRemaining(PredictedShortest):
    """The same with preemption: the key is the guess of the whole duration, doubled each time it is outlived."""

    def __init__(self, workload: Workload, history: DurationHistory) -> None:
        super().__init__(workload, history)
        self._guesses: dict[int, float] = {}  # of jobs that have begun: a guess holds until it is outlived

    def key(self, job: JobState, now: float) -> float:
        guess = self._guesses.get(job.sequence)
        if guess is None:
            guess = super().key(job, now)
            if job.place is not None:
                self._guesses[job.sequence] = guess
        return guess

    def changes(self, job: JobState, now: float) -> float:
        return math.inf if job.place is None else job.ready + self._guesses[job.sequence] - job.done

    def alarmed(self, job: JobState, now: float) -> None:
        self._guesses[job.sequence] *= 2.0

    def finished(self, job: JobState, now: float) -> Iterable[JobState]:
        self._guesses.pop(job.sequence, None)
        return super().finished(job, now)


@dataclass(frozen=True, slots=True)
class PredictedSjf:
    """SJF by prediction; a job that has begun keeps its GPUs."""

    settings: HistorySettings = field(default_factory=HistorySettings)
    backfill: bool = True
    name: str = "predicted-sjf"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        ordering = PredictedShortest(workload, DurationHistory(self.settings))
        return PriorityDecider(ordering, preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class PredictedSrpt:
    """By prediction with preemption and doubling guesses."""

    settings: HistorySettings = field(default_factory=HistorySettings)
    name: str = "predicted-srpt"

    def begin(self, workload: Workload, cluster: Cluster, costs: Costs) -> PriorityDecider:
        ordering = PredictedRemaining(workload, DurationHistory(self.settings))
        return PriorityDecider(ordering, preemptive=True, backfill=True, margin=costs.worst)

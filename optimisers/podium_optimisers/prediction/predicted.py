"""Predicted SJF and predicted SRPT: the shortest predicted duration first.

The predictions are learned from completed jobs. A job's prediction is made when it arrives. When completions change the
prediction of a job's narrowest class by more than a tenth, the waiting jobs of that class are queued again. With
preemption, the prediction of a job that outlives it is doubled, so a wrong prediction costs little. Use the policies
like all others: `simulate(workload, cluster, PredictedSjfPolicy(), costs)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.priority import PriorityScheduler, StaticOrdering
from podium_optimisers.engine.simulation import JobState
from podium_optimisers.engine.workload import Workload
from podium_optimisers.prediction.history import DurationHistory, HistorySettings, JobClass, job_classes

TOLERANCE = 0.1  # relative change of a class's prediction that requeues its waiting jobs


class PredictedDurationOrdering(StaticOrdering):
    """The order by predicted duration. It never reads the duration of a job that has not completed."""

    def __init__(self, workload: Workload, history: DurationHistory) -> None:
        self.workload = workload
        self.history = history
        # the prediction under which the waiting jobs of each class are queued
        self._queued_predictions: dict[JobClass, float] = {}
        self._members: dict[JobClass, list[JobState]] = {}

    def key(self, job: JobState, now: float) -> float:
        """Return the predicted duration."""
        classes = job_classes(self.workload, job.index)
        prediction = self.history.predict(classes)
        if job.placement is None:
            self._members.setdefault(classes[-1], []).append(job)
        return prediction

    def on_completion(self, job: JobState, now: float) -> Iterable[JobState]:
        """Learn from a completed job and return the jobs of its class if their prediction changed."""
        classes = job_classes(self.workload, job.index)
        self.history.observe(classes, job.duration)
        prediction, queued = self.history.predict(classes), self._queued_predictions.get(classes[-1])
        if queued is not None and abs(prediction - queued) <= TOLERANCE * queued:
            return ()
        self._queued_predictions[classes[-1]] = prediction
        return self._members.pop(classes[-1], ())


class DoublingPredictionOrdering(PredictedDurationOrdering):
    """The order by predicted duration with preemption. The prediction doubles each time a job outlives it."""

    def __init__(self, workload: Workload, history: DurationHistory) -> None:
        super().__init__(workload, history)
        # predictions of started jobs, by sequence number: each holds until the job outlives it
        self._predictions: dict[int, float] = {}

    def key(self, job: JobState, now: float) -> float:
        """Return the current prediction of the whole duration."""
        prediction = self._predictions.get(job.sequence)
        if prediction is None:
            prediction = super().key(job, now)
            if job.placement is not None:
                self._predictions[job.sequence] = prediction
        return prediction

    def next_change(self, job: JobState, now: float) -> float:
        """Return when a running job outlives its prediction."""
        return math.inf if job.placement is None else job.ready + self._predictions[job.sequence] - job.done

    def on_timer(self, job: JobState, now: float) -> None:
        """Double the prediction."""
        self._predictions[job.sequence] *= 2.0

    def on_completion(self, job: JobState, now: float) -> Iterable[JobState]:
        """Forget the job's prediction and learn from its duration."""
        self._predictions.pop(job.sequence, None)
        return super().on_completion(job, now)


@dataclass(frozen=True, slots=True)
class PredictedSjfPolicy:
    """SJF by predicted duration. A job that has started keeps its GPUs."""

    settings: HistorySettings = field(default_factory=HistorySettings)
    backfill: bool = True
    name: str = "predicted-sjf"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler with an empty history."""
        ordering = PredictedDurationOrdering(workload, DurationHistory(self.settings))
        return PriorityScheduler(ordering, preemptive=False, backfill=self.backfill)


@dataclass(frozen=True, slots=True)
class PredictedSrptPolicy:
    """SRPT by predicted duration: preemptive, with predictions that double."""

    settings: HistorySettings = field(default_factory=HistorySettings)
    name: str = "predicted-srpt"

    def make_scheduler(self, workload: Workload, cluster: GpuCluster, costs: PreemptionCosts) -> PriorityScheduler:
        """Return a new scheduler with an empty history."""
        ordering = DoublingPredictionOrdering(workload, DurationHistory(self.settings))
        return PriorityScheduler(ordering, preemptive=True, backfill=True, margin=costs.worst)

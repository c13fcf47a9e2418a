"""One trial of a report: its row in the table and its curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial
from podium_views import additional_metrics


@dataclass(frozen=True, slots=True)
class LastReport:
    """What a trial reported last."""

    step: float | None
    additional_metrics: tuple[str, ...]  # the latest value of each additional metric, as text
    metric_sentences: tuple[str, ...]  # the same in sentences, with the lowest and the highest value


@dataclass(frozen=True, slots=True)
class TrialCost:
    """What a trial cost: GPU-seconds, suspensions and lost work."""

    gpu_seconds: float
    suspensions: int
    switch_seconds: float  # to suspend and to resume, in total
    lost_steps: float


@dataclass(frozen=True, slots=True)
class RowParent:
    """The trial from whose checkpoint a child continued, and the step at which the child began."""

    name: str
    generation: int  # of the child
    step: float


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial: its row in the table and its curve."""

    name: str
    number: int
    level: int
    phase: str
    why: str
    parameters: tuple[tuple[str, Scalar], ...]
    best: float | None
    best_step: float | None
    curve: tuple[tuple[float, float], ...]  # step, value: finite ones only
    last: LastReport
    cost: TrialCost
    parent: RowParent | None  # None: it is not a child


def trial_row(job: HyperParamJob, trial: HyperParamTrial, level: int) -> TrialRow:
    """Return the row of a trial. `level`: its grade among the trials of the job."""
    status, parent = trial.status, trial.spec.parent
    why = [part for part in (status.reason, status.message) if part]
    points = [(point.step, point.value) for point in status.curve.points]
    return TrialRow(
        name=trial.metadata.name,
        number=trial.spec.number,
        level=level,
        phase=status.phase.value,
        why=": ".join(why),
        parameters=tuple(trial.spec.parameters.items()),
        best=status.best.value if status.best else None,
        best_step=status.best.step if status.best else None,
        curve=tuple((step, value) for step, value in points if math.isfinite(step) and not diverged(value)),
        last=_last_report(job, trial),
        cost=_cost(trial),
        parent=RowParent(parent.name, parent.generation, parent.step) if parent else None,
    )


def _last_report(job: HyperParamJob, trial: HyperParamTrial) -> LastReport:
    return LastReport(
        step=trial.status.last_step,
        additional_metrics=tuple(additional_metrics.latest(trial, metric) for metric in additional_metrics.names(job)),
        metric_sentences=additional_metrics.sentences(job, trial),
    )


def _cost(trial: HyperParamTrial) -> TrialCost:
    suspensions = trial.status.suspensions
    return TrialCost(
        gpu_seconds=held_seconds(trial),
        suspensions=suspensions.count,
        switch_seconds=suspensions.suspend_seconds + suspensions.resume_seconds,
        lost_steps=trial.status.lost_work.steps,
    )


def held_seconds(trial: HyperParamTrial) -> float:
    """Return the agent's GPU-seconds, or the sum of the allocations if the agent has counted none."""
    if trial.status.gpu_seconds:
        return trial.status.gpu_seconds
    closed = [allocation for allocation in trial.status.allocations if allocation.end is not None]
    return sum(
        (allocation.end - allocation.start).total_seconds() * len(allocation.gpus)
        for allocation in closed
        if allocation.end
    )

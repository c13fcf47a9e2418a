"""Values of a report, computed from a JobSnapshot; charts, page and summary show them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Scalar
from podium_core.objectives.front import Candidate
from podium_core.objectives.values import measured_of
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import FrontTrial
from podium_core.schema.trial import HyperParamTrial
from podium_views import additional_metrics, front
from podium_views.job_snapshot import JobSnapshot
from podium_views.trial_row import TrialRow, held_seconds, trial_row

LEVELS = 6  # 0 is the best trial, 1 to 5 grade the others from good to bad


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPU-seconds by use on the GPUs of the job. Idle: no trial of the job held the GPU."""

    training: float
    switching: float
    idle: float

    @property
    def total(self) -> float:
        """Return the sum of all uses."""
        return self.training + self.switching + self.idle


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """Number of suspensions, and the seconds to suspend and resume of those that are recorded."""

    count: int
    recorded: int
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class AllocationBar:
    """One GPU allocation of a trial, as a bar in the chart of the GPUs."""

    trial: str
    number: int
    level: int
    start: float  # seconds since the origin of the report
    end: float
    lasting: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """One GPU with its allocations over time."""

    gpu: str
    allocations: tuple[AllocationBar, ...]


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best value of the job. `time`: seconds since the origin of the report."""

    time: float
    value: float
    trial: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter as the x axis of a scatter plot: a numeric range, or categories."""

    name: str
    log: bool
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobHead:
    """A job's name, its state, how it searches, and how many of its trials have ended.

    `max_trials`: trials.max. `total`: the same, or the number of trials if trials.max was lowered since.
    """

    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    policy: str
    algorithm: str
    max_trials: int
    total: int
    done: int

    @property
    def why(self) -> str:
        """Return the reason for the job's phase with its sentence."""
        return ": ".join(part for part in (self.reason, self.message) if part)


@dataclass(frozen=True, slots=True)
class ReportMetric:
    """The metric of the curves and of the best values, with its direction, target and steps."""

    name: str
    maximize: bool
    target: float | None
    step_key: str
    additional: tuple[str, ...]  # names of the additional metrics


@dataclass(frozen=True, slots=True)
class SeveralObjectives:
    """Several objectives of a job, and the trials by their values."""

    text: str  # the objectives with their directions
    names: tuple[str, ...]
    front: tuple[FrontTrial, ...]
    candidates: tuple[Candidate, ...]  # every trial with a value of each objective


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a report covers."""

    origin: datetime
    made: datetime
    span: float  # seconds from the origin to the end (or to now)


@dataclass(frozen=True, slots=True)
class JobReport:
    """All values of the report of one job."""

    job: JobHead
    metric: ReportMetric
    several: SeveralObjectives | None  # None: the job has one objective
    period: Period
    best: TrialRow | None
    use: GpuUse
    switches: SwitchCost
    trials: tuple[TrialRow, ...]  # best first
    lanes: tuple[Lane, ...]
    improvements: tuple[Improvement, ...]
    axes: tuple[Axis, ...]
    warnings: tuple[str, ...]


def build(snapshot: JobSnapshot) -> JobReport:
    """Compute the report. The same objects always give the same report."""
    job = snapshot.job
    origin = _origin(snapshot)
    end = job.status.finished_at or snapshot.now
    span = max((end - origin).total_seconds(), 1.0)
    levels = _levels(snapshot)
    lines = tuple(trial_row(job, trial, levels[trial.metadata.name]) for trial in snapshot.by_value)
    best_name = snapshot.best.metadata.name if snapshot.best else None
    lanes = _lanes(snapshot, levels, origin, span)
    return JobReport(
        job=_head(snapshot),
        metric=_metric(snapshot),
        several=_several(snapshot) if job.spec.objectives else None,
        period=Period(origin, snapshot.now, span),
        best=next((line for line in lines if line.name == best_name), None),
        use=_use(snapshot, lanes, span),
        switches=_switches(snapshot.trials),
        trials=lines,
        lanes=lanes,
        improvements=_improvements(snapshot, origin),
        axes=_axes(job),
        warnings=_warnings(snapshot),
    )


def _head(snapshot: JobSnapshot) -> JobHead:
    job = snapshot.job
    return JobHead(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=job.status.phase,
        reason=job.status.reason,
        message=job.status.message,
        policy=job.spec.policy.name,
        algorithm=job.spec.search.algorithm,
        max_trials=job.spec.trials.max,
        total=snapshot.total,
        done=snapshot.done,
    )


def _metric(snapshot: JobSnapshot) -> ReportMetric:
    spec = snapshot.job.spec
    return ReportMetric(
        name=spec.objective.metric,
        maximize=snapshot.maximize,
        target=spec.objective.target,
        step_key=spec.metrics.step_key,
        additional=additional_metrics.names(snapshot.job),
    )


def _several(snapshot: JobSnapshot) -> SeveralObjectives:
    """Return the objectives, and the trials with a value of every one of them."""
    spec = snapshot.job.spec
    given = (
        Candidate.of(spec, trial.metadata.name, measured_of(trial, trial.status.phase)) for trial in snapshot.trials
    )
    return SeveralObjectives(
        text=front.objectives(spec),
        names=tuple(one.metric for one in spec.objectives or ()),
        front=snapshot.front,
        candidates=tuple(one for one in given if one.known),
    )


def percentile(values: Sequence[float], fraction: float) -> float | None:
    """Return the percentile by nearest rank, which is always a measured value; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def _origin(snapshot: JobSnapshot) -> datetime:
    """Return the earliest time in the objects, because the clock of a node may differ from the operator's."""
    job = snapshot.job
    known = [trial.status.started_at for trial in snapshot.trials]
    known += [allocation.start for trial in snapshot.trials for allocation in trial.status.allocations]
    known += [job.status.started_at or job.metadata.creation_timestamp]
    return min((moment for moment in known if moment is not None), default=snapshot.now)


def _levels(snapshot: JobSnapshot) -> dict[str, int]:
    """Return the level of each trial: 0 is the best or in the Pareto front, 5 has no value.

    The levels 1 to 5 are equal parts by best value.
    """
    best = {snapshot.best.metadata.name} if snapshot.best else {one.trial for one in snapshot.front}
    others = [trial for trial in snapshot.by_value if trial.metadata.name not in best]
    measured = [trial for trial in others if trial.status.best is not None]
    levels = {trial.metadata.name: LEVELS - 1 for trial in others}
    for place, trial in enumerate(measured):
        levels[trial.metadata.name] = 1 + place * (LEVELS - 1) // max(len(measured), 1)
    return levels | dict.fromkeys(best, 0)


def _lanes(snapshot: JobSnapshot, levels: dict[str, int], origin: datetime, span: float) -> tuple[Lane, ...]:
    """Return a lane for each GPU that the job has used, by name."""
    bars_by_gpu: dict[str, list[AllocationBar]] = {}
    for trial in snapshot.trials:
        for uuid in trial.status.gpus:
            bars_by_gpu.setdefault(uuid, [])
        for allocation in trial.status.allocations:
            start = (allocation.start - origin).total_seconds()
            end = span if allocation.end is None else (allocation.end - origin).total_seconds()
            for uuid in allocation.gpus:
                name, number = trial.metadata.name, trial.spec.number
                level = levels[name]
                mark = AllocationBar(name, number, level, start, max(end, start), lasting=allocation.end is None)
                bars_by_gpu.setdefault(uuid, []).append(mark)
    lanes = [
        Lane(
            snapshot.gpu_name(uuid),
            tuple(sorted(allocations, key=lambda allocation: (allocation.start, allocation.number))),
        )
        for uuid, allocations in bars_by_gpu.items()
    ]
    return tuple(sorted(lanes, key=lambda lane: lane.gpu))


def _use(snapshot: JobSnapshot, lanes: Sequence[Lane], span: float) -> GpuUse:
    """Return the GPU-seconds of the job's status, as kubectl shows them, or the sum over the trials."""
    reported = snapshot.job.status.gpu_seconds
    training, switching = reported.training, reported.switching
    if training + switching <= 0:
        switching = sum(
            (trial.status.suspensions.suspend_seconds + trial.status.suspensions.resume_seconds)
            for trial in snapshot.trials
        )
        training = max(sum(held_seconds(trial) for trial in snapshot.trials) - switching, 0.0)
    return GpuUse(training, switching, max(len(lanes) * span - training - switching, 0.0))


def _switches(trials: Sequence[HyperParamTrial]) -> SwitchCost:
    count = sum(trial.status.suspensions.count for trial in trials)
    records = [record for trial in trials for record in trial.status.suspensions.recent]
    costs = [record.suspend_seconds + (record.resume_seconds or 0.0) for record in records]
    return SwitchCost(count, len(costs), percentile(costs, 0.5), percentile(costs, 0.99))


def _improvements(snapshot: JobSnapshot, origin: datetime) -> tuple[Improvement, ...]:
    """Return each improvement of the best value, in chronological order."""
    points = [
        (point.time - origin.timestamp(), trial.metadata.name, point.value)
        for trial in snapshot.trials
        for point in trial.status.curve.points
        if not diverged(point.value)
    ]
    improvements: list[Improvement] = []
    for time, name, value in sorted(points):
        best = improvements[-1].value if improvements else None
        if best is None or (value > best if snapshot.maximize else value < best):
            improvements.append(Improvement(max(time, 0.0), value, name))
    return tuple(improvements)


def _axes(job: HyperParamJob) -> tuple[Axis, ...]:
    axes = []
    for parameter in job.spec.parameters:
        values = parameter.values or ([False, True] if parameter.kind.value == "boolean" else [])
        numeric = bool(values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        )
        categories = tuple(category(value) for value in (sorted(values, key=_as_float) if numeric else values))
        axes.append(Axis(parameter.name, parameter.scale == "log", categories))
    return tuple(axes)


def category(value: Scalar) -> str:
    """Return the name of a value on a categorical axis: 64 and 64.0 are equal, true differs from 1."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, int | float) else value


def _as_float(value: Scalar) -> float:
    return float(value)


def _warnings(snapshot: JobSnapshot) -> tuple[str, ...]:
    """Return the limits of the figures that a reader must know."""
    warnings = []
    if not snapshot.ended:
        warnings.append(f"The job is still {snapshot.job.status.phase}: the figures are those of the time of writing.")
    known = len(snapshot.trials)
    created = snapshot.job.status.trials.created
    if created > known:
        missing = "trials was deleted: it is" if created - known == 1 else "trials were deleted: they are"
        warnings.append(f"{created - known} of {created} {missing} missing from every chart and sum.")
    if any(len(trial.status.allocations) >= 512 for trial in snapshot.trials):
        warnings.append("A trial had more than 512 GPU allocations: the oldest are missing from the chart of the GPUs.")
    return tuple(warnings)

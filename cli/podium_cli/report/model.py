"""What a report says about a job, as values: built from a JobPicture, drawn by charts and page, told by the summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from podium_cli.job_picture import JobPicture
from podium_cli.views import additional_metrics as observed
from podium_core.curves.non_finite import diverged
from podium_core.schema.job import HyperParamJob, Scalar
from podium_core.schema.trial import HyperParamTrial

LEVELS = 6  # 0 is the best trial, 1 to 5 grade the others from good to bad


@dataclass(frozen=True, slots=True)
class Use:
    """GPU-seconds on the GPUs that this job was on, from its start to its end. Idle: held by no trial of this job."""

    training: float
    switching: float
    idle: float

    @property
    def total(self) -> float:
        return self.training + self.switching + self.idle


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """Suspensions: all that were counted, and what those that are on record cost (out and, where it came back, in)."""

    count: int
    recorded: int
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Hold:
    trial: str
    number: int
    level: int
    start: float  # seconds since the origin of the report
    end: float
    lasting: bool


@dataclass(frozen=True, slots=True)
class Lane:
    gpu: str
    holds: tuple[Hold, ...]


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One trial: its row in the table, its curve, its place in the scatter plots."""

    name: str
    number: int
    level: int
    phase: str
    why: str
    parameters: tuple[tuple[str, Scalar], ...]
    best: float | None
    best_step: float | None
    last_step: float | None
    gpu_seconds: float
    suspensions: int
    suspended_cost: float
    curve: tuple[tuple[float, float], ...]  # step, value: finite ones only
    further: tuple[str, ...] = ()  # the latest value of each additional metric of the job, as it is shown
    also: tuple[str, ...] = ()  # the same in sentences, with the lowest and the highest


@dataclass(frozen=True, slots=True)
class Improvement:
    time: float
    value: float
    trial: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter as the x axis of a scatter plot: a numeric range, or named places."""

    name: str
    log: bool
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobReport:
    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    policy: str
    algorithm: str
    metric: str
    further: tuple[str, ...]  # the additional metrics
    maximize: bool
    target: float | None
    step_key: str
    max_trials: int
    done: int
    origin: datetime
    made: datetime
    span: float  # seconds from the origin to the end (or to now)
    best: TrialLine | None
    use: Use
    switches: SwitchCost
    trials: tuple[TrialLine, ...]  # best first
    lanes: tuple[Lane, ...]
    improvements: tuple[Improvement, ...]
    axes: tuple[Axis, ...]
    warnings: tuple[str, ...]


def build(picture: JobPicture) -> JobReport:
    """Everything the report says; pure, so the same objects give the same file."""
    job = picture.job
    origin = _origin(picture)
    end = job.status.finished_at or picture.now
    span = max((end - origin).total_seconds(), 1.0)
    levels = _levels(picture)
    lines = tuple(_line(job, trial, levels[trial.metadata.name]) for trial in picture.by_value)
    best_name = picture.best.metadata.name if picture.best else None
    lanes = _lanes(picture, levels, origin, span)
    objective = job.spec.objective
    return JobReport(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        phase=job.status.phase,
        reason=job.status.reason,
        message=job.status.message,
        policy=job.spec.policy.name,
        algorithm=job.spec.search.algorithm,
        metric=objective.metric,
        further=observed.names(job),
        maximize=picture.maximize,
        target=objective.target,
        step_key=job.spec.metrics.step_key,
        max_trials=job.spec.trials.max,
        done=picture.done,
        origin=origin,
        made=picture.now,
        span=span,
        best=next((line for line in lines if line.name == best_name), None),
        use=_use(picture, lanes, span),
        switches=_switches(picture.trials),
        trials=lines,
        lanes=lanes,
        improvements=_improvements(picture, origin),
        axes=_axes(job),
        warnings=_warnings(picture),
    )


def percentile(values: Sequence[float], fraction: float) -> float | None:
    """Nearest rank: always a value that was measured."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def _origin(picture: JobPicture) -> datetime:
    """The first thing that happened: a clock of a node may be ahead of the operator's, so all are asked."""
    job = picture.job
    known = [trial.status.started_at for trial in picture.trials]
    known += [hold.start for trial in picture.trials for hold in trial.status.allocations]
    known += [job.status.started_at or job.metadata.creation_timestamp]
    return min((moment for moment in known if moment is not None), default=picture.now)


def _levels(picture: JobPicture) -> dict[str, int]:
    """0 for the best trial, then 1 to 5 in equal parts by best value; without a value: 5."""
    best = picture.best.metadata.name if picture.best else None
    others = [trial for trial in picture.by_value if trial.metadata.name != best]
    measured = [trial for trial in others if trial.status.best is not None]
    levels = {trial.metadata.name: LEVELS - 1 for trial in others}
    for place, trial in enumerate(measured):
        levels[trial.metadata.name] = 1 + place * (LEVELS - 1) // max(len(measured), 1)
    if best is not None:
        levels[best] = 0
    return levels


def _line(job: HyperParamJob, trial: HyperParamTrial, level: int) -> TrialLine:
    status = trial.status
    told = [part for part in (status.reason, status.message) if part]
    points = [(point.step, point.value) for point in status.curve.points]
    return TrialLine(
        name=trial.metadata.name,
        number=trial.spec.number,
        level=level,
        phase=status.phase.value,
        why=": ".join(told),
        parameters=tuple(trial.spec.parameters.items()),
        best=status.best.value if status.best else None,
        best_step=status.best.step if status.best else None,
        last_step=status.last_step,
        gpu_seconds=_held(trial),
        suspensions=status.suspensions.count,
        suspended_cost=status.suspensions.suspend_seconds + status.suspensions.resume_seconds,
        curve=tuple((step, value) for step, value in points if math.isfinite(step) and not diverged(value)),
        further=tuple(observed.latest(trial, metric) for metric in observed.names(job)),
        also=observed.sentences(job, trial),
    )


def _held(trial: HyperParamTrial) -> float:
    """The agent's count; where there is none (an older object), the sum of the intervals."""
    if trial.status.gpu_seconds:
        return trial.status.gpu_seconds
    closed = [hold for hold in trial.status.allocations if hold.end is not None]
    return sum((hold.end - hold.start).total_seconds() * len(hold.gpus) for hold in closed if hold.end)


def _lanes(picture: JobPicture, levels: dict[str, int], origin: datetime, span: float) -> tuple[Lane, ...]:
    """One lane a GPU that this job was ever on, named as people name it."""
    found: dict[str, list[Hold]] = {}
    for trial in picture.trials:
        for uuid in trial.status.gpus:
            found.setdefault(uuid, [])
        for hold in trial.status.allocations:
            start = (hold.start - origin).total_seconds()
            end = span if hold.end is None else (hold.end - origin).total_seconds()
            for uuid in hold.gpus:
                name, number = trial.metadata.name, trial.spec.number
                level = levels[name]
                mark = Hold(name, number, level, start, max(end, start), lasting=hold.end is None)
                found.setdefault(uuid, []).append(mark)
    lanes = [
        Lane(picture.gpu_name(uuid), tuple(sorted(holds, key=lambda hold: (hold.start, hold.number))))
        for uuid, holds in found.items()
    ]
    return tuple(sorted(lanes, key=lambda lane: lane.gpu))


def _use(picture: JobPicture, lanes: Sequence[Lane], span: float) -> Use:
    """As the job's status says (so that kubectl and the report agree), else from the trials."""
    told = picture.job.status.gpu_seconds
    training, switching = told.training, told.switching
    if training + switching <= 0:
        switching = sum(
            (trial.status.suspensions.suspend_seconds + trial.status.suspensions.resume_seconds)
            for trial in picture.trials
        )
        training = max(sum(_held(trial) for trial in picture.trials) - switching, 0.0)
    return Use(training, switching, max(len(lanes) * span - training - switching, 0.0))


def _switches(trials: Sequence[HyperParamTrial]) -> SwitchCost:
    count = sum(trial.status.suspensions.count for trial in trials)
    records = [record for trial in trials for record in trial.status.suspensions.recent]
    costs = [record.suspend_seconds + (record.resume_seconds or 0.0) for record in records]
    return SwitchCost(count, len(costs), percentile(costs, 0.5), percentile(costs, 0.99))


def _improvements(picture: JobPicture, origin: datetime) -> tuple[Improvement, ...]:
    """Each moment at which the best value known got better, in the order of time."""
    points = [
        (point.time - origin.timestamp(), trial.metadata.name, point.value)
        for trial in picture.trials
        for point in trial.status.curve.points
        if not diverged(point.value)
    ]
    found: list[Improvement] = []
    for time, name, value in sorted(points):
        if not found or (value > found[-1].value if picture.maximize else value < found[-1].value):
            found.append(Improvement(max(time, 0.0), value, name))
    return tuple(found)


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
    """The name of a value on a categorical axis: 64 and 64.0 are one place, true is not 1."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, int | float) else value


def _as_float(value: Scalar) -> float:
    return float(value)


def _warnings(picture: JobPicture) -> tuple[str, ...]:
    """What a reader must know before trusting the figures."""
    found = []
    if not picture.ended:
        found.append(f"The job is still {picture.job.status.phase}: figures are those of the moment of writing.")
    known = len(picture.trials)
    told = picture.job.status.trials.created
    if told > known:
        lost = "trials was deleted: it is" if told - known == 1 else "trials were deleted: they are"
        found.append(f"{told - known} of {told} {lost} missing from every chart and sum.")
    if any(len(trial.status.allocations) >= 512 for trial in picture.trials):
        found.append("A trial had more turns than are kept (512): the oldest are missing from the chart of the GPUs.")
    return tuple(found)

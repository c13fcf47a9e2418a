"""A search as the exports write it: its description, and its trials one after another. Pure.

It comes from the objects of a search (cluster or folder), or from recorded curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType

from podium_cli.exports.names import MAX_WHOLE, clean, moment, scalar
from podium_core.curves.non_finite import diverged
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import Scalar
from podium_core.schema.job import HyperParamJob
from podium_core.schema.search.spec import Parameter, ParameterType
from podium_core.schema.trial import HyperParamTrial
from podium_simulator.traces.trace import RecordedTrial, Trace
from podium_views.trace import training_seconds

MAX_TIME = 253402300799.0  # the end of the year 9999, in seconds since 1970
MAX_STEP = float(1 << 62)  # of tools that count steps in whole numbers of 64 bits
NUMBER, WHOLE, TEXT = "number", "whole number", "text"  # kinds of a parameter


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a trial. `value` is NaN where it was not finite.

    `seconds`: for which the trial had held its GPUs. `time`: in seconds since 1970, None if it is not known.
    """

    step: float
    value: float
    seconds: float
    time: float | None


@dataclass(frozen=True, slots=True)
class LatestValue:
    """The latest value of an additional metric, of which no curve is kept."""

    metric: str
    step: float
    value: float


@dataclass(frozen=True, slots=True)
class ExportedTrial:
    """One trial. Texts are printable and on one line; `name` is as given, and no file name."""

    name: str
    number: int
    phase: TrialPhase
    parameters: Mapping[str, Scalar]
    points: tuple[Point, ...]
    started: float | None = None  # in seconds since 1970
    ended: float | None = None
    latest: tuple[LatestValue, ...] = ()
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # such as reason and parent

    @property
    def final(self) -> bool:
        """Return whether the trial has ended."""
        return self.phase in FINAL

    @property
    def begin(self) -> float:
        """Return when the trial started, else the time of its first value, else 0."""
        first = self.points[0].time if self.points else None
        return next((time for time in (self.started, first) if time is not None), 0.0)

    def time_of(self, point: Point) -> float:
        """Return the time of a point; without one, the seconds of training after the trial's start."""
        time = self.begin + point.seconds if point.time is None else point.time
        return time if time <= MAX_TIME else MAX_TIME


@dataclass(frozen=True, slots=True)
class ExportedSearch:
    """What is known of a search before its trials are read. `identity` distinguishes searches of one name."""

    name: str
    identity: str
    metric: str
    maximize: bool
    parameters: Mapping[str, str]  # kind of each: NUMBER, WHOLE or TEXT
    metrics: tuple[str, ...] = ()  # the objective and the additional metrics
    created: float | None = None

    @property
    def goal(self) -> str:
        """Return the direction of the objective."""
        return "maximize" if self.maximize else "minimize"


Add = Callable[[ExportedTrial], None]
Begin = Callable[[ExportedSearch], Add]


def search_of(job: HyperParamJob) -> ExportedSearch:
    """Return the description of a job's search."""
    meta, spec = job.metadata, job.spec
    created = None if meta.creation_timestamp is None else meta.creation_timestamp.timestamp()
    names = (spec.objective.metric, *spec.objective.additional_metrics)
    return ExportedSearch(
        clean(meta.name),
        f"{meta.namespace}/{meta.name}/{meta.uid}",
        spec.objective.metric,
        spec.objective.direction.value == "maximize",
        {parameter.name: _kind_of(parameter) for parameter in spec.parameters},
        tuple(dict.fromkeys(names)),
        created,
    )


def trial_of(trial: HyperParamTrial, width: int) -> ExportedTrial:
    """Return one trial of a job; `width`: GPUs per trial."""
    status, spec = trial.status, trial.spec
    kept = [point for point in status.curve.points if math.isfinite(point.step) and point.step >= 0.0]
    trained = [point for point in kept if point.step > 0.0]
    seconds = dict(zip((p.step for p in trained), training_seconds(trial, trained, width), strict=True))
    points = tuple(
        Point(p.step, _value(p.value), seconds.get(p.step, 0.0), None if moment(p.time) is None else p.time)
        for p in kept
    )
    latest = tuple(
        LatestValue(one.metric, one.step, float(one.latest))
        for one in status.additional_metrics
        if math.isfinite(one.step)
    )
    notes = {"reason": status.reason, "message": status.message, "node": status.node or ""}
    if spec.parent is not None:
        notes["parent"] = spec.parent.name
    return ExportedTrial(
        trial.metadata.name,
        min(spec.number, MAX_WHOLE),
        status.phase,
        {name: scalar(value) for name, value in spec.parameters.items()},
        points,
        None if status.started_at is None else status.started_at.timestamp(),
        None if status.finished_at is None else status.finished_at.timestamp(),
        latest,
        {name: clean(text) for name, text in notes.items() if text},
    )


def search_of_curves(trace: Trace) -> ExportedSearch:
    """Return the description of recorded curves."""
    kinds: dict[str, str] = {}
    for trial in trace.trials:
        for name, value in trial.hparams.items():
            kind = _kind(scalar(value))
            kinds[name] = _wider(kinds.setdefault(name, kind), kind)
    return ExportedSearch(
        clean(trace.task), f"curves/{trace.task}", trace.metric, trace.maximize, kinds, (trace.metric,)
    )


def trials_of_curves(trials: Iterable[RecordedTrial]) -> Iterable[ExportedTrial]:
    """Yield the recorded trials; all of them were trained to their end."""
    for number, one in enumerate(trials):
        steps = one.steps or tuple(float(at) for at in range(1, len(one.values) + 1))
        curve = zip(steps, one.values, one.seconds, strict=True)
        points = tuple(Point(step, _value(value), seconds, None) for step, value, seconds in curve)
        parameters = {name: scalar(value) for name, value in one.hparams.items()}
        ended = points[-1].seconds if points else None
        yield ExportedTrial(one.name, number, TrialPhase.SUCCEEDED, parameters, points, 0.0, ended)


def whole_steps(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that tools with whole steps can hold: the last one of each step, rounded down."""
    by_step = {math.floor(point.step): point for point in points if point.step < MAX_STEP}
    return tuple(Point(float(step), point.value, point.seconds, point.time) for step, point in by_step.items())


def latest_whole_steps(trial: ExportedTrial) -> tuple[LatestValue, ...]:
    """Return the latest values of additional metrics that tools with whole steps can hold."""
    return tuple(one for one in trial.latest if 0.0 <= one.step < MAX_STEP)


def _value(value: float) -> float:
    return math.nan if diverged(value) else value


def _kind_of(parameter: Parameter) -> str:
    """Return the kind of all values that a parameter can have."""
    if parameter.values is not None:
        return reduce(_wider, (_kind(scalar(value)) for value in parameter.values))
    ends = [end for end in (parameter.min, parameter.max) if end is not None]
    whole = parameter.kind is ParameterType.INT and all(abs(end) <= MAX_WHOLE for end in ends)
    return WHOLE if whole else TEXT if parameter.kind is ParameterType.BOOLEAN else NUMBER


def _kind(value: Scalar) -> str:
    if isinstance(value, bool | str):
        return TEXT
    return WHOLE if isinstance(value, int) else NUMBER


def _wider(known: str, kind: str) -> str:
    if known == kind:
        return kind
    return TEXT if TEXT in (known, kind) else NUMBER

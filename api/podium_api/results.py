"""What a search has yielded: its trials as values, and its Pareto front, read from the objects. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from podium_api.backend import Objects
from podium_api.errors import SearchError
from podium_core.domain.phase import is_final
from podium_core.domain.snapshot import Scalar
from podium_core.objectives.front import Candidate, pareto_front
from podium_core.objectives.values import measured_of
from podium_core.schema.job import Direction, JobSpec
from podium_core.schema.trial import HyperParamTrial

if TYPE_CHECKING:
    import pandas


class Point(NamedTuple):
    """One point of a learning curve.

    `time`: seconds since 1970, by the clock of the API server or of this machine.
    """

    step: float
    value: float
    time: float | None


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial. `values`: by metric; None where the value is not known.

    With one objective, `value` is the best value so far, at `step`. With several, `values` has that of each objective
    at `step`, which is the last step, and `value` is None. `rank`: for GPUs, among the trials that have not ended.
    """

    name: str
    number: int
    parameters: Mapping[str, Scalar]
    phase: str
    reason: str
    message: str
    rank: int | None
    value: float | None
    values: Mapping[str, float | None]
    step: float | None
    last_value: float | None
    last_step: float | None
    gpu_seconds: float
    curve: tuple[Point, ...] = field(repr=False)

    @classmethod
    def of(cls, trial: HyperParamTrial, spec: JobSpec) -> Trial:
        """Return the trial of an object. `spec`: that of its job."""
        status = trial.status
        value, values, step = _values(trial, spec)
        return cls(
            name=trial.metadata.name,
            number=trial.spec.number,
            parameters=dict(trial.spec.parameters),
            phase=str(status.phase),
            reason=status.reason,
            message=status.message,
            rank=None if is_final(status.phase) else status.rank,
            value=value,
            values=values,
            step=step,
            last_value=status.last_value,
            last_step=status.last_step,
            gpu_seconds=status.gpu_seconds,
            curve=tuple(Point(point.step, point.value, point.time) for point in status.curve.points),
        )


def trials_of(seen: Objects) -> list[Trial]:
    """Return the trials by number."""
    return [Trial.of(trial, seen.job.spec) for trial in seen.trials]


def best_first(spec: JobSpec, trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials by value, those without one last; by number if there are several objectives."""
    sign = 0.0 if spec.objectives is not None else -1.0 if spec.objective.direction is Direction.MAXIMIZE else 1.0
    return sorted(trials, key=lambda one: (one.value is None, sign * (one.value or 0.0), one.number))


def best_of(seen: Objects) -> Trial | None:
    """Return the trial with the best value of the one objective.

    Of several that are equal it is the one with the lowest number.
    """
    measured = [trial for trial in trials_of(seen) if trial.value is not None]
    return next(iter(best_first(seen.job.spec, measured)), None)


def front_of(seen: Objects) -> list[Trial]:
    """Return the Pareto front of several objectives, the best in the first one first.

    With one objective, it is the best trial.
    """
    spec = seen.job.spec
    if spec.objectives is None:
        best = best_of(seen)
        return [] if best is None else [best]
    objects = {trial.metadata.name: trial for trial in seen.trials}
    candidates = [_candidate(trial, spec) for trial in seen.trials]
    return [Trial.of(objects[one.trial], spec) for one in pareto_front(spec, candidates, at_most=None)]


def dataframe_of(seen: Objects) -> pandas.DataFrame:
    """Return one row a trial: number, phase, rank, value, step, GPU-seconds and each parameter.

    With several objectives, `values.METRIC` of each instead of `value`, and whether the trial is in the front.
    """
    return _pandas().DataFrame(rows_of(seen))


def rows_of(seen: Objects) -> list[dict[str, Any]]:
    """Return the rows of `dataframe_of`."""
    several = seen.job.spec.objectives is not None
    front = {trial.name for trial in front_of(seen)} if several else set()

    def values(trial: Trial) -> dict[str, Any]:
        if not several:
            return {"value": trial.value}
        return {"front": trial.name in front, **{f"values.{name}": value for name, value in trial.values.items()}}

    return [
        {
            "trial": trial.name,
            "number": trial.number,
            "phase": trial.phase,
            "rank": trial.rank,
            **values(trial),
            "step": trial.step,
            "gpu_seconds": trial.gpu_seconds,
            **{f"params.{name}": value for name, value in trial.parameters.items()},
        }
        for trial in trials_of(seen)
    ]


def curves_of(seen: Objects) -> pandas.DataFrame:
    """Return one row a point: trial, step, value and time."""
    rows = [{"trial": trial.name, **point._asdict()} for trial in trials_of(seen) for point in trial.curve]
    return _pandas().DataFrame(rows, columns=["trial", "step", "value", "time"])


def _values(trial: HyperParamTrial, spec: JobSpec) -> tuple[float | None, dict[str, float | None], float | None]:
    """Return the value of one objective, the values by metric, and their step."""
    if spec.objectives is None:
        best = trial.status.best
        value = None if best is None else best.value
        return value, {spec.objective.metric: value}, None if best is None else best.step
    values = _candidate(trial, spec).values
    known = {one.metric: _known(value) for one, value in zip(spec.objectives, values, strict=True)}
    return None, known, trial.status.last_step


def _candidate(trial: HyperParamTrial, spec: JobSpec) -> Candidate:
    return Candidate.of(spec, trial.metadata.name, measured_of(trial, trial.status.phase))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise SearchError("PandasMissing", "this needs pandas: pip install pandas") from error
    return pandas

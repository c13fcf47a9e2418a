"""What a search has yielded: its trials as values, read from HyperParamTrial objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from podium_api.errors import SearchError
from podium_core.domain.phase import is_final
from podium_core.domain.snapshot import Scalar
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
    """One trial.

    `value`: its best value so far, at `step`; None before the first one. `rank`: for GPUs, among the trials that have
    not ended.
    """

    name: str
    number: int
    parameters: Mapping[str, Scalar]
    phase: str
    reason: str
    message: str
    rank: int | None
    value: float | None
    step: float | None
    last_value: float | None
    last_step: float | None
    gpu_seconds: float
    curve: tuple[Point, ...] = field(repr=False)

    @classmethod
    def of(cls, trial: HyperParamTrial) -> Trial:
        """Return the trial of an object."""
        status = trial.status
        return cls(
            name=trial.metadata.name,
            number=trial.spec.number,
            parameters=dict(trial.spec.parameters),
            phase=str(status.phase),
            reason=status.reason,
            message=status.message,
            rank=None if is_final(status.phase) else status.rank,
            value=None if status.best is None else status.best.value,
            step=None if status.best is None else status.best.step,
            last_value=status.last_value,
            last_step=status.last_step,
            gpu_seconds=status.gpu_seconds,
            curve=tuple(Point(point.step, point.value, point.time) for point in status.curve.points),
        )


def best_first(spec: JobSpec, trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials by value, those without one last; by number if there are several objectives."""
    sign = 0.0 if spec.objectives is not None else -1.0 if spec.objective.direction is Direction.MAXIMIZE else 1.0
    return sorted(trials, key=lambda one: (one.value is None, sign * (one.value or 0.0), one.number))


def dataframe_of(trials: Iterable[Trial]) -> pandas.DataFrame:
    """Return one row a trial: number, phase, rank, value, step, GPU-seconds and each parameter."""
    rows: list[dict[str, Any]] = [
        {
            "trial": trial.name,
            "number": trial.number,
            "phase": trial.phase,
            "rank": trial.rank,
            "value": trial.value,
            "step": trial.step,
            "gpu_seconds": trial.gpu_seconds,
            **{f"params.{name}": value for name, value in trial.parameters.items()},
        }
        for trial in trials
    ]
    return _pandas().DataFrame(rows)


def curves_of(trials: Iterable[Trial]) -> pandas.DataFrame:
    """Return one row a point: trial, step, value and time."""
    rows = [{"trial": trial.name, **point._asdict()} for trial in trials for point in trial.curve]
    return _pandas().DataFrame(rows, columns=["trial", "step", "value", "time"])


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise SearchError("PandasMissing", "this needs pandas: pip install pandas") from error
    return pandas

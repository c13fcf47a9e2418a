"""Values of a job's several objectives for one trial: at its last step, and the cost as for a whole trial. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from podium_core.curves.non_finite import diverged
from podium_core.domain.phase import TrialPhase
from podium_core.objectives.sorting import Floats
from podium_core.schema.job import GPU_SECONDS, Direction, JobSpec
from podium_core.schema.trial import HyperParamTrial

_NOT_KNOWN = math.nan


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of a trial. `additional`: latest values by metric."""

    phase: TrialPhase
    last_step: float | None
    last_value: float | None
    gpu_seconds: float
    additional: Mapping[str, float] = field(default_factory=dict)


def measured_of(trial: HyperParamTrial, phase: TrialPhase) -> Measured:
    """Return what the status of a trial holds, which may be older than its phase."""
    status = trial.status
    return Measured(
        phase=phase,
        last_step=status.last_step,
        last_value=status.last_value,
        gpu_seconds=status.gpu_seconds,
        additional={one.metric: float(one.latest) for one in status.additional_metrics},
    )


def objective_values(spec: JobSpec, measured: Measured) -> tuple[float, ...]:
    """Return the value of each of several objectives, in their order; empty for a job with one objective.

    NaN where no value is known, the latest one is not finite, or the trial has failed.
    """
    if spec.objectives is None:
        return ()
    if measured.phase in (TrialPhase.FAILED, TrialPhase.KILLED):
        return (_NOT_KNOWN,) * len(spec.objectives)
    first = next(one.metric for one in spec.objectives if one.metric != GPU_SECONDS)  # its values are the curve
    return tuple(_value(spec, one.metric, first, measured) for one in spec.objectives)


def _value(spec: JobSpec, metric: str, first: str, measured: Measured) -> float:
    """Return the value of one objective; NaN where no finite one is known."""
    if metric == GPU_SECONDS:
        value: float | None = _gpu_seconds(spec, measured)
    elif metric == first:
        value = measured.last_value
    else:
        value = measured.additional.get(metric)
    return _NOT_KNOWN if value is None or diverged(value) else value


def directions(spec: JobSpec) -> tuple[bool, ...]:
    """Return whether each of several objectives is maximized; empty for a job with one objective."""
    return tuple(one.direction is Direction.MAXIMIZE for one in spec.objectives or ())


def to_sort(values: Iterable[tuple[float, ...]], maximize: tuple[bool, ...]) -> Floats:
    """Return the values as an array in which larger is better: a row for each trial."""
    signs = np.where(maximize, 1.0, -1.0)
    table: Floats = np.array([*values], dtype=np.float64).reshape(-1, len(maximize)) * signs
    return table


def _gpu_seconds(spec: JobSpec, measured: Measured) -> float:
    """Return the GPU-seconds of a whole trial.

    A trial that is not complete counts with what it would take at its pace. Otherwise the trial that trained least
    would be the cheapest. Without `maxSteps` a whole trial is not known before it succeeds.
    """
    steps, done = spec.trials.max_steps, measured.last_step or 0.0
    if measured.phase is TrialPhase.SUCCEEDED:
        return measured.gpu_seconds
    if steps is None or done <= 0.0:
        return _NOT_KNOWN
    return measured.gpu_seconds * max(1.0, steps / done)

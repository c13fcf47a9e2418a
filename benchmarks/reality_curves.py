"""Each trial's curve, as the simulation of a search on a cluster trains along it. Used by reality_compare.

A trial that was stopped shows a part of its curve only. What would have followed is not known, and that it was stopped
must not be told: the curve goes on to maxSteps in the trial's own rhythm, at its last value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from reality_starts import gap, held, stopped

from podium_core.schema.trial import HyperParamTrial
from podium_simulator.traces.trace import RecordedTrial


def curve(
    trial: HyperParamTrial, load: float, max_steps: float | None, rhythm: float, first: tuple[float, float]
) -> RecordedTrial:
    """Its values at the times at which it trained; the last one when its process had ended. `rhythm`: the usual seconds
    between two values; `first`: the usual first step and value, of a trial that was stopped before it showed any.
    """
    points = trial.status.curve.points
    steps, values = [point.step for point in points], [point.value for point in points]
    trained = [held(trial, point.time) - load for point in points]
    if not stopped(trial):
        trained[-1] = held(trial, math.inf) - load
    elif not points:
        (step, value), trained = first, [rhythm]
        steps, values = [step], [value]
    seconds: list[float] = []
    for moment in trained:
        seconds.append(max(moment, (seconds[-1] if seconds else 0.0) + 1e-3))
    if stopped(trial) and max_steps is not None:
        apart, takes = _apart(steps), gap(trial) or rhythm
        while steps[-1] < max_steps:
            step = min(steps[-1] + apart, max_steps)
            seconds.append(seconds[-1] + takes * (step - steps[-1]) / apart)
            steps.append(step)
            values.append(values[-1])
    return RecordedTrial(trial.metadata.name, trial.spec.parameters, tuple(seconds), tuple(values), tuple(steps))


def _apart(steps: Sequence[float]) -> float:
    return median(b - a for a, b in pairwise(steps)) if len(steps) > 1 else steps[0]


def usual_first(trials: Sequence[HyperParamTrial]) -> tuple[float, float]:
    """Medians of the first steps and of the first values."""
    found = [trial.status.curve.points[0] for trial in trials if trial.status.curve.points]
    return median(point.step for point in found), median(point.value for point in found)

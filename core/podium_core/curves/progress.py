"""Estimates of the trained steps, from the GPU-seconds since the last value. Plain arrays, by row."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.statistics import Floats, median

MIN_PACE = 1e-100  # seconds per step; keeps quotients finite


def seconds_per_step(step: Floats, seconds: Floats) -> float:
    """Return GPU-seconds per step over all trials that have reported a step; 1 before any."""
    reported = (step > 0.0).nonzero()[0]
    steps = float(step[reported].sum())
    pace = float(seconds[reported].sum()) / steps if steps > 0.0 else 0.0
    return pace if pace > MIN_PACE else 1.0


def steps_between_values(step: Floats, points: NDArray[np.intp], evaluations: Floats) -> float:
    """Return the median number of steps between two values of a trial; 0 before any value."""
    reported = points.nonzero()[0]
    return median(step[reported] / evaluations[reported]) if len(reported) else 0.0


def trained_steps(
    step: Floats, seconds: Floats, evaluations: Floats, pace: float, spacing: float, length: float
) -> Floats:
    """Return the trained steps, at most `length`. `pace` and `spacing`: results of the functions above.

    The estimate is at most one evaluation beyond the last value. A slow trial, or one that repeats steps, uses more
    GPU-seconds without getting further.
    """
    shown = np.maximum(step, 0.0)
    ahead = shown + np.maximum(shown / evaluations, spacing)
    return cast(Floats, np.minimum(np.maximum(shown, np.minimum(seconds / pace, ahead)), length))

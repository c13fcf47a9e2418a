"""Length of a trial and its training so far, in steps, for policies that plan with them: as declared, or estimated.

The training is estimated on plain arrays, by row, from the GPU-seconds since the last value.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.statistics import Floats, median
from podium_core.domain.snapshot import JobView

MIN_PACE = 1e-100  # seconds per step; keeps quotients finite


def horizon(job: JobView, curves: CurveTable) -> float:
    """Return the steps of a whole trial; above 0.

    maxSteps; without it the longest completed trial; before that twice the longest curve, as if every trial had half of
    the way to go.
    """
    if job.max_steps is not None and job.max_steps > 0.0:
        return job.max_steps
    complete = curves.step[curves.complete]
    if len(complete) and complete.max() > 0.0:
        return float(complete.max())
    longest = float(curves.step.max(initial=0.0))
    return 2.0 * longest if longest > 0.0 else 1.0


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

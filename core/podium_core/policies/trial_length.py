"""Length of a trial, for policies that plan with it: the declared number of steps, or an estimate."""

from __future__ import annotations

from podium_core.curves.curve_table import CurveTable
from podium_core.domain.snapshot import JobView


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

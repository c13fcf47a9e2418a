"""Predicted final value of each unfinished trial, for its status.

It uses the envelope policy, whatever policy the job has.

The operator calls it for each job in each reconciliation. A job without maxSteps gets no prediction: its trials have no
defined end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from podium_core.curves.aligned_curves import align
from podium_core.curves.curve_table import curves_of_job
from podium_core.curves.final_value import Forecast, forecasts
from podium_core.domain.phase import FINAL
from podium_core.domain.snapshot import JobView, Snapshot, TrialKey

LEVEL = 0.8  # probability that the interval contains the final value


def predictions(job: JobView, snapshot: Snapshot) -> Mapping[TrialKey, Forecast]:
    """Return the prediction of each unfinished trial that has a finite value. Microseconds per trial."""
    unfinished = [trial for trial in snapshot.trials_by_job.get(job.key, ()) if trial.phase not in FINAL]
    if job.state.finished or job.max_steps is None or job.max_steps <= 0.0 or not unfinished:
        return {}
    curves = curves_of_job(job, unfinished, snapshot)
    by_trial = forecasts(align(curves, job.max_steps), curves, LEVEL)
    known = {trial.key: by_trial[trial.key] for trial in unfinished if trial.key in by_trial}
    # Huge values overflow, and a status is JSON, which has no infinity.
    return {key: one for key, one in known.items() if math.isfinite(one.low) and math.isfinite(one.high)}

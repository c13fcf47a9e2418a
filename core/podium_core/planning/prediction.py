"""Where each unfinished trial will end, for its status: the forecast of the envelope policy, whatever policy the job
has.

Called by the operator, for each job once a cycle. A job that does not say how long a trial is (maxSteps) gets none:
there is no end that a prediction could be of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from podium_core.curves.aligned_curves import align
from podium_core.curves.curve_table import curves_of_job
from podium_core.curves.final_value import Forecast, forecasts
from podium_core.domain.phase import FINAL
from podium_core.domain.snapshot import JobView, Snapshot, TrialKey

LEVEL = 0.8  # probability that the interval holds the final value


def predictions(job: JobView, snapshot: Snapshot) -> Mapping[TrialKey, Forecast]:
    """Of each of its unfinished trials that has shown a finite value. Microseconds a trial."""
    unfinished = [trial for trial in snapshot.trials_by_job.get(job.key, ()) if trial.phase not in FINAL]
    if job.finished or job.max_steps is None or job.max_steps <= 0.0 or not unfinished:
        return {}
    seen = curves_of_job(job, unfinished, snapshot)
    found = forecasts(align(seen, job.max_steps), seen, LEVEL)
    told = {trial.key: found[trial.key] for trial in unfinished if trial.key in found}
    # huge values overflow, and a status is JSON, which knows no infinity
    return {key: one for key, one in told.items() if math.isfinite(one.low) and math.isfinite(one.high)}

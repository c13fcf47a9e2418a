"""Where each unfinished trial will end, for its status: the forecast of the envelope policy, whatever policy the job
has.

Called by the operator once a cycle. A job that does not say how long a trial is (maxSteps) gets none: there is no end
that a prediction could be of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from podium.curves.board import board
from podium.curves.equal_training import equal_training
from podium.curves.final_value import Forecast, forecasts
from podium.domain.phase import FINAL
from podium.domain.snapshot import JobKey, Snapshot, TrialKey, TrialView

LEVEL = 0.8  # probability that the interval holds the final value


def predictions(snapshot: Snapshot) -> Mapping[TrialKey, Forecast]:
    """Of every unfinished trial that has shown a finite value. Microseconds a trial."""
    unfinished: dict[JobKey, list[TrialView]] = {}
    for trial in snapshot.trials:
        if trial.phase not in FINAL:
            unfinished.setdefault(trial.job, []).append(trial)
    found: dict[TrialKey, Forecast] = {}
    for job in snapshot.jobs:
        if job.finished or job.max_steps is None or job.max_steps <= 0.0 or job.key not in unfinished:
            continue
        seen = board(job, sorted(unfinished[job.key], key=lambda t: t.key), snapshot)
        of_job = forecasts(equal_training(seen, job.max_steps), seen, LEVEL)
        for trial in unfinished[job.key]:
            forecast = of_job.get(trial.key)
            # huge values overflow, and a status is JSON, which knows no infinity
            if forecast is not None and math.isfinite(forecast.low) and math.isfinite(forecast.high):
                found[trial.key] = forecast
    return found

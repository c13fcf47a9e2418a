"""Plan and predict so that an error in one job's policy does not affect the other jobs. Used by `reconciler`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from podium_core.curves.final_value import Forecast
from podium_core.domain.actions import Plan
from podium_core.domain.snapshot import JobKey, Snapshot, TrialKey
from podium_core.planning.planner import plan
from podium_core.planning.prediction import predictions
from podium_core.planning.ranking import RankingError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GuardedPlan:
    """Plan, and the jobs that were left out of it."""

    plan: Plan
    left_out: Mapping[JobKey, str]  # the reason, for people


def plan_guarded(snapshot: Snapshot) -> GuardedPlan:
    """Return the plan.

    A job whose trials cannot be ranked is left out: its pods stay, and the other jobs continue.
    """
    left_out: dict[JobKey, str] = {}
    while True:
        try:
            return GuardedPlan(plan(snapshot), left_out)
        except RankingError as error:
            log.exception("job %s/%s is left unchanged: %s", *error.job, error)
            left_out[error.job] = (
                f"{error} ({type(error.__cause__).__name__}; read the traceback in the operator's log)"
            )
            snapshot = replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.key != error.job))


def predict(snapshot: Snapshot) -> tuple[Mapping[TrialKey, Forecast], int]:
    """Return the forecast of each trial's final value and the number of jobs whose forecast failed."""
    forecasts: dict[TrialKey, Forecast] = {}
    failed = 0
    for job in snapshot.jobs:
        try:
            forecasts.update(predictions(job, snapshot))
        except Exception:  # a bug in Podium; the other statuses do not suffer from it
            failed += 1
            log.exception("job %s/%s: the final values of its trials could not be predicted", *job.key)
    return forecasts, failed

"""A plan and predictions, whatever the policy of one job does. Used by `cycle`."""

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
class Decided:
    plan: Plan
    left_out: Mapping[JobKey, str]  # and why, for people


def decide(snapshot: Snapshot) -> Decided:
    """A job whose trials cannot be ranked is left out until they can be: its pods stay, and the others go on."""
    left_out: dict[JobKey, str] = {}
    while True:
        try:
            return Decided(plan(snapshot), left_out)
        except RankingError as error:
            log.exception("job %s/%s is left as it is: %s", *error.job, error)
            left_out[error.job] = f"{error} ({type(error.__cause__).__name__}; the operator's log has it all)"
            snapshot = replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.key != error.job))


def predict(snapshot: Snapshot) -> tuple[Mapping[TrialKey, Forecast], int]:
    """Where trials will end, and for how many jobs that could not be told."""
    found: dict[TrialKey, Forecast] = {}
    failed = 0
    for job in snapshot.jobs:
        try:
            found.update(predictions(job, snapshot))
        except Exception:  # a fault of ours, which the other statuses need not suffer from
            failed += 1
            log.exception("job %s/%s: its trials' ends could not be predicted", *job.key)
    return found, failed

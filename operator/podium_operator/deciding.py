"""A plan, whatever the policy of one job does. Used by `cycle`."""

from __future__ import annotations

import logging
from dataclasses import replace

from podium.domain.actions import Plan
from podium.domain.snapshot import Snapshot
from podium.planning.planner import plan
from podium.planning.ranking import RankingError

log = logging.getLogger(__name__)


def decide(snapshot: Snapshot) -> tuple[Snapshot, Plan, int]:
    """A job whose trials cannot be ranked is left out until they can be: its pods stay, and the others go on. Returns
    what was planned for, the plan, and how many jobs were left out.
    """
    left_out = 0
    while True:
        try:
            return snapshot, plan(snapshot), left_out
        except RankingError as error:
            left_out += 1
            log.exception("job %s/%s is left as it is: %s", *error.job, error)
            snapshot = replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.key != error.job))

"""Results of a job's trials, for a searcher that learns. The actuator calls this before it creates trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podium_core.schema.job import Direction, HyperParamJob
from podium_operator.observe.trial_state import TrialState
from podium_operator.searchers.base import TrialResult


def trial_results(job: HyperParamJob, trials: Iterable[TrialState]) -> Sequence[TrialResult]:
    """Return the results by trial number. O(trials)."""
    about = (job.metadata.namespace, job.metadata.name)
    mine = [one for one in trials if (one.metadata.namespace, one.spec.job) == about]
    maximize = job.spec.objective.direction is Direction.MAXIMIZE
    return [
        TrialResult.at(one.status.phase, one.spec.number, one.spec.parameters, one.status.last_step, one.best(maximize))
        for one in sorted(mine, key=lambda one: one.spec.number)
    ]

"""What a job's trials have shown, for a searcher that learns. Called by the actuator before it makes some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podium_core.schema.job import Direction, HyperParamJob
from podium_operator.observe.trial_state import SeenTrial
from podium_operator.searchers.base import Tried


def shown(job: HyperParamJob, trials: Iterable[SeenTrial]) -> Sequence[Tried]:
    """By number. O(trials)."""
    about = (job.metadata.namespace, job.metadata.name)
    mine = [one for one in trials if (one.metadata.namespace, one.spec.job) == about]
    maximize = job.spec.objective.direction is Direction.MAXIMIZE
    return [
        Tried.at(one.status.phase, one.spec.number, one.spec.parameters, one.status.last_step, one.best(maximize))
        for one in sorted(mine, key=lambda one: one.spec.number)
    ]

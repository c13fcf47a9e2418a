"""What a job's trials have shown, for a searcher that learns. Called by the actuator before a trial is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from podium.domain.phase import TrialPhase
from podium.schema.job import Direction, HyperParamJob
from podium_operator.searchers.base import Tried
from podium_operator.seen_trial import SeenTrial


def shown(job: HyperParamJob, trials: Iterable[SeenTrial]) -> Sequence[Tried]:
    """By number. O(trials)."""
    about = (job.metadata.namespace, job.metadata.name)
    mine = [trial for trial in trials if (trial.metadata.namespace, trial.spec.job) == about]
    maximize = job.spec.objective.direction is Direction.MAXIMIZE
    return [_tried(trial, maximize) for trial in sorted(mine, key=lambda trial: trial.spec.number)]


def _tried(trial: SeenTrial, maximize: bool) -> Tried:
    best, phase = trial.best(maximize), trial.status.phase
    return Tried(
        number=trial.spec.number,
        parameters=trial.spec.parameters,
        step=trial.status.last_step or 0.0,
        value=None if best is None else best.value,
        completed=phase is TrialPhase.SUCCEEDED,
        failed=phase in (TrialPhase.FAILED, TrialPhase.KILLED),
    )

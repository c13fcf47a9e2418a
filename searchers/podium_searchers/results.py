"""Results of a search's trials as learning searchers use them: by their numbers, or the best first. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from podium_core.schema.job import Direction, JobSpec
from podium_core.schema.search.conditions import point_problem
from podium_searchers.base import TrialResult


def by_number(tried: Iterable[TrialResult]) -> list[TrialResult]:
    """Return the results in the order of the trials' numbers, so that their own order does not matter."""
    return sorted(tried, key=lambda one: one.number)


def with_value(spec: JobSpec, tried: Iterable[TrialResult]) -> list[TrialResult]:
    """Return the trials of this space that have trained and did not fail, by number.

    A diverged trial counts.
    """
    return [
        one
        for one in by_number(tried)
        if not one.failed and (one.value is not None or one.step > 0) and point_problem(spec, one.parameters) is None
    ]


def has_values(spec: JobSpec, one: TrialResult) -> bool:
    """Return whether a trial has ended with a finite value of each of the job's several objectives."""
    return one.completed and len(one.values) == len(spec.objectives or ()) and all(map(math.isfinite, one.values))


def values_shown(spec: JobSpec, tried: Iterable[TrialResult]) -> int:
    """Return how many trials have a value.

    With several objectives only completed trials with all values count.
    """
    if spec.objectives is not None:
        return sum(has_values(spec, one) for one in tried)
    return sum(one.value is not None for one in tried)


def best_first(spec: JobSpec, tried: Iterable[TrialResult]) -> Sequence[TrialResult]:
    """Return the results, the best first.

    Completed trials come before unfinished ones, of which the longest trained come first, as in Optuna's order of
    pruned trials. A trial whose values all diverged comes last.
    """
    sign = -1.0 if spec.objective.direction is Direction.MAXIMIZE else 1.0

    def key(one: TrialResult) -> tuple[bool, bool, float, float]:
        if one.value is None:
            return (True, True, 0.0, 0.0)
        return (False, not one.completed, 0.0 if one.completed else -one.step, sign * one.value)

    return sorted(by_number(tried), key=key)

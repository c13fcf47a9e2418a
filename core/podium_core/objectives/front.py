"""The Pareto front of a job's trials, as its status, the CLI and the report show it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from podium_core.objectives.sorting import crowding_distances, non_dominated_fronts
from podium_core.objectives.values import Measured, directions, objective_values, to_sort
from podium_core.schema.job import JobSpec
from podium_core.schema.job_status import MAX_FRONT, FrontTrial


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trial with the values of all objectives (NaN: not known) at its last step."""

    name: str
    step: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, spec: JobSpec, name: str, measured: Measured) -> Candidate:
        """Return the candidate for a trial of a job."""
        return cls(name, measured.last_step or 0.0, objective_values(spec, measured))

    @property
    def known(self) -> bool:
        """Return whether the value of every objective is known."""
        return bool(self.values) and all(map(math.isfinite, self.values))


def pareto_front(spec: JobSpec, trials: Iterable[Candidate], *, at_most: int | None = MAX_FRONT) -> list[FrontTrial]:
    """Return the trials that no other one dominates, the best in the first objective first.

    Of more than `at_most`, those in the sparsest regions; ties go to the first of `trials`. Empty for a job with one
    objective.
    """
    shown = [one for one in trials if one.known]
    if not shown:
        return []
    values = to_sort((one.values for one in shown), directions(spec))
    fronts = non_dominated_fronts(values)
    first = np.flatnonzero(fronts == 0)
    crowding = crowding_distances(values[first], fronts[first])
    kept = first[np.argsort(-crowding, kind="stable")[:at_most]]
    kept = kept[np.lexsort((kept, -values[kept, 0]))]
    return [FrontTrial(trial=one.name, step=one.step, values=list(one.values)) for one in (shown[row] for row in kept)]

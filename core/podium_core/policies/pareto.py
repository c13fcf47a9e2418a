"""Pareto policy, for several objectives: warm up every trial, then rank by non-dominated sorting.

Deb et al. 2002 (NSGA-II): first the trials that no other trial of the job dominates, then those that only these
dominate, and so on. Within a front the trial in the sparser region goes first. Ended trials count, too: a trial that an
ended one dominates is less promising.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.objectives.sorting import Floats, crowding_distances, non_dominated_fronts
from podium_core.objectives.values import to_sort
from podium_core.policies.base import Ranking, limit_switch_share

WARM_UP, RANKED, UNKNOWN = 0, 1, 2
CROWDING_SHARE = 0.4  # largest gain by crowding; a better front gains at least 0.6


@dataclass(frozen=True, slots=True)
class Pareto:
    """Pareto policy. `warmup`: points that every trial may report before it is judged."""

    warmup: int = 3

    name: ClassVar[str] = "pareto"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False
    hysteresis: ClassVar[float] = 0.5  # between the two gains: only a better front is worth a switch

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ValueError(f"warmup: {self.warmup} is not a number of points; give 0 or more")

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        curves = curves_of_job(job, trials, snapshot)
        values = _values(job, curves)
        known = np.asarray(np.isfinite(values).all(axis=1), dtype=np.bool_)
        fronts = np.full(len(curves), -1, dtype=np.intp)
        fronts[known] = non_dominated_fronts(values[known])
        sparse = np.zeros(len(curves))
        sparse[known] = _shares(crowding_distances(values[known], fronts[known]))
        in_warm_up = (curves.points < self.warmup) & ~curves.diverged
        levels = np.where(in_warm_up, WARM_UP, np.where(known, RANKED, UNKNOWN))
        points, count, of = curves.points.copy(), int(fronts.max(initial=0)) + 1, int(np.count_nonzero(known))

        def explain(row: int) -> tuple[str, str]:
            if in_warm_up[row]:
                return "WarmUp", f"has reported {points[row]} of the {self.warmup} points of its warm-up."
            if not known[row]:
                return "ValueMissing", "has no finite value of one of the objectives; all others go first."
            if fronts[row] == 0:
                return "NonDominated", f"none of the {of} trials with values is better in all objectives."
            return (
                "Dominated",
                f"others are better in all objectives: it is in front {fronts[row] + 1} of {count}.",
            )

        return Ranking(curves, np.where(levels == RANKED, CROWDING_SHARE * sparse - fronts, 0.0), levels, explain)


def _values(job: JobView, curves: CurveTable) -> Floats:
    """Return the values of all objectives by row of the table; larger is better, NaN: not known."""
    if not job.directions:
        return curves.last[:, None]
    missing = (np.nan,) * len(job.directions)
    return to_sort(((view.result.objective_values if view else ()) or missing for view in curves.views), job.directions)


def _shares(crowding: Floats) -> Floats:
    """Return the crowding distances in the same order, as numbers from 0 to 1."""
    shares: Floats = np.ones(len(crowding))
    finite = np.isfinite(crowding)
    shares[finite] = crowding[finite] / (1.0 + crowding[finite])
    return shares

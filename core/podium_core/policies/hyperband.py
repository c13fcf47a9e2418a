"""Hyperband: brackets of successive halving that start at different rungs.

Li et al., JMLR 18 (2018). `mode: sync` promotes when a whole bracket has arrived at a rung. `mode: async` applies
ASHA's rule in each bracket; with `onCut: stop`, the rule without promotion. A trial that has trained past a rung still
stands on it unless the rule let it pass. Trials are assigned to brackets by number, so a bracket may be far larger than
the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.asynchronous_halving import asynchronous_promotions
from podium_core.policies.base import OnCut, Ranking, limit_switch_share
from podium_core.policies.halving import Halving, halving_ranking
from podium_core.policies.rungs import (
    NO_RUNG,
    RungArrivals,
    check_halving,
    rung_arrivals,
    rung_positions,
    rung_steps,
    top_fraction,
)
from podium_core.policies.trial_length import horizon


@dataclass(frozen=True, slots=True)
class Hyperband:
    """Hyperband policy.

    `eta`: one in eta trials is promoted. `rungs`: number of rungs below the end; there is one bracket more than rungs.
    """

    eta: float = 4.0
    rungs: int = 3
    mode: Literal["sync", "async"] = "sync"
    on_cut: OnCut = "suspend"

    name: ClassVar[str] = "hyperband"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_halving(self.eta, self.rungs)

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def brackets(self, trials: int) -> tuple[int, ...]:
        """Return the number of trials of each bracket, the one with the lowest first rung first.

        The numbers follow the paper's proportion eta^s / (s + 1) and add up to `trials`.
        """
        shares = [self.eta**s / (s + 1) for s in range(self.rungs, -1, -1)]
        ends = [round(trials * sum(shares[: i + 1]) / sum(shares)) for i in range(len(shares))]
        return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """Return the ranking. O(n log n) plus the new points."""
        curves = curves_of_job(job, trials, snapshot)
        steps, stop = rung_steps(horizon(job, curves), self.eta, self.rungs), self.on_cut == "stop"
        sizes = self.brackets(max(job.limits.max_trials, len(curves)))
        bracket = np.minimum(np.searchsorted(np.cumsum(sizes), curves.numbers, side="right"), self.rungs)
        if self.mode == "async":
            halving = asynchronous_promotions(job, curves, steps, self.eta, stop, bracket)
        else:
            halving = self._synchronous(curves, rung_arrivals(curves, steps, job.abilities.suspendable), sizes, bracket)
        return halving_ranking(job, curves, halving, stop)

    def _synchronous(
        self, curves: CurveTable, arrivals: RungArrivals, sizes: Sequence[int], bracket: NDArray[np.intp]
    ) -> Halving:
        """Return which trials may continue when a whole bracket has arrived at a rung.

        The best part then passes the rung. Expected at a rung are the trials that passed the one before, except those
        that ended on the way. A trial that has a value there without having passed is not counted.
        """
        allowed = np.zeros(arrivals.value.shape, dtype=bool, order="F")
        waiting_rung = np.full(len(curves), NO_RUNG)  # by row: the rung at which its bracket still waits
        for first, size in enumerate(sizes):
            in_bracket = bracket == first
            allowed[in_bracket, :first] = True  # the bracket's first rung is still ahead
            eligible, expected = in_bracket, size
            for k in range(first, self.rungs):
                arrived = eligible & ~np.isnan(arrivals.value[:, k])
                if np.count_nonzero(arrived | (eligible & curves.done)) < expected:
                    waiting_rung[in_bracket] = k
                    break
                eligible = top_fraction(np.where(arrived, arrivals.value[:, k], np.nan), self.eta, least=1) | (
                    arrived & arrivals.passed[:, k]
                )
                allowed[eligible, k] = True
                expected = int(np.count_nonzero(eligible))
        positions = rung_positions(arrivals, allowed)
        started = positions.rung != NO_RUNG
        return Halving(positions, started & ~positions.held, started & (positions.rung == waiting_rung), self.rungs)

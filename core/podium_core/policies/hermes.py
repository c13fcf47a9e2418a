"""Hermes: the trials that converge fastest go first. OUR RECONSTRUCTION OF AN ABSTRACT.

Son et al. (Electronics 2021, 10(3), 350) publish neither the convergence formula nor the rule of preemption in what
could be read. Known are the parts: early convergence tells the few good combinations, trials queue per GPU, each queue
is ordered by convergence, a better one preempts. Ours: the first `early` points of every trial come first; then the
rank within a GPU's queue is convergence = (best - value at the start) / range of the values in the job's pool. Figures
got with this file are ours, not the paper's.

The value at the start is that of the untrained model. A curve whose first step is 0 holds it; most scripts print their
first value after an epoch of training, and (best - own first value) then punishes exactly the trials that learned most
in it. On 8 pools of 12 small networks (digits) that rule took 1.9 times as long as fifo. So by default (`start: pool`)
the worst first value of the pool stands for the start of all; `start: own` is the literal rule, for replays of curves
that begin untrained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, board
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import Ranking, shortest_turn

LOOK, RANKED, DIVERGED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Hermes:
    """`early`: points that every trial may show before it is judged; `min_run`: seconds a holder keeps its GPU at
    least; `hysteresis`: share of the pool's range that a rival must be ahead, beyond the cost of the hand-over.
    """

    early: int = 3
    min_run: float = 2.0
    hysteresis: float = 0.01
    start: Literal["own", "pool"] = "pool"

    name: ClassVar[str] = "hermes"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.early < 0:
            raise ValueError(f"warmup: {self.early} points cannot be asked for; give 0 or more")
        if not self.min_run >= 0.0:
            raise ValueError(f"minTimeSlice: {self.min_run:g} seconds is no time; give 0 or more")
        if not 0.0 <= self.hysteresis <= 1.0:
            raise ValueError(f"hysteresis: {self.hysteresis:g} is no share of the range; give 0 to 1")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, self.min_run)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(n log n) and the new points. The pool is the whole job: a finished trial still says what is possible."""
        seen = board(job, trials, snapshot)
        gained = self._convergence(seen)
        bad, early = seen.diverged, seen.points < self.early
        levels = np.where(bad, DIVERGED, np.where(early, LOOK, RANKED))
        points, best, sign = seen.points.copy(), seen.best.copy(), seen.sign

        def say(row: int) -> tuple[str, str]:
            if bad[row]:
                return "Diverged", "its last value is not a finite number, all others go first."
            if early[row]:
                shown = f"{points[row]} of the {self.early} points that every trial may show before it is judged."
                return "WarmUp", f"has shown {shown}"
            value = f"best {sign * best[row]:.4g}" if np.isfinite(best[row]) else "no value yet"
            return "Convergence", f"gained {gained[row]:.3f} of the range of all trials' values ({value})."

        return Ranking(seen, np.where(levels == RANKED, gained, 0.0), levels, say)

    def _convergence(self, seen: Board) -> NDArray[np.float64]:
        """(best - start) / range of the pool, from 0 to 1, by row."""
        valued = np.isfinite(seen.best)
        if not valued.any():
            return np.zeros(len(seen))
        width = float(seen.best[valued].max()) - float(seen.worst[valued].min())
        if not 0.0 < width < np.inf:
            return np.zeros(len(seen))
        start = seen.first if self.start == "own" else np.full(len(seen), seen.first[valued].min())
        gained = np.zeros(len(seen))
        # scaled before the subtraction: the difference of two huge values overflows
        gained[valued] = np.clip(seen.best[valued] / width - start[valued] / width, 0.0, 1.0)
        return gained

"""Ranking of successive halving for `asha` and `hyperband`: which trials may continue, in which order, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.domain.snapshot import JobView
from podium_core.policies.base import Admission, Ranking
from podium_core.policies.rungs import NO_RUNG, RungPositions


@dataclass(frozen=True, slots=True)
class Halving:
    """Which trials may continue, by row."""

    positions: RungPositions
    promoted: NDArray[np.bool_]
    waiting: NDArray[np.bool_]  # at a rung whose promotions are not decided yet
    count: int  # number of rungs

    def ranking(self, curves: CurveTable, cut: Admission) -> Ranking:
        """Return the ranking: trials on their way to a rung, then promoted ones, then new ones.

        Promoted trials of a higher rung go first.
        """
        rung, between, promoted, waiting = self.positions.rung, self.positions.between, self.promoted, self.waiting
        unstarted = (rung == NO_RUNG) & ~between
        levels = np.where(between, 0, np.where(unstarted, self.count + 1, self.count - rung))
        paused = ~between & ~unstarted & ~promoted
        levels[paused] = self.count + 2
        # Within a rung by value, as a share of the pool: a single huge loss must not make all others look equal.
        score = np.searchsorted(np.sort(self.positions.at), self.positions.at) / max(1, len(curves))
        stopped = paused & ~waiting if cut is Admission.STOP else None

        def explain(row: int) -> tuple[str, str]:
            if between[row]:
                return "AdvancingToRung", f"is on its way to rung {rung[row] + 1}."
            if unstarted[row]:
                return "NotStarted", "has not been trained yet."
            if promoted[row]:
                return "Promoted", f"is in the best part of rung {rung[row]}."
            if waiting[row]:
                return "RungIncomplete", f"waits until all trials of its bracket have reached rung {rung[row]}."
            return "PausedAtRung", f"is not in the best part of rung {rung[row]}."

        return Ranking(curves, np.where(between | unstarted, 0.0, score), levels, explain, paused, stopped)


def halving_ranking(job: JobView, curves: CurveTable, halving: Halving, stop: bool) -> Ranking:
    """Return the ranking. `stop`: trials that may not continue end; else they wait.

    With waiting trials, a search still ends with one whole trial.
    """
    if stop:
        return halving.ranking(curves, Admission.STOP)
    return _complete_one(job, curves, halving).ranking(curves, Admission.WAIT)


def _complete_one(job: JobView, curves: CurveTable, halving: Halving) -> Halving:
    """Promote one more trial where otherwise no trial would train to its end.

    That is where no trial continues, no new trial can arrive, and none was trained to its end. The best finite value of
    the highest rung decides. So a search of few trials, or one whose best trials failed, ends with a whole trial. The
    choice holds while the trial trains: its position does not change, and only a pinned trial can pass it.
    """
    positions = halving.positions
    if len(curves) < job.limits.max_trials or (curves.complete & (curves.best > -np.inf)).any():
        return halving
    live = ~curves.done
    if (live & (halving.promoted | halving.waiting | positions.between | (positions.rung == NO_RUNG))).any():
        return halving
    eligible = np.flatnonzero(live & (positions.at > -np.inf))
    if not len(eligible):
        return halving
    high = eligible[positions.rung[eligible] == positions.rung[eligible].max()]
    promoted = halving.promoted.copy()
    promoted[high[np.argmax(positions.at[high])]] = True
    return replace(halving, promoted=promoted)

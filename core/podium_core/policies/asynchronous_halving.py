"""Successive halving without a barrier: the trials that arrived at a rung decide promotions.

`asha` calls it, and `hyperband` in the mode `async` for each of its brackets. Li et al., MLSys 2020, algorithm 2.

Values may arrive faster than the planner runs, so a trial's position past a rung does not show whether it was allowed
to pass. The printing time of each value does. So the promotions are replayed arrival by arrival: the replay gives what
would have been decided at every evaluation, and the same after a restart. A thinned curve may have lost its point at a
rung; its arrival time is then estimated (`thinning.reached_at`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.row_cache import RowCache
from podium_core.curves.statistics import Floats
from podium_core.domain.snapshot import JobView
from podium_core.policies.halving import Halving
from podium_core.policies.rungs import (
    NO_RUNG,
    RungArrivals,
    promotion_count,
    rung_arrivals,
    rung_positions,
    top_fraction,
)


def asynchronous_promotions(
    job: JobView, curves: CurveTable, steps: Sequence[float], eta: float, stop: bool, bracket: NDArray[np.intp]
) -> Halving:
    """Return which trials may continue.

    `bracket`: bracket of each row; the first rung of a bracket has the bracket's number. `stop`: trials that may not
    continue will be ended. Then the best of even a few arrivals is promoted, and a trial that was once among the best
    is not judged again.
    """
    arrivals, least = rung_arrivals(curves, steps, job.abilities.suspendable), int(stop)
    allowed = ever_promotable(curves, arrivals, steps, eta, least, bracket)
    positions = rung_positions(arrivals, allowed)
    promoted = (positions.rung != NO_RUNG) & (positions.rung < bracket)
    # A trial that was never promotable is not promotable now. A trial between rungs is not judged.
    eligible = ~positions.held & ~positions.between & (positions.rung >= bracket)
    if stop:
        promoted |= eligible
    else:
        for first, k in {*zip(bracket[eligible].tolist(), positions.rung[eligible].tolist(), strict=True)}:
            in_bracket = bracket == first
            promoted |= (
                in_bracket
                & eligible
                & (positions.rung == k)
                & top_fraction(np.where(in_bracket, positions.value[:, k], np.nan), eta, least)
            )
    return Halving(positions, promoted, np.zeros(len(curves), dtype=bool), len(steps))


def ever_promotable(
    curves: CurveTable,
    arrivals: RungArrivals,
    steps: Sequence[float],
    eta: float,
    least: int,
    bracket: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Return, by row and rung, whether the trial was ever promotable among the trials of its bracket.

    True at the rungs below a bracket's first one, which has the bracket's number. A value on a rung counts as an
    arrival whether or not the trial was allowed to come: it is a fact, and more facts give a better choice. Do not
    write into the array; it changes with the next cycle.
    """
    kept = curves.cached(("promotable", tuple(steps), eta, least), lambda: _Promotable(len(curves), len(steps)))
    for first, k in kept.changed_rungs(curves.version, arrivals, bracket):
        rows = ((bracket == first) & (arrivals.time[:, k] < np.inf)).nonzero()[0]
        kept.ever[bracket == first, k] = False
        kept.ever[rows, k] = promotable_on_rung(arrivals.time[rows, k], arrivals.value[rows, k], eta, least)
    return kept.ever


class _Promotable(RowCache):
    """Cache of the result: a rung with a new or changed arrival is computed again."""

    ever: NDArray[np.bool_]
    bracket: NDArray[np.intp]
    value: Floats
    time: Floats

    def __init__(self, rows: int, rungs: int) -> None:
        self._arrival = {"value": np.full(rungs, np.nan), "time": np.full(rungs, np.inf), "bracket": -1}
        super().__init__(rows, {**self._arrival, "ever": np.zeros(rungs, dtype=bool)}, order="F")

    def reorder(self, source: Sequence[int]) -> None:
        only_added = self.only_added(source)
        super().reorder(source)
        if not only_added:  # Without a trial that was removed, others may be promotable.
            self._forget()

    def _forget(self) -> None:
        for name, empty in self._arrival.items():
            getattr(self, name)[:] = empty
        self.mark_stale()

    def changed_rungs(
        self, version: NDArray[np.intp], arrivals: RungArrivals, bracket: NDArray[np.intp]
    ) -> set[tuple[int, int]]:
        """Return the brackets and rungs to compute again, and remember the arrivals."""
        moved = self.bracket != bracket
        if moved.any():
            if (self.bracket[moved] >= 0).any():  # The brackets have other sizes.
                self._forget()
                moved[:] = True
            self.bracket[moved] = bracket[moved]
            self.ever[moved] = np.arange(self.ever.shape[1]) < bracket[moved, None]
        rows = self.stale_rows(version)
        if not len(rows):
            return set()
        value, time = arrivals.value[rows], arrivals.time[rows]
        changed = (time != self.time[rows]) | ((value != self.value[rows]) & np.isfinite(time))
        self.value[rows], self.time[rows] = value, time
        index, rung = (changed & (np.arange(time.shape[1]) >= bracket[rows, None])).nonzero()
        return {*zip(bracket[rows[index]].tolist(), rung.tolist(), strict=True)}


def promotable_on_rung(time: Floats, value: Floats, eta: float, least: int) -> NDArray[np.bool_]:
    """Return which of the trials that arrived at a rung were ever promotable there.

    A trial is promotable if, at some moment since its arrival, it was in the best 1/eta (or among the best `least`, 0
    or 1) of the trials that had arrived. Ties in time and in value go to the earlier index. -inf is a diverged trial.
    An arrival may make promotable its own trial and the one at the last promoted position. O(n log n).
    """
    ever = np.zeros(len(time), dtype=bool)
    ranked: list[tuple[float, int]] = []  # negated value and index, best first; without diverged trials
    values = value.tolist()
    for arrived, index in enumerate(time.argsort(kind="stable").tolist(), 1):
        own = (-values[index], index)
        if own[0] < np.inf:
            insort(ranked, own)
        count = min(len(ranked), promotion_count(arrived, eta, least))
        if count:
            last = ranked[count - 1]
            ever[last[1]] = True
            if own < last:
                ever[index] = True
    return ever

"""Table of all trials' curves of one job as arrays: one row per trial, larger is better.

The policies call it. A table is kept from one planning cycle to the next, but only as a cache. It holds exactly what a
new table would hold for the same snapshot, so a restart changes no plan. A property test checks this.

Cost of a cycle: one comparison per trial, one comparison per point of a changed curve, and work only for new points.
Thinning drops points; then everything from the first dropped point is computed again, usually the last two points.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from operator import is_not

import numpy as np
from numpy.typing import ArrayLike, NDArray

from podium_core.curves.non_finite import diverged
from podium_core.curves.row_cache import RowArrays, RowCache
from podium_core.curves.statistics import Floats
from podium_core.curves.thinning import common_prefix, estimated_evaluations
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import JobView, Point, Snapshot, TrialView

_NOTHING = (-np.inf, -np.inf, np.inf, -np.inf)
_WIDTH = len(_NOTHING)
_EMPTY = {  # contents of a new row
    "views": None,
    "curves": None,
    "_extremes": None,
    **dict.fromkeys(("first", "best", "last"), -np.inf),
    **dict.fromkeys(("step", "seconds", "last_report"), 0.0),
    **dict.fromkeys(("points", "version"), 0),
    **dict.fromkeys(("done", "complete", "running"), False),
    **dict.fromkeys(("worst", "evaluations"), np.inf),
    "switch_seconds": np.nan,
}
_MAX_TABLES = 64  # jobs whose tables are kept, unless the snapshot has more than half as many
_tables: OrderedDict[tuple[JobKey, str, bool], CurveTable] = OrderedDict()


class _PerCurve(RowCache):
    """Cache of `CurveTable.per_curve`."""

    values: Floats

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(rows, {"values": np.zeros(width)})


class CurveTable(RowArrays):
    """Curves of one job's trials. Rows are sorted by trial number, then key.

    Values are -inf where no finite value was reported.
    """

    views: list[TrialView | None]
    curves: list[Sequence[Point] | None]
    points: NDArray[np.intp]  # number of reported values, finite or not
    first: Floats  # first finite value
    best: Floats
    worst: Floats  # worst finite value
    last: Floats
    step: Floats  # step of the last point
    evaluations: Floats  # estimated number of evaluations so far (`thinning.estimated_evaluations`)
    seconds: Floats  # GPU-seconds
    last_report: Floats  # time of the last report, or of its creation, on the snapshot's clock
    switch_seconds: Floats  # measured, of one suspension and resumption of the trial; NaN: not measured
    done: NDArray[np.bool_]  # in a final phase
    complete: NDArray[np.bool_]  # succeeded, so trained to its end
    running: NDArray[np.bool_]
    version: NDArray[np.intp]  # increases whenever the curve or `complete` changes
    # by point, one after the other: first, best and worst value up to it, and the best one at a positive step
    _extremes: list[array[float] | None]

    def __init__(self, maximize: bool) -> None:
        super().__init__(0, _EMPTY)
        self.sign = 1.0 if maximize else -1.0
        self._trials: Sequence[TrialView] = ()
        self._all_trials: Sequence[TrialView] = ()
        self.numbers: list[int] = []  # replaced as a whole, never changed in place; so is `keys`
        self._row_of_ranked: dict[int, int] = {}  # by index among the trials to rank
        self._row_of_unranked: dict[int, int] = {}  # by index in `_all_trials`, for the job's other trials
        self.keys: list[TrialKey] = []
        self.rows: dict[TrialKey, int] = {}  # row of each key
        self.ranked_rows: NDArray[np.intp] = np.arange(0)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def started(self) -> NDArray[np.bool_]:
        """Whether each trial has ever held a GPU."""
        started: NDArray[np.bool_] = (self.points > 0) | (self.seconds > 0.0)
        return started

    @property
    def diverged(self) -> NDArray[np.bool_]:
        """Whether each trial's latest value is not a finite number."""
        mask: NDArray[np.bool_] = (self.points > 0) & (self.last == -np.inf)
        return mask

    def per_curve(self, key: Hashable, width: int, compute: Callable[[Sequence[Point]], ArrayLike]) -> Floats:
        """Return an array (rows, width) with `compute(curve)` in each row.

        Only rows of changed curves are computed again. Do not write into the array; it changes with the next cycle.
        """
        kept = self.cached(key, lambda: _PerCurve(len(self), width))
        for row in kept.stale_rows(self.version).tolist():
            kept.values[row] = np.asarray(compute(self.curves[row] or ()), dtype=np.float64)
        return kept.values

    def trained_best(self, row: int, points: int) -> float:
        """Return the best value among the first `points` points of the curve.

        Only points with a positive step count; -inf if there are none.
        """
        extremes = self._extremes[row]
        return extremes[_WIDTH * points - 1] if extremes and points else -np.inf

    def update(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> None:
        # With a single job, nearly all trials belong to it. A replay asks once per snapshot, so grouping would not pay.
        all_trials = snapshot.trials if len(snapshot.jobs) == 1 else snapshot.trials_by_job.get(job.key, ())
        changed = _changed_indexes(trials, self._trials)
        same_trials = all_trials is trials and self._all_trials is self._trials
        changed_unranked = changed if same_trials else _changed_indexes(all_trials, self._all_trials)
        if changed is None or changed_unranked is None:
            self._arrange(job, trials, all_trials)
            changed, changed_unranked = range(len(trials)), range(len(all_trials))
        self._trials, self._all_trials = tuple(trials), tuple(all_trials)
        for index in changed:
            self._update_row(self._row_of_ranked[index], trials[index])
        for index in changed_unranked:
            if (row := self._row_of_unranked.get(index)) is not None:
                self._update_row(row, all_trials[index])

    def _arrange(self, job: JobView, trials: Sequence[TrialView], all_trials: Sequence[TrialView]) -> None:
        """Assign a row to each of the job's trials: those to rank and all others in the snapshot."""
        ranked = {t.key for t in trials}
        sources = [(t.number, t.key, True, i) for i, t in enumerate(trials)]
        sources += [
            (t.number, t.key, False, i)
            for i, t in enumerate(all_trials)
            if (t.job is job.key or t.job == job.key) and t.key not in ranked
        ]
        sources.sort(key=lambda s: s[:2])
        keys = [key for _, key, _, _ in sources]
        if keys != self.keys:
            self.reorder([self.rows.get(key, -1) for key in keys])
            self.keys = list(keys)
            self.rows = {key: row for row, key in enumerate(keys)}
        self.numbers = [number for number, _, _, _ in sources]
        self._row_of_ranked = {index: row for row, (_, _, is_ranked, index) in enumerate(sources) if is_ranked}
        self._row_of_unranked = {index: row for row, (_, _, is_ranked, index) in enumerate(sources) if not is_ranked}
        self.ranked_rows = np.flatnonzero([is_ranked for _, _, is_ranked, _ in sources])

    def _update_row(self, row: int, view: TrialView) -> None:
        if view is self.views[row]:
            return
        self.views[row] = view
        created, usage = view.origin.created, view.usage
        self.seconds[row] = usage.gpu_seconds
        self.last_report[row] = max(created, view.curve[-1].time) if view.curve else created
        self.switch_seconds[row] = np.nan if usage.switch_seconds is None else usage.switch_seconds
        phase = view.phase
        self.running[row] = phase is TrialPhase.RUNNING
        self.done[row] = phase in FINAL
        complete = phase is TrialPhase.SUCCEEDED
        if complete != self.complete[row]:
            self.complete[row] = complete
            self.version[row] += 1
        curve, old = view.curve, self.curves[row] or ()
        if curve is not old:
            kept = common_prefix(old, curve)
            if kept < max(len(old), len(curve)):
                self._read(row, curve, kept)
            if isinstance(curve, tuple):
                # A curve that was read again holds new point objects. Reuse the old ones: identical objects compare
                # much faster.
                curve = (*old[:kept], *curve[kept:])
        self.curves[row] = curve

    def _read(self, row: int, curve: Sequence[Point], kept: int) -> None:
        """Read a changed curve; its first `kept` points are unchanged."""
        until = self._extremes[row]
        if until is None:
            until = self._extremes[row] = array("d")
        del until[_WIDTH * kept :]
        first, best, worst, trained = until[-_WIDTH:] if until else _NOTHING
        for point in curve[kept:]:
            if not diverged(point.value):
                value = self.sign * point.value
                if first == -math.inf:
                    first = value
                if value > best:
                    best = value
                if value < worst:
                    worst = value
                if value > trained and point.step > 0.0:
                    trained = value
            until.extend((first, best, worst, trained))
        self.first[row], self.best[row], self.worst[row] = first, best, worst
        last = curve[-1] if curve else None
        self.last[row] = -np.inf if last is None or diverged(last.value) else self.sign * last.value
        self.step[row] = 0.0 if last is None else last.step
        self.points[row] = len(curve)
        self.evaluations[row] = estimated_evaluations(curve)
        self.version[row] += 1


def _changed_indexes(now: Sequence[TrialView], before: Sequence[TrialView]) -> Sequence[int] | None:
    """Return the indexes whose view object changed; None where the trials themselves differ."""
    if len(now) != len(before):
        return None
    changed = list(compress(range(len(now)), map(is_not, now, before)))
    return changed if all(now[index].key == before[index].key for index in changed) else None


def curves_of_job(job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> CurveTable:
    """Return the curve table of this job, brought up to date.

    The table is shared with later callers: copy what must not change.
    """
    key = (job.key, job.uid, job.maximize)
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = CurveTable(job.maximize)
        # With fewer tables than planned jobs, each would be built again in every cycle.
        if len(_tables) > max(_MAX_TABLES, 2 * len(snapshot.jobs)):
            _tables.popitem(last=False)
    _tables.move_to_end(key)
    table.update(job, trials, snapshot)
    return table


@contextmanager
def empty_cache() -> Iterator[None]:
    """Run the block with an empty cache, as in a new process; then restore it.

    For tests that a restart changes no plan.
    """
    kept = _tables.copy()
    _tables.clear()
    try:
        yield
    finally:
        _tables.clear()
        _tables.update(kept)

"""What all trials of one job have shown, as arrays: one row a trial, larger is better. Kept from cycle to cycle.

Called by the policies. A board is a memory of what was computed, never of what happened: it holds exactly what a new
one would hold for the same snapshot (a property test), so that a restart changes no plan. A cycle costs a comparison a
trial; of a curve that has grown a comparison a point, and work only for those that are new. Thinning drops points: then
for all from the first that is gone, which is the last but one, mostly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from operator import is_not
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from podium_core.curves.non_finite import diverged
from podium_core.curves.thinning import evaluations, same_until
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import JobKey, JobView, Point, Snapshot, TrialKey, TrialView

Floats = NDArray[np.float64]
T = TypeVar("T")
EMPTY = {  # what a row holds before anything is known of its trial
    **dict.fromkeys(("first", "best", "last"), -np.inf),
    **dict.fromkeys(("points", "step", "seconds", "heard", "done", "complete", "running", "version"), 0),
    **dict.fromkeys(("worst", "evaluations"), np.inf),
    "switch": np.nan,
}
_Extremes = tuple[float, float, float]
_NOTHING: _Extremes = (-np.inf, -np.inf, np.inf)
_MOST_JOBS = 64  # that are kept, or twice as many as there are
_MOST_KEPT = 32
_boards: OrderedDict[tuple[JobKey, str, bool], Board] = OrderedDict()


@runtime_checkable
class Movable(Protocol):
    """What a board keeps for somebody and need not make anew when trials come or go."""

    def move(self, source: Sequence[int]) -> None:
        """`source`: for each row from now on the row that it had, -1 for a new one."""
        ...


def moved(rows: NDArray[Any], source: Sequence[int], empty: float) -> NDArray[Any]:
    """A copy of the array with its rows where they are from now on, and `empty` in the new ones."""
    found = np.full((len(source), *rows.shape[1:]), empty, dtype=rows.dtype)
    origin = np.array(source, dtype=np.intp)
    found[origin >= 0] = rows[origin[origin >= 0]]
    return found


class _Derived:
    """What `Board.derive` keeps: the table, and the version of the curve that each row was computed from."""

    def __init__(self, rows: int, width: int) -> None:
        self.table = np.zeros((rows, width))
        self.seen = np.full(rows, -1)

    def move(self, source: Sequence[int]) -> None:
        self.table, self.seen = moved(self.table, source, 0.0), moved(self.seen, source, -1)


class Board:
    """Rows are sorted by number, then key. `value` fields are -inf where nothing finite was reported."""

    def __init__(self, maximize: bool) -> None:
        self.sign = 1.0 if maximize else -1.0
        self._given: Sequence[TrialView] = ()
        self._everything: Sequence[TrialView] = ()
        self.numbers: list[int] = []  # replaced, never changed, like `keys`
        self._row_of_given: dict[int, int] = {}  # by place among the trials that are to be ranked
        self._row_beside: dict[int, int] = {}  # by place in `_everything`, of those of the job that are not
        self.keys: list[TrialKey] = []
        self.rows: dict[TrialKey, int] = {}  # where each key is
        self.views: list[TrialView | None] = []
        self.curves: list[tuple[Point, ...] | None] = []
        self.given: NDArray[np.intp] = np.arange(0)
        self.points = np.zeros(0, dtype=np.intp)  # reported values, finite or not
        self.first = np.zeros(0)  # the first finite value
        self.best = np.zeros(0)
        self.worst = np.zeros(0)  # of the finite values
        self.last = np.zeros(0)
        self.step = np.zeros(0)  # of the last point
        self.evaluations = np.zeros(0)  # as how many its training counts (`thinning.evaluations`)
        self.seconds = np.zeros(0)  # GPU seconds
        self.heard = np.zeros(0)  # when it was created or has last reported, on the snapshot's clock
        self.switch = np.zeros(0)  # measured seconds of its own suspension and resumption; NaN: not measured yet
        self.done = np.zeros(0, dtype=bool)  # in a final phase
        self.complete = np.zeros(0, dtype=bool)  # succeeded: trained to its end
        self.running = np.zeros(0, dtype=bool)
        self.version = np.zeros(0, dtype=np.intp)  # changes whenever the curve does
        self._until: list[list[_Extremes]] = []  # by row and point: first, best and worst value up to there
        self._kept: dict[Hashable, Any] = {}

    def _resize(self, keys: Sequence[TrialKey]) -> None:
        """Rows of trials that were there before move with all that is known of them; new rows are empty."""
        source = [self.rows.get(key, -1) for key in keys]
        self.keys = list(keys)
        self.rows = {key: row for row, key in enumerate(keys)}
        self.views = [None if row < 0 else self.views[row] for row in source]
        self.curves = [None if row < 0 else self.curves[row] for row in source]
        self._until = [[] if row < 0 else self._until[row] for row in source]
        self.given = np.arange(len(keys))
        for name, empty in EMPTY.items():
            setattr(self, name, moved(getattr(self, name), source, empty))
        self._kept = {key: kept for key, kept in self._kept.items() if isinstance(kept, Movable)}
        for kept in self._kept.values():
            kept.move(source)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def opened(self) -> NDArray[np.bool_]:
        """Whether a trial has ever had a GPU."""
        opened: NDArray[np.bool_] = (self.points > 0) | (self.seconds > 0.0)
        return opened

    @property
    def diverged(self) -> NDArray[np.bool_]:
        """The latest value is not a finite number."""
        found: NDArray[np.bool_] = (self.points > 0) & (self.last == -np.inf)
        return found

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """An object of the caller's that lives as long as these rows do, or moves with them (`Movable`); made when
        there is none.
        """
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:  # a horizon that changes with every cycle must not fill the memory
                self._kept.clear()
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def derive(self, key: Hashable, width: int, compute: Callable[[tuple[Point, ...]], ArrayLike]) -> Floats:
        """An array (rows, width) with `compute(curve)` in each row; computed anew only for curves that changed. The
        caller must not write into it; it changes at the next cycle.
        """
        kept = self.keep(key, lambda: _Derived(len(self), width))
        for row in (kept.seen != self.version).nonzero()[0].tolist():
            kept.table[row] = np.asarray(compute(self.curves[row] or ()), dtype=np.float64)
        kept.seen[:] = self.version
        return kept.table

    def update(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> None:
        # of one job alone nearly all trials are its own: a replay asks for each of its many snapshots once
        everything = snapshot.trials if len(snapshot.jobs) == 1 else snapshot.trials_by_job.get(job.key, ())
        given = _others(trials, self._given)
        alone = everything is trials and self._everything is self._given
        beside = given if alone else _others(everything, self._everything)
        if given is None or beside is None:
            self._arrange(job, trials, everything)
            given, beside = range(len(trials)), range(len(everything))
        self._given, self._everything = tuple(trials), tuple(everything)
        for index in given:
            self._see(self._row_of_given[index], trials[index])
        for index in beside:
            if (row := self._row_beside.get(index)) is not None:
                self._see(row, everything[index])

    def _arrange(self, job: JobView, trials: Sequence[TrialView], everything: Sequence[TrialView]) -> None:
        """Which row each trial of the job has: those to be ranked and, from the snapshot, all others of the job."""
        given = {t.key for t in trials}
        sources = [(t.number, t.key, True, i) for i, t in enumerate(trials)]
        sources += [
            (t.number, t.key, False, i)
            for i, t in enumerate(everything)
            if (t.job is job.key or t.job == job.key) and t.key not in given
        ]
        sources.sort(key=lambda s: s[:2])
        keys = [key for _, key, _, _ in sources]
        if keys != self.keys:
            self._resize(keys)
        self.numbers = [number for number, _, _, _ in sources]
        self._row_of_given = {index: row for row, (_, _, of_given, index) in enumerate(sources) if of_given}
        self._row_beside = {index: row for row, (_, _, of_given, index) in enumerate(sources) if not of_given}
        self.given = np.flatnonzero([of_given for _, _, of_given, _ in sources])

    def _see(self, row: int, view: TrialView) -> None:
        if view is self.views[row]:
            return
        self.views[row] = view
        self.seconds[row] = view.gpu_seconds
        self.heard[row] = max(view.created, view.curve[-1].time) if view.curve else view.created
        self.switch[row] = np.nan if view.switch_seconds is None else view.switch_seconds
        phase = view.phase
        self.running[row] = phase is TrialPhase.RUNNING
        self.done[row] = phase in FINAL
        self.complete[row] = phase is TrialPhase.SUCCEEDED
        curve, old = view.curve, self.curves[row] or ()
        if curve is not old:
            kept = same_until(old, curve)
            if kept < max(len(old), len(curve)):
                self._read(row, curve, kept)
            # a status that was read again has points of its own: the old ones are told from others much faster
            curve = (*old[:kept], *curve[kept:])
        self.curves[row] = curve

    def _read(self, row: int, curve: tuple[Point, ...], kept: int) -> None:
        """`kept`: points of its beginning that were read before."""
        until = self._until[row]
        del until[kept:]
        now = until[-1] if until else _NOTHING
        for point in curve[kept:]:
            if not diverged(point.value):
                value, (first, best, worst) = self.sign * point.value, now
                if not worst <= value <= best:  # of the first value both are false
                    now = value if first == -np.inf else first, max(best, value), min(worst, value)
            until.append(now)
        self.first[row], self.best[row], self.worst[row] = now
        last = curve[-1] if curve else None
        self.last[row] = -np.inf if last is None or diverged(last.value) else self.sign * last.value
        self.step[row] = 0.0 if last is None else last.step
        self.points[row] = len(curve)
        self.evaluations[row] = evaluations(curve)
        self.version[row] += 1


def _others(now: Sequence[TrialView], before: Sequence[TrialView]) -> Sequence[int] | None:
    """The places whose view is not the one from before; None where the trials themselves are others."""
    if len(now) != len(before):
        return None
    found = list(compress(range(len(now)), map(is_not, now, before)))
    return found if all(now[place].key == before[place].key for place in found) else None


def board(job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Board:
    """The board of this job, brought up to date. It belongs to the next caller as well: copy what must stay."""
    key = (job.key, job.uid, job.maximize)
    found = _boards.get(key)
    if found is None:
        found = _boards[key] = Board(job.maximize)
        # with fewer than are planned for, each would be made anew in each cycle
        if len(_boards) > max(_MOST_JOBS, 2 * len(snapshot.jobs)):
            _boards.popitem(last=False)
    _boards.move_to_end(key)
    found.update(job, trials, snapshot)
    return found


@contextmanager
def forgotten() -> Iterator[None]:
    """Inside, no job is remembered, as in a process that has only just begun; afterwards all are as before. For tests
    of what a restart changes: nothing.
    """
    kept = _boards.copy()
    _boards.clear()
    try:
        yield
    finally:
        _boards.clear()
        _boards.update(kept)

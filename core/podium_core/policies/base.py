"""What a ranking policy is. The planner calls it once a cycle for each job; the simulator and `podium plan` call
the same.

A policy orders the trials of one job. It does not know GPUs: the planner restricts its order to the trials that
share one, and decides with `turn` (minimum run), `hysteresis` and the measured costs whether a better rank is worth
a hand-over. A policy that cuts says so by each trial's `admission`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialKey, TrialView

OVERDUE = -1  # the level of a trial to which a floor that its policy promises is due; no other level is below 0
OnCut = str  # "suspend" | "stop": what becomes of a trial that a policy gives up


class Admission(StrEnum):
    """What a policy wants of a trial beyond its rank. When no trial of a job is GO any more, its plan is over."""

    GO = "Go"  # may have a GPU
    WAIT = "Wait"  # keeps its progress and takes no GPU now, not even an idle one (paused at a rung, given up for now)
    STOP = "Stop"  # to be ended early: it will not be wanted again


Say = Callable[[int], tuple[str, str]]  # row of the board -> reason, message


class Ranked(NamedTuple):
    """One trial's rank. A lower `level` beats a higher one whatever the scores; within a level the score's
    difference is the gain. A tuple, not a dataclass, and its sentence is made when it is read: a cycle makes one for
    each trial and reads few.
    """

    trial: TrialKey
    rank: int  # 1 = first
    score: float
    level: int
    admission: Admission
    of: int  # how many were ranked
    row: int
    say: Say

    @property
    def reason(self) -> str:
        return self.say(self.row)[0]

    @property
    def message(self) -> str:
        return f"Rank {self.rank} of {self.of}: {self.say(self.row)[1]}"

    def __eq__(self, other: object) -> bool:
        """By what it says, not by who says it."""
        return isinstance(other, Ranked) and self[:6] == other[:6] and self.say(self.row) == other.say(other.row)

    def __hash__(self) -> int:
        return hash(self[:6])

    def __repr__(self) -> str:
        facts = f"{self.trial!r}, {self.rank}, {self.score!r}, {self.level}, {self.admission!r}"
        return f"Ranked({facts}, {self.reason!r}, {self.message!r})"


# as `Ranked(*facts)` is, without a call of Python code for each
_ranked: partial[Ranked] = partial(tuple.__new__, Ranked)


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def needs_max_steps(self) -> bool: ...

    @property
    def cuts(self) -> bool:
        """Whether it gives trials up: the `admission` of some is not GO."""
        ...

    @property
    def hysteresis(self) -> float:
        """What a rival's score must be ahead, on top of the cost of the hand-over."""
        ...

    def turn(self, costs: Costs) -> float:
        """Seconds that a trial keeps its GPU before rivals are looked at."""
        ...

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Sequence[Ranked]:
        """Each of `trials` once, best first; the same for the same facts, whatever the order of its arguments."""
        ...


class Ranking(Sequence[Ranked]):
    """The answer of `rank`, made of arrays: an entry and its sentence are built when somebody reads them.

    A cycle that ranks 1,000 trials reads few of their messages; this is what keeps it under a microsecond a trial.
    """

    __slots__ = ("_board_keys", "_levels", "_order", "_say", "_scores", "_stop", "_wait")

    def __init__(
        self,
        board: Board,
        scores: NDArray[np.float64],
        levels: NDArray[np.intp] | int,
        say: Say,
        wait: NDArray[np.bool_] | None = None,
        stop: NDArray[np.bool_] | None = None,
    ) -> None:
        """All arrays by row of the board; `wait` and `stop` mark the trials that are not to GO. In the order of level,
        then score, then row (number, name): no tie is left to chance. `say` must read nothing that changes later (a
        board does).
        """
        rows = board.given
        self._board_keys = board.keys
        self._scores = scores
        self._levels = np.full(len(board), levels) if isinstance(levels, int) else levels
        self._order = rows[np.lexsort((-scores[rows], self._levels[rows]))]
        self._say = say
        self._wait = wait
        self._stop = stop

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Ranked: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Ranked]: ...
    def __getitem__(self, index: int | slice) -> Ranked | Sequence[Ranked]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = index + len(self) if index < 0 else index
        row = int(self._order[place])
        score, level = float(self._scores[row]), int(self._levels[row])
        return Ranked(self._board_keys[row], place + 1, score, level, self._admission(row), len(self), row, self._say)

    def __iter__(self) -> Iterator[Ranked]:
        """All at once, which costs a fraction of one by one."""
        order, of = self._order, len(self)
        rows = order.tolist()
        facts = zip(
            map(self._board_keys.__getitem__, rows),
            range(1, of + 1),
            self._scores[order].tolist(),
            self._levels[order].tolist(),
            self._admissions(order),
            repeat(of),
            rows,
            repeat(self._say),
        )
        return map(_ranked, facts)

    def _admissions(self, rows: NDArray[np.intp]) -> Iterable[Admission]:
        if self._stop is None and self._wait is None:
            return repeat(Admission.GO)
        found = [Admission.GO] * len(rows)
        for marked, admission in ((self._wait, Admission.WAIT), (self._stop, Admission.STOP)):
            if marked is not None:
                for place in np.flatnonzero(marked[rows]).tolist():
                    found[place] = admission
        return found

    def _admission(self, row: int) -> Admission:
        if self._stop is not None and self._stop[row]:
            return Admission.STOP
        return Admission.WAIT if self._wait is not None and self._wait[row] else Admission.GO

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranking({list(self)!r})"


def shortest_turn(costs: Costs, least: float) -> float:
    """No turn is so short that hand-overs take more than a tenth of it."""
    return max(least, 10.0 * (costs.suspend + costs.resume))

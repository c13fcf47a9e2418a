"""Interface of a ranking policy.

The planner, the simulator and `podium plan` call a policy once per cycle and job.

A policy orders the trials of one job and knows no GPUs. The planner restricts the order to the trials that share a GPU.
It then uses `time_slice`, `hysteresis` and the measured costs to decide whether a better rank is worth a switch. A
policy that gives trials up reports it in each trial's `admission`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.domain.keys import TrialKey
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView

STARVED = -1  # level of a trial that the starvation guard serves; every other level is 0 or more
OnCut = str  # "suspend" | "stop": what happens to a trial that a policy gives up


class Admission(StrEnum):
    """Decision of a policy about a trial beyond its rank. Without any GO trial, the job's plan is over."""

    GO = "Go"  # may have a GPU
    # keeps its progress and takes no GPU now, not even an idle one (paused at a rung, or given up for now)
    WAIT = "Wait"
    STOP = "Stop"  # to be ended early; it will not be wanted again


Explain = Callable[[int], tuple[str, str]]  # row of the curve table -> reason, message


class Ranked(NamedTuple):
    """Rank of one trial.

    A lower `level` beats a higher one whatever the scores. Within a level, the difference of the scores is the gain. It
    is a tuple and builds its message on access, because a cycle makes one for each trial and reads few.
    """

    trial: TrialKey
    rank: int  # 1 = first
    score: float
    level: int
    admission: Admission
    total: int  # number of ranked trials
    row: int
    explain: Explain

    @property
    def reason(self) -> str:
        return self.explain(self.row)[0]

    @property
    def message(self) -> str:
        return f"Rank {self.rank} of {self.total}: {self.explain(self.row)[1]}"

    def __eq__(self, other: object) -> bool:
        """Compare the explanation's text, not the function that makes it."""
        return (
            isinstance(other, Ranked) and self[:6] == other[:6] and self.explain(self.row) == other.explain(other.row)
        )

    def __hash__(self) -> int:
        return hash(self[:6])

    def __repr__(self) -> str:
        facts = f"{self.trial!r}, {self.rank}, {self.score!r}, {self.level}, {self.admission!r}"
        return f"Ranked({facts}, {self.reason!r}, {self.message!r})"


# as `Ranked(*facts)`, without a Python call for each
_ranked: partial[Ranked] = partial(tuple.__new__, Ranked)


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def needs_max_steps(self) -> bool: ...

    @property
    def cuts(self) -> bool:
        """Whether the policy gives trials up: the `admission` of some is not GO."""
        ...

    @property
    def hysteresis(self) -> float:
        """Lead that a rival's score needs, on top of the cost of the switch."""
        ...

    def time_slice(self, costs: Costs) -> float:
        """Return the seconds that a trial keeps its GPU before rivals are considered."""
        ...

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Sequence[Ranked]:
        """Return each of `trials` once, best first; the order of the arguments does not matter."""
        ...


class Ranking(Sequence[Ranked]):
    """Result of `rank`, made from arrays; entries and their messages are built on access.

    A cycle that ranks 1,000 trials reads few of their messages. This keeps the cost under a microsecond per trial.
    """

    __slots__ = ("_explain", "_keys", "_levels", "_order", "_scores", "_stop", "_wait")

    def __init__(
        self,
        curves: CurveTable,
        scores: NDArray[np.float64],
        levels: NDArray[np.intp] | int,
        explain: Explain,
        wait: NDArray[np.bool_] | None = None,
        stop: NDArray[np.bool_] | None = None,
    ) -> None:
        """Sort by level, then score, then row (number, name), so that no tie is left to chance.

        All arrays are by row of the curve table. `wait` and `stop` mark the trials that are not to GO. `explain` must
        not read anything that changes later, such as the curve table.
        """
        rows = curves.ranked_rows
        self._keys = curves.keys
        self._scores = scores
        self._levels = np.full(len(curves), levels) if isinstance(levels, int) else levels
        self._order = rows[np.lexsort((-scores[rows], self._levels[rows]))]
        self._explain = explain
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
        index = index + len(self) if index < 0 else index
        row = int(self._order[index])
        score, level = float(self._scores[row]), int(self._levels[row])
        return Ranked(self._keys[row], index + 1, score, level, self._admission(row), len(self), row, self._explain)

    def __iter__(self) -> Iterator[Ranked]:
        """Return all entries at once, which is much cheaper than one by one."""
        order, total = self._order, len(self)
        rows = order.tolist()
        facts = zip(
            map(self._keys.__getitem__, rows),
            range(1, total + 1),
            self._scores[order].tolist(),
            self._levels[order].tolist(),
            self._admissions(order),
            repeat(total),
            rows,
            repeat(self._explain),
        )
        return map(_ranked, facts)

    def _admissions(self, rows: NDArray[np.intp]) -> Iterable[Admission]:
        if self._stop is None and self._wait is None:
            return repeat(Admission.GO)
        result = [Admission.GO] * len(rows)
        for marked, admission in ((self._wait, Admission.WAIT), (self._stop, Admission.STOP)):
            if marked is not None:
                for index in np.flatnonzero(marked[rows]).tolist():
                    result[index] = admission
        return result

    def _admission(self, row: int) -> Admission:
        if self._stop is not None and self._stop[row]:
            return Admission.STOP
        return Admission.WAIT if self._wait is not None and self._wait[row] else Admission.GO

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranking({list(self)!r})"


def limit_switch_share(costs: Costs, least: float) -> float:
    """Return at least `least` seconds, and enough that switches take at most a tenth of a time slice."""
    return max(least, 10.0 * (costs.suspend + costs.resume))

"""The median rule: in order, and a trial ends when its best is worse than the median of the others' running means at
the same training. Golovin et al., Google Vizier, KDD 2017, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Board, board
from podium.curves.wire import diverged
from podium.domain.snapshot import Costs, JobView, Point, Snapshot, TrialView
from podium.policies.base import OnCut, Ranking, shortest_turn
from podium.policies.horizon import horizon


@dataclass(frozen=True, slots=True)
class MedianStop:
    """`grace`: share of a whole trial that nobody is judged in; `peers`: so many others must have come as far."""

    grace: float = 0.1
    peers: int = 4
    on_cut: OnCut = "stop"

    name: ClassVar[str] = "median_stop"
    needs_max_steps: ClassVar[bool] = True
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.grace <= 1.0:
            raise ValueError(f"grace: {self.grace:g} is no share of a trial; give 0 to 1")
        if self.peers < 1:
            raise ValueError(f"peers: {self.peers} trials have no median; give 1 or more")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(n log n) for each step at which an unfinished trial stands: few of them, since it works in order."""
        seen = board(job, trials, snapshot)
        medians = self._medians(seen, self.grace * horizon(job, seen))
        cut = seen.best < medians
        numbers, best, sign = seen.numbers, seen.best.copy(), seen.sign
        stopped = cut if self.on_cut == "stop" else None

        def say(row: int) -> tuple[str, str]:
            if cut[row]:
                text = f"its best value, {sign * best[row]:.4g}, is worse than {sign * medians[row]:.4g}, the median"
                return "BelowMedian", f"{text} of the others' running means at the same training."
            return "InOrder", f"trial {numbers[row]} in order of creation."

        return Ranking(seen, np.zeros(len(seen)), np.where(cut, 1, 0), say, cut, stopped)

    def _medians(self, seen: Board, grace: float) -> NDArray[np.float64]:
        """By row: the median that an unfinished trial is held against; -inf where there is none."""
        medians = np.full(len(seen), -np.inf)
        width = 16
        while width < seen.points.max(initial=0):
            width *= 2

        def read(curve: tuple[Point, ...]) -> NDArray[np.float64]:
            """Steps and running means, padded with infinity and the last mean."""
            row = np.full(2 * width, np.inf)
            row[: len(curve)] = [point.step for point in curve]
            values = [-np.inf if diverged(p.value) else seen.sign * p.value / width for p in curve]
            row[width : width + len(curve)] = np.cumsum(values) / np.arange(1, len(curve) + 1) * width
            return row

        table = seen.derive(("running means", width), 2 * width, read)
        judged = seen.given[(seen.points[seen.given] > 0) & (seen.step[seen.given] >= grace)]
        for step in np.unique(seen.step[judged]).tolist():  # who stands at one step is held against the same trials
            shown = np.count_nonzero(table[:, :width] <= step, axis=1)
            rows = np.flatnonzero((seen.step >= step) & (shown > 0))
            if len(rows) > self.peers:
                mine = judged[seen.step[judged] == step]
                means = table[rows, width + shown[rows] - 1]
                medians[mine] = medians_without(means, np.searchsorted(rows, mine))
        return medians


def medians_without(values: NDArray[np.float64], left_out: NDArray[np.intp]) -> NDArray[np.float64]:
    """For each index in `left_out` the median of all the other values, of which there is one at least. O(n log n)."""
    order = np.argsort(values, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ordered, own, rest = values[order], place[left_out], len(values) - 1
    low, high = (rest - 1) // 2, rest // 2
    # a place behind the one left out has moved up by one; halved first, since the sum of two huge values overflows
    found: NDArray[np.float64] = ordered[low + (low >= own)] / 2 + ordered[high + (high >= own)] / 2
    return found

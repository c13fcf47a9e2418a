"""Hyperband: brackets of successive halving that start at different rungs, from "look at many" to "train all".

Li et al., JMLR 18 (2018). `mode: sync` promotes when a whole bracket has come to a rung; `async` applies asha's rule in
each bracket, with `onCut: stop` the one without promotion. Trials are dealt to brackets by number, so a bracket may be
far larger than the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from podium.curves.board import Board, board
from podium.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium.policies.base import Admission, OnCut, Ranking, shortest_turn
from podium.policies.horizon import horizon
from podium.policies.rungs import Halving, check_halving, climb, rung_steps, top


@dataclass(frozen=True, slots=True)
class Hyperband:
    """`eta`: one in so many is promoted; `rungs` below the end: there is one bracket more than rungs."""

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

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def brackets(self, trials: int) -> tuple[int, ...]:
        """How many trials each bracket has, the one with the lowest first rung first: in the paper's proportion
        eta^s / (s + 1), to a sum of `trials`.
        """
        shares = [self.eta**s / (s + 1) for s in range(self.rungs, -1, -1)]
        ends = [round(trials * sum(shares[: i + 1]) / sum(shares)) for i in range(len(shares))]
        return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """O(n log n) and the new points."""
        seen = board(job, trials, snapshot)
        found = climb(seen, rung_steps(horizon(job, seen), self.eta, self.rungs))
        sizes = self.brackets(max(job.max_trials, len(seen)))
        numbers = np.array(seen.numbers, dtype=np.intp)
        promoted, waiting = np.zeros(len(seen), dtype=bool), np.zeros(len(seen), dtype=bool)
        stop = self.on_cut == "stop"
        start = 0
        for first, size in enumerate(sizes):
            mine = (numbers >= start) & (numbers < start + size)
            start += size
            promoted |= mine & (found.rung >= 0) & (found.rung < first)  # its first rung is still to come
            expected = size
            for k in range(first, self.rungs):
                values = np.where(mine, found.value[:, k], np.nan)
                there = mine & (found.rung == k)
                if self.mode == "async":
                    promoted |= there & top(values, self.eta, least=1 if stop else 0)
                    continue
                expected = self._settle(seen, values, mine, there, expected, promoted, waiting)
        return Halving(found, promoted, waiting, self.rungs).ranking(seen, Admission.STOP if stop else Admission.WAIT)

    def _settle(
        self,
        seen: Board,
        values: NDArray[np.float64],
        mine: NDArray[np.bool_],
        there: NDArray[np.bool_],
        expected: int,
        promoted: NDArray[np.bool_],
        waiting: NDArray[np.bool_],
    ) -> int:
        """Promotes from one rung if all have come that will: the `expected` less those that ended before it."""
        came = int(np.count_nonzero(~np.isnan(values)))
        lost = int(np.count_nonzero(mine & seen.done & np.isnan(values)))
        if came + lost < expected:
            waiting |= there
            return expected
        if there.any():
            promoted |= there & top(values, self.eta, least=1)
        return max(1, int(came / self.eta))

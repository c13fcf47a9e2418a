"""Hyperband: brackets of successive halving that start at different rungs, from "look at many" to "train all".

Li et al., JMLR 18 (2018). `mode: sync` promotes when a whole bracket has come to a rung; `async` applies asha's rule in
each bracket, with `onCut: stop` the one without promotion. Who has trained beyond a rung stands on it all the same
unless that rule has let it past. Trials are dealt to brackets by number, so a bracket may be far larger than the number
of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, board
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.asynchronous_halving import asynchronous
from podium_core.policies.base import OnCut, Ranking, shortest_turn
from podium_core.policies.rungs import UNOPENED, Climb, Halving, check_halving, climb, ranked, rung_steps, stand, top
from podium_core.policies.trial_length import horizon


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
        steps, stop = rung_steps(horizon(job, seen), self.eta, self.rungs), self.on_cut == "stop"
        sizes = self.brackets(max(job.max_trials, len(seen)))
        bracket = np.minimum(np.searchsorted(np.cumsum(sizes), seen.numbers, side="right"), self.rungs)
        if self.mode == "async":
            halving = asynchronous(job, seen, steps, self.eta, stop, bracket)
        else:
            halving = self._synchronous(seen, climb(seen, steps, job.suspendable), sizes, bracket)
        return ranked(job, seen, halving, stop)

    def _synchronous(self, seen: Board, climbed: Climb, sizes: Sequence[int], bracket: NDArray[np.intp]) -> Halving:
        """The best part of a rung is let past it once all of the bracket have come that will: those that were let past
        the rung before, but for who has ended on the way. Whoever else has a value there was not let, and is not
        counted.
        """
        let = np.zeros(climbed.value.shape, dtype=bool, order="F")
        waits = np.full(len(seen), UNOPENED)  # by row, the rung on which its bracket still waits for somebody
        for first, size in enumerate(sizes):
            mine = bracket == first
            let[mine, :first] = True  # its first rung is still to come
            able, expected = mine, size
            for k in range(first, self.rungs):
                came = able & ~np.isnan(climbed.value[:, k])
                if np.count_nonzero(came | (able & seen.done)) < expected:
                    waits[mine] = k
                    break
                able = top(np.where(came, climbed.value[:, k], np.nan), self.eta, least=1) | (
                    came & climbed.passed[:, k]
                )
                let[able, k] = True
                expected = int(np.count_nonzero(able))
        found = stand(climbed, let)
        opened = found.rung != UNOPENED
        return Halving(found, opened & ~found.held, opened & (found.rung == waits), self.rungs)

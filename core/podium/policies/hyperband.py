"""Hyperband: brackets of successive halving that start at different rungs, from "look at many" to "train all".

Li et al., JMLR 18 (2018). `mode: sync` promotes when a whole bracket has come to a rung; `async` applies asha's rule in
each bracket, with `onCut: stop` the one without promotion. Who has trained beyond a rung stands on it all the same
unless that rule has let it past. Trials are dealt to brackets by number, so a bracket may be
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
from podium.policies.promotable import ever_promotable
from podium.policies.rungs import (
    UNOPENED,
    Climb,
    Halving,
    Rungs,
    check_halving,
    climb,
    finisher,
    rung_steps,
    stand,
    top,
)


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
        steps = rung_steps(horizon(job, seen), self.eta, self.rungs)
        sizes = self.brackets(max(job.max_trials, len(seen)))
        climbed, stop = climb(seen, steps), self.on_cut == "stop"
        brackets = _dealt(seen, sizes)
        if self.mode == "sync":
            let, open_rung = self._settled(seen, climbed, sizes, brackets)
            found = stand(climbed, let)
            waiting = (found.rung == open_rung) & (found.rung != UNOPENED)
            promoted = _at(let, found.rung)
        else:
            least = 1 if stop else 0
            let = ever_promotable(seen, climbed, steps, self.eta, least, sizes).copy()
            for first, mine in enumerate(brackets):
                let[mine, :first] = True  # its first rung is still to come
            found = stand(climbed, let)
            waiting = np.zeros(len(seen), dtype=bool)
            promoted = self._best_now(found, brackets, least)
            if not stop:
                promoted |= finisher(job, seen, found, promoted)
        return Halving(found, promoted, waiting, self.rungs).ranking(seen, Admission.STOP if stop else Admission.WAIT)

    def _best_now(self, found: Rungs, brackets: Sequence[NDArray[np.bool_]], least: int) -> NDArray[np.bool_]:
        """Who may leave the rung that it stands on, by asha's rule in its own bracket."""
        promoted = np.zeros(len(found.rung), dtype=bool)
        for first, mine in enumerate(brackets):
            promoted |= mine & (found.rung >= 0) & (found.rung < first)
            for k in range(first, self.rungs):
                there = mine & (found.rung == k)
                if there.any():
                    promoted |= there & top(np.where(mine, found.value[:, k], np.nan), self.eta, least)
        return promoted

    def _settled(
        self, seen: Board, found: Climb, sizes: Sequence[int], brackets: Sequence[NDArray[np.bool_]]
    ) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """By row and rung, who was let past it: the best part, once all have come that will; and by row the rung on
        which the bracket still waits for somebody, UNOPENED for none.

        To a rung come those that were let past the one before it, or have ended on the way. Whoever else has a value
        there was not let, and is not counted.
        """
        let = np.zeros(found.value.shape, dtype=bool)
        waits = np.full(len(seen), UNOPENED)
        for first, (size, mine) in enumerate(zip(sizes, brackets, strict=True)):
            let[mine, :first] = True  # its first rung is still to come
            able, expected = mine, size
            for k in range(first, self.rungs):
                came = able & ~np.isnan(found.value[:, k])
                if np.count_nonzero(came | (able & seen.done)) < expected:
                    waits[mine] = k
                    break
                able = top(np.where(came, found.value[:, k], np.nan), self.eta, least=1)
                let[able, k] = True
                expected = int(np.count_nonzero(able))
        return let, waits


def _dealt(seen: Board, sizes: Sequence[int]) -> list[NDArray[np.bool_]]:
    """By bracket the rows of its trials: dealt by number."""
    numbers = np.array(seen.numbers, dtype=np.intp)
    ends = np.cumsum(sizes)
    return [(numbers >= end - size) & (numbers < end) for end, size in zip(ends, sizes, strict=True)]


def _at(let: NDArray[np.bool_], rung: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Who was let past the rung that it is on."""
    found: NDArray[np.bool_] = let[np.arange(len(rung)), np.maximum(rung, 0)] & (rung != UNOPENED)
    return found

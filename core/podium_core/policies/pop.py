"""POP (HyperDrive): promising trials get GPUs of their own, the rest take turns on what is left, hopeless ones end.

Rasley et al., Middleware 2017. A trial's confidence p is the probability that it ends better than the best value so
far, here by an ensemble of power laws (`curves/powerlaw.py`; the paper uses Domhan's curves and MCMC). With the
confidences sorted, as many trials are promising as maximises min(j, G p_j): the more certain, the more GPUs. G counts
trials here: those of the job that can work at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, Floats, board
from podium_core.curves.power_law import MEMBERS, forecast
from podium_core.domain.snapshot import Costs, JobView, Point, Snapshot, TrialView
from podium_core.policies.base import OnCut, Ranking, shortest_turn
from podium_core.policies.starvation_guard import places
from podium_core.policies.trial_length import horizon

PROMISING, OPPORTUNISTIC, POOR = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Pop:
    """`early`: points that every trial may show before it is judged; `poor`: a confidence below ends it; `rounds`:
    turns in a whole trial of those that take turns.
    """

    early: int = 5
    poor: float = 0.05
    rounds: int = 20
    on_cut: OnCut = "stop"

    name: ClassVar[str] = "pop"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.early < 3:
            raise ValueError(f"warmup: {self.early} points make no curve; give 3 or more")
        if not 0.0 <= self.poor < 1.0:
            raise ValueError(f"poor: {self.poor:g} is no probability below 1; give 0 to 1")
        if self.rounds < 1:
            raise ValueError(f"rounds: {self.rounds} is no number of turns; give 1 or more")

    def turn(self, costs: Costs) -> float:
        return shortest_turn(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """One fit a new point; O(members) a trial when the best value of all has changed."""
        seen = board(job, trials, snapshot)
        budget = horizon(job, seen)
        known = (seen.points >= self.early) & ~seen.done
        confidence = np.where(known & ~seen.diverged, self._confidence(seen, budget), 0.0)
        cut = known & (confidence < self.poor)
        promising = self._promising(np.where(cut, 0.0, confidence), _at_a_time(seen, job, snapshot))
        # a whole turn less is a place more
        rounds = np.floor(seen.step / budget * self.rounds)
        levels = np.where(cut, POOR, np.where(promising, PROMISING, OPPORTUNISTIC))

        def say(row: int) -> tuple[str, str]:
            text = f"ends better than the best so far with probability {confidence[row]:.2f}"
            if cut[row]:
                return "Poor", f"{text}, less than {self.poor:g}."
            return ("Promising", f"{text}.") if promising[row] else ("RoundRobin", f"has had {rounds[row]:.0f} turns.")

        return Ranking(
            seen,
            np.where(levels == OPPORTUNISTIC, -rounds, confidence),
            levels,
            say,
            cut,
            cut if self.on_cut == "stop" else None,
        )

    def _confidence(self, seen: Board, budget: float) -> Floats:
        """P(final value > best of the pool), by row; a trial that leads still has to improve on itself or stay."""

        def read(curve: tuple[Point, ...]) -> Floats:
            found = forecast(curve, seen.sign, budget) if len(curve) >= self.early else None
            if found is None:
                return np.full(2 * MEMBERS + 1, np.nan)
            return np.concatenate([found.finals, found.weights, [found.noise]])

        table = seen.derive(("power laws", budget, self.early), 2 * MEMBERS + 1, read)
        memory = seen.keep(("confidence", budget, self.early), lambda: _Confidence(len(seen)))
        return memory.refresh(table, seen.version, float(seen.best.max(initial=-np.inf)))

    def _promising(self, confidence: Floats, held: float) -> np.ndarray:
        order = np.argsort(-confidence, kind="stable")
        j = np.arange(1, len(order) + 1)
        deserved = np.minimum(j, max(1.0, held) * confidence[order])
        chosen = np.zeros(len(order), dtype=bool)
        if len(order) and deserved.max() > 0.0:
            chosen[order[: int(np.argmax(deserved)) + 1]] = True
        return chosen


def _at_a_time(seen: Board, job: JobView, snapshot: Snapshot) -> float:
    """The places that the job has. Without GPUs no order is kept."""
    if not job.gpus_per_trial:
        return 1.0
    return places(job, snapshot, lambda key: (row := seen.rows.get(key)) is not None and not seen.done[row])[0]


class _Confidence:
    """What was computed for the last incumbent: only rows whose curve has changed since are computed anew."""

    def __init__(self, rows: int) -> None:
        self._incumbent = np.nan
        self._version = np.full(rows, -1)
        self._value = np.zeros(rows)

    def refresh(self, table: Floats, version: NDArray[np.intp], incumbent: float) -> Floats:
        """By row; `table`: final values, weights and noise of the members."""
        if incumbent != self._incumbent:
            self._version[:] = -1
            self._incumbent = incumbent
        rows = np.flatnonzero(self._version != version)
        finals, weights, noise = table[rows, :MEMBERS], table[rows, MEMBERS:-1], table[rows, -1:]
        with np.errstate(all="ignore"):
            z = (finals - incumbent) / np.maximum(noise, 1e-12 * np.abs(incumbent) + 1e-300)
            chance = normal_cdf(np.clip(np.nan_to_num(z), -40.0, 40.0))
            self._value[rows] = np.nan_to_num((chance * weights).sum(axis=1))
        self._version[:] = version
        return self._value.copy()


def normal_cdf(z: Floats) -> Floats:
    """Of the standard normal distribution, to 1e-7 (Abramowitz and Stegun, 26.2.17): numpy has no error function."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail: Floats = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * series
    return np.where(z > 0.0, 1.0 - tail, tail)

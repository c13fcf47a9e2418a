"""POP (HyperDrive): promising trials get their own GPUs, others share the rest, hopeless ones end.

Rasley et al., Middleware 2017. A trial's confidence p is the probability that it ends better than the best value so
far. Podium estimates it with an ensemble of power laws (`curves/prediction/power_law.py`), the paper with Domhan's
curves and MCMC. With the confidences sorted, the number of promising trials is the j that maximises min(j, G p_j): the
more certain, the more GPUs. G counts trials here: those of the job that can run at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.curves.prediction.power_law import MEMBERS, predict
from podium_core.curves.row_cache import RowCache
from podium_core.curves.statistics import Floats, normal_cdf
from podium_core.domain.snapshot import Costs, JobView, Point, Snapshot, TrialView
from podium_core.policies.base import OnCut, Ranking, limit_switch_share
from podium_core.policies.starvation_guard import concurrent_trials
from podium_core.policies.trial_length import horizon

PROMISING, OPPORTUNISTIC, POOR = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Pop:
    """POP policy.

    `warmup`: points that every trial may report before it is judged. `poor`: a trial with a lower confidence is given
    up. `rounds`: time slices in a whole trial for the opportunistic trials.
    """

    warmup: int = 5
    poor: float = 0.05
    rounds: int = 20
    on_cut: OnCut = "stop"

    name: ClassVar[str] = "pop"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    hysteresis: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.warmup < 3:
            raise ValueError(f"warmup: {self.warmup} points are too few for a curve; give 3 or more")
        if not 0.0 <= self.poor < 1.0:
            raise ValueError(f"poor: {self.poor:g} is not a probability below 1; give 0 to 1")
        if self.rounds < 1:
            raise ValueError(f"rounds: {self.rounds} is not a number of time slices; give 1 or more")

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, 2.0)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """Return the ranking.

        One fit per new point; O(members) a trial when the best value of all has changed.
        """
        curves = curves_of_job(job, trials, snapshot)
        budget = horizon(job, curves)
        judged = (curves.points >= self.warmup) & ~curves.done
        chance = np.where(judged & ~curves.diverged, self._confidence(curves, budget), 0.0)
        cut = judged & (chance < self.poor)
        promising = choose_promising(np.where(cut, 0.0, chance), _concurrent_trials(curves, job, snapshot))
        # A whole time slice less is a better rank.
        rounds = np.floor(curves.step / budget * self.rounds)
        levels = np.where(cut, POOR, np.where(promising, PROMISING, OPPORTUNISTIC))

        def explain(row: int) -> tuple[str, str]:
            text = f"ends better than the best so far with probability {chance[row]:.2f}"
            if cut[row]:
                return "Poor", f"{text}, less than {self.poor:g}."
            return (
                ("Promising", f"{text}.")
                if promising[row]
                else ("RoundRobin", f"has had {rounds[row]:.0f} time slices.")
            )

        return Ranking(
            curves,
            np.where(levels == OPPORTUNISTIC, -rounds, chance),
            levels,
            explain,
            cut,
            cut if self.on_cut == "stop" else None,
        )

    def _confidence(self, curves: CurveTable, budget: float) -> Floats:
        """Return the confidences by row. Only those of changed curves are computed, while the best value stays."""

        def read(curve: Sequence[Point]) -> Floats:
            prediction = predict(curve, curves.sign, budget) if len(curve) >= self.warmup else None
            if prediction is None:
                return np.full(2 * MEMBERS + 1, np.nan)
            return np.concatenate([prediction.finals, prediction.weights, [prediction.noise]])

        table = curves.per_curve(("power laws", budget, self.warmup), 2 * MEMBERS + 1, read)
        cache = curves.cached(("confidence", budget, self.warmup), lambda: _Confidence(len(curves)))
        pool_best = float(curves.best.max(initial=-np.inf))
        rows = cache.stale_rows(curves.version, basis=pool_best)
        cache.value[rows] = confidence(table[rows], pool_best)
        return cache.value.copy()


def confidence(predictions: Floats, pool_best: float) -> Floats:
    """Return P(final value > best of the pool) by row; the leading trial has to improve on itself.

    `predictions`: final values and weights of the members, and the noise; NaN without a prediction, which gives 0.
    """
    finals, weights, noise = predictions[:, :MEMBERS], predictions[:, MEMBERS:-1], predictions[:, -1:]
    with np.errstate(all="ignore"):
        z = (finals - pool_best) / np.maximum(noise, 1e-12 * np.abs(pool_best) + 1e-300)
        chance = normal_cdf(np.clip(np.nan_to_num(z), -40.0, 40.0))
        result: Floats = np.nan_to_num((chance * weights).sum(axis=1))
    return result


def choose_promising(probability: Floats, concurrent: float) -> NDArray[np.bool_]:
    """Return which trials get their own GPUs: the best j, for the j with the largest min(j, G p_j)."""
    order = np.argsort(-probability, kind="stable")
    j = np.arange(1, len(order) + 1)
    deserved = np.minimum(j, max(1.0, concurrent) * probability[order])
    chosen = np.zeros(len(order), dtype=bool)
    if len(order) and deserved.max() > 0.0:
        chosen[order[: int(np.argmax(deserved)) + 1]] = True
    return chosen


def _concurrent_trials(curves: CurveTable, job: JobView, snapshot: Snapshot) -> float:
    """Return how many of the job's trials can run at a time; without GPUs the order does not matter."""
    if not job.gpus.per_trial:
        return 1.0
    return concurrent_trials(job, snapshot, {key for key, row in curves.rows.items() if not curves.done[row]})[0]


class _Confidence(RowCache):
    value: Floats

    def __init__(self, rows: int) -> None:
        super().__init__(rows, {"value": 0.0})

"""Envelope policy: rank by the probability to end best, divided by the training that is still needed.

docs/explanation/envelope.md derives it. The formulas below have the order of that page and take plain arrays by trial:
  lags, lag_chances     the chance to end best, from the comparison at equal training
  index, option_value   the index of started and of unstarted trials
  trusted               trust in the early order, and similar curves
Other modules have the formulas of their own sections: `curves/alignment.py` (equal training), `less_trained.py`,
`curves/prediction/similar_configurations.py`, `curves/prediction/similar_curves.py` and `starvation_guard.py`.

The score is log(index). A trial in its warm-up goes first, and before it the one that the starvation guard serves. So
no live trial starves.

The members of a population (`search.algorithm: pbt`) go interval by interval: those of an earlier one go first. Good
members would otherwise be complete before bad ones are compared with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import AlignedCurves, align, order_persistence
from podium_core.curves.alignment import Standings
from podium_core.curves.curve_table import CurveTable, curves_of_job
from podium_core.curves.prediction.multiples import undecided
from podium_core.curves.prediction.similar_configurations import relative_value
from podium_core.curves.prediction.similar_curves_cache import Predictions, predict_by_similar_curves
from podium_core.curves.statistics import Floats, mean, median
from podium_core.domain.population import Population
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import STARVED, Ranking, limit_switch_share
from podium_core.policies.envelope_constants import CHOSEN, TINY, Constants
from podium_core.policies.envelope_texts import explanation, with_interval
from podium_core.policies.less_trained import lags_behind_less_trained
from podium_core.policies.starvation_guard import starved_rows
from podium_core.policies.trial_length import MIN_PACE, horizon, seconds_per_step, steps_between_values, trained_steps

WARM_UP, RANKED = 0, 1  # levels
MIN_TIME_SLICE = 2.0  # seconds
MAX_WARM_UP = 0.9  # share of a trial
MIN_TRUSTED = 3  # completed trials before early order is compared with final order
_MAX_LAG = 700.0  # units; exp(-700) is still above 0
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Envelope:
    """Envelope policy.

    `warmup`: share of a whole trial that every started trial receives before it is judged. `hysteresis_ratio`: a
    rival's index must be better by this ratio less 1. `min_share`: share of the job's GPU time that the starvation
    guard may use, 0 switches it off (`starvation_guard` states the bound of the wait).
    """

    warmup: float = 0.03
    hysteresis_ratio: float = 0.6
    min_share: float = 0.03
    constants: Constants = CHOSEN

    name: ClassVar[str] = "envelope"
    needs_max_steps: ClassVar[bool] = True
    cuts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.warmup <= 1.0:
            raise ValueError(f"warmup: {self.warmup:g} is not a share of a trial; give 0 to 1")
        if not 0.0 <= self.hysteresis_ratio <= 10.0:
            raise ValueError(f"hysteresis: {self.hysteresis_ratio:g} is not a ratio less 1; give 0 to 10")
        if not 0.0 <= self.min_share <= 0.5:
            raise ValueError(f"minShare: {self.min_share:g} is not a share that can be reserved; give 0 to 0.5")

    @property
    def hysteresis(self) -> float:
        """Lead that a rival's score needs; scores are logarithms of the index."""
        return math.log1p(self.hysteresis_ratio)

    def time_slice(self, costs: Costs) -> float:
        return limit_switch_share(costs, MIN_TIME_SLICE)

    def rank(self, job: JobView, trials: Sequence[TrialView], snapshot: Snapshot) -> Ranking:
        """Return the ranking. O(n log n) plus the columns that new points reach."""
        curves = curves_of_job(job, trials, snapshot)
        aligned = align(curves, horizon(job, curves))
        length, started, live, constants = aligned.horizon, curves.started, ~curves.done, self.constants
        pace = seconds_per_step(curves.step, curves.seconds)
        spacing = steps_between_values(curves.step, curves.points, curves.evaluations)
        trained = trained_steps(curves.step, curves.seconds, curves.evaluations, pace, spacing, length)
        least = max(self.warmup * length, constants.evaluations * spacing)  # steps of the warm-up
        waiting = trained[started & live & ~curves.running]
        warmed_up = min(MAX_WARM_UP, max(least, median(waiting) if len(waiting) else 0.0) / length)

        # The chance to end best.
        chance = np.zeros(len(curves))
        if count := int(np.count_nonzero(started)):
            open_share = undecided(np.maximum(trained, least) / length, least / length)
            doubt = np.where(started & ~curves.diverged, open_share * constants.prior / count, 0.0)
            chance = _lag_chances(aligned, started, curves.diverged, constants) + doubt
        # Trust, and similar curves.
        completed = curves.complete.nonzero()[0]
        if len(completed) >= MIN_TRUSTED and np.count_nonzero(judged := started & live):
            tau = order_persistence(aligned, curves, completed, 2.0 * warmed_up)
            similar = predict_by_similar_curves(curves, aligned, judged)
            chance = trusted(chance, judged, tau, len(completed), constants.trust, similar)
        # The index, and similar configurations.
        costs = snapshot.costs.of(job)
        switch = (costs.suspend + costs.resume) / max(pace / max(1, job.gpus.per_trial) * length, MIN_PACE)
        value = index(chance, trained / length, np.where(curves.running, 0.0, switch))
        new = live & ~started
        if np.count_nonzero(new):  # costs a third of `any`
            similar_value = relative_value(curves, new, started, chance, trained / length)
            value[new] = option_value(chance[started], warmed_up) * similar_value
        # The warm-up, and the starvation guard.
        in_warm_up = started & ~curves.diverged & (curves.step < least * (1 - 1e-9))
        levels = np.where(in_warm_up, WARM_UP, RANKED)
        passed = None if job.population is None else _intervals(trials, curves, job.population, length)
        levels += 0 if passed is None else passed
        starved = starved_rows(curves, live, job, snapshot, self.min_share, MIN_TIME_SLICE)
        levels[list(starved)] = STARVED
        explain = explanation(starved, in_warm_up, started, chance, trained, length)
        explain = explain if passed is None else with_interval(explain, passed)
        return Ranking(curves, np.log(np.maximum(value, 1e-300)), levels, explain)


def lags(at: Standings, least: Floats | float, diverged: Mask, constants: Constants) -> Floats:
    """Return each trial's lag in units; infinite where diverged, 0 without values to judge by.

    With m = max(gain, leader's gain): (deficit - slope (gain - leader's gain)) / (unit m gain_ratio^spread), at most 0
    for a leader, and not below `least`: a part of the largest lag behind a less trained trial.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        unit = constants.unit * (np.maximum(at.gain, at.leader_gain) + TINY) * at.gain_ratio**constants.spread
        lag: Floats = (at.deficit - constants.slope * (at.gain - at.leader_gain)) / unit
        lag = np.where(at.deficit <= 0.0, np.minimum(lag, 0.0), lag)
        lag = np.maximum(lag, least)
    lag[np.isnan(lag)] = np.inf
    lag[at.column < 0] = 0.0
    lag[diverged] = np.inf
    return lag


def lag_chances(lag: Floats, started: Mask, prior: float) -> Floats:
    """Return (1 - prior) exp(-lag_i) / sum_j exp(-lag_j) over the started trials, 0 for the others."""
    least = float(lag[started].min())
    # a trial that is not started may be far ahead of all started ones
    behind = np.minimum(np.maximum(lag - (least if math.isfinite(least) else 0.0), 0.0), _MAX_LAG)
    weight = np.where(started, np.exp(-behind), 0.0)
    chance: Floats = (1.0 - prior) * weight / weight.sum()
    return chance


def index(chance: Floats, trained: Floats, switch: Floats) -> Floats:
    """Return the index of started trials.

    It is the chance to end best, divided by the remaining share of the trial plus the cost of a switch.
    """
    left = 1.0 - np.minimum(trained, 0.999)
    value: Floats = chance / (left + switch)
    return value


def option_value(chance: Floats, warmup: float) -> float:
    """Return the index of a trial that has not started.

    Suppose n trials had been warmed up to find the best k of them, and the others dropped. The index is the probability
    to hold the best trial per unit of training, for the best k.
    """
    n = len(chance)
    if not n:
        return 1.0
    falling = chance.copy()
    falling.sort()
    bought = falling[::-1].cumsum()
    return float((bought / (n * warmup + np.arange(1, n + 1) * (1.0 - warmup))).max())


def trusted(
    chance: Floats, live: Mask, tau: float, completed: int, trust: float, similar: Predictions | None
) -> Floats:
    """Return the chances, with those of the `live` trials shrunk.

    They are shrunk to their mean, or to the prediction of similar curves where there is one. They keep the weight w =
    (rho k + trust) / (k + trust), at least 0, after k completed trials, with Greiner's relation rho = sin(pi tau / 2).
    Where similar curves predict, w is multiplied by 1 - s, s = skill k / (k + trust).
    """
    rho = math.sin(0.5 * math.pi * tau)
    weight = max(0.0, (rho * completed + trust) / (completed + trust))
    fallback: Floats | float = mean(chance[live])
    if similar is not None:
        skill = similar.skill * completed / (completed + trust)
        weight *= 1.0 - skill
        share = skill * similar.chance / similar.total + (1.0 - skill) / similar.count
        fallback = np.where(similar.predicted, share * chance[similar.predicted].sum(), fallback)
    return np.where(live, weight * chance + (1.0 - weight) * fallback, chance)


def _intervals(
    trials: Sequence[TrialView], curves: CurveTable, population: Population, length: float
) -> NDArray[np.intp]:
    """Return, by row, how many intervals each member has trained. A child has at least those of its parent."""
    passed = np.zeros(len(curves), dtype=np.intp)  # it has rows of ended trials, too
    for trial in trials:
        passed[curves.rows[trial.key]] = int(min(trial.reached_step, length) / population.interval + 1e-9)
    return passed


def _lag_chances(aligned: AlignedCurves, started: Mask, diverged: Mask, constants: Constants) -> Floats:
    """Return the lag chances of all trials of a job. Kept until a curve changes: do not write into the array."""

    def compute() -> Floats:
        at = aligned.standings()
        least: Floats | float = -np.inf
        if constants.less_trained > 0.0:
            least = constants.less_trained * lags_behind_less_trained(aligned, at, diverged, constants)
        return lag_chances(lags(at, least, diverged, constants), started, constants.prior)

    content = (aligned.version.tobytes(), started.tobytes(), diverged.tobytes())
    return aligned.remembered(("lag chances", constants), content, compute)

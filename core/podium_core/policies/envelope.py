"""Envelope policy: rank by the probability to end best, divided by the training that is still needed.

Comparison at equal training (`curves/aligned_curves.py`). Trial i stands at grid column c with best value b_i and gain
g_i over its last doubling of training. L is the leader at c: the trial with the best value there, the envelope of all
curves. With m = max(g_i, g_L) and gain_ratio(c) = typical gain / typical deficit:
  lag_i    = (b_L - b_i - slope (g_i - g_L)) / (unit m gain_ratio(c)^spread),  at most 0 for the leader itself
  lag_i    = max(lag_i, less_trained max_c' lag_i(c'))     lag behind less trained trials (`less_trained.py`)
So a deficit counts relative to what trials still gain: while curves rise, no trial is judged; on flat curves losers
are put off at once.

Probability to end best, over the n started trials. u_i falls from 1 after the warm-up to 0 at the end of a trial, with
the width of the prediction interval of its final value (`curves/final_value.py`):
  chance_i = (1 - prior) exp(-(lag_i - min lag)) / sum_j exp(-(lag_j - min lag)) + prior u_i / n

Trust, once k >= 3 trials have completed. tau is Kendall's tau between their order at twice the warm-up and
their final order; rho = sin(pi tau / 2) (Greiner's relation), and w is at least 0:
  w        = (rho k + trust) / (k + trust)
  chance_i = w chance_i + (1 - w) mean chance
Where similar curves predict a probability p_i for m trials (`curves/similar_curves.py`, leave-one-out skill q), with
s = q k / (k + trust), w is multiplied by 1 - s and the mean chance of these trials is replaced by:
  (s p_i / sum_j p_j + (1 - s) / m) sum_j chance_j

Index, with the trained share t_i and the cost of a switch h (0 for a running trial) as a share of a trial:
  started:     index_i = chance_i / (1 - t_i + h)
  not started: index_i = option_value * relative_value_i   (`curves/similar_configurations.py`)
  option_value = max_k (sum of the k largest chances) / (n warm-up + k (1 - warm-up))
The score is log(index). A trial in its warm-up goes first, and before it the one that the starvation guard serves
(`starvation_guard.py`). So no live trial starves.

No paper has this policy. It is related to freeze-thaw optimisation (Swersky et al. 2014) and to index policies
(Gittins 1979). docs/explanation/envelope.md says how the constants were chosen.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import AlignedCurves, align, median
from podium_core.curves.curve_table import CurveTable, Floats, curves_of_job
from podium_core.curves.final_value import interval_width
from podium_core.curves.similar_configurations import relative_value
from podium_core.curves.similar_curves import predict_by_similar_curves
from podium_core.domain.snapshot import Costs, JobView, Snapshot, TrialView
from podium_core.policies.base import STARVED, Ranking, limit_switch_share
from podium_core.policies.less_trained import LagsBehindLessTrained, LagScale
from podium_core.policies.starvation_guard import starved_rows
from podium_core.policies.trial_length import horizon

WARM_UP, RANKED = 0, 1  # levels
MIN_TIME_SLICE = 2.0  # seconds
MAX_WARM_UP = 0.9  # share of a trial
MIN_PACE = 1e-100  # seconds per step; keeps quotients finite
_TINY = 1e-12
_REPORTED_PROBABILITIES = (0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
_MAX_LAG = 700.0  # units; exp(-700) is still above 0
_MAX_PAIRED = 64  # completed trials that Kendall's tau uses


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants that were chosen on recorded curves (docs/explanation/envelope.md). They are not settings."""

    unit: float = 1.0  # a deficit of this many units makes a trial e times less likely to be the best
    spread: float = 0.28  # how much less a deficit counts where trials gain more than they differ
    slope: float = 0.8  # doublings for which the difference of a trial's and the leader's gain is extrapolated
    less_trained: float = 0.3  # weight of a lag behind a less trained trial at that trial's step
    evaluations: float = 1.5  # a warm-up lasts at least this many evaluations
    prior: float = 0.1  # probability, after the warm-up, that the values so far carry no information
    trust: float = 2.0  # number of completed trials that weigh as much as the assumption that order persists


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
    constants: Constants = Constants()

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
        length, started, live = aligned.horizon, curves.started, ~curves.done
        pace, spacing, width = _pace(curves), _evaluation_spacing(curves), max(1, job.gpus.per_trial)
        trained = _trained_steps(curves, pace, spacing, length)
        least = max(self.warmup * length, self.constants.evaluations * spacing)  # steps of the warm-up
        waiting = trained[started & live & ~curves.running]
        warmed_up = min(MAX_WARM_UP, max(least, median(waiting) if len(waiting) else 0.0) / length)

        open_share = undecided(np.maximum(trained, least) / length, least / length)
        chance = probabilities(curves, aligned, started, open_share, self.constants)
        chance = trusted(curves, aligned, chance, started & live, 2.0 * warmed_up, self.constants.trust)

        costs = snapshot.costs.of(job)
        switch = (costs.suspend + costs.resume) / max(pace / width * length, MIN_PACE)
        left = 1.0 - np.minimum(trained / length, 0.999)
        index = chance / (left + np.where(curves.running, 0.0, switch))
        new = live & ~started
        if np.count_nonzero(new):  # costs a third of `any`
            similar = relative_value(curves, new, started, chance, trained / length)
            index[new] = option_value(chance[started], warmed_up) * similar

        levels = np.where(started & ~curves.diverged & (curves.step < least * (1 - 1e-9)), WARM_UP, RANKED)
        starved = starved_rows(curves, live, job, snapshot, self.min_share, MIN_TIME_SLICE)
        if starved:
            levels[list(starved)] = STARVED

        def explain(row: int) -> tuple[str, str]:
            """Round all figures coarsely: each change of the text is a write of the trial's status."""
            if row in starved:
                return (
                    "LongestWait",
                    "has waited longest for its next value; the starvation guard gives it a time slice.",
                )
            if levels[row] == WARM_UP:
                return "WarmUp", "is trained for its warm-up before it is judged."
            if not started[row]:
                return (
                    "Unstarted",
                    "has not started: it counts as much as the started trials, above all the similar ones, turned out.",
                )
            share = 5 * int(20.0 * trained[row] / length)
            text = f"will be the best of the started trials with probability {rounded(float(chance[row]))}"
            return "Envelope", f"{text} and has trained {share} % or more."

        return Ranking(curves, np.log(np.maximum(index, 1e-300)), levels, explain)


def rounded(chance: float) -> str:
    """Return a probability as text, in a few steps so that the text rarely changes."""
    least = next((step for step in _REPORTED_PROBABILITIES if chance >= step), None)
    return f"below {_REPORTED_PROBABILITIES[-1]:g}" if least is None else f"{least:g} or more"


def undecided(trained: Floats, warmup: float) -> Floats:
    """Return u by row: 1 after the warm-up, 0 at the end.

    It is the width of the prediction interval of the final value, relative to the width after the warm-up. `trained`
    and `warmup` are shares of a trial.
    """
    return np.where(trained < 1.0, np.minimum(1.0, _width_at(trained) / _first_width(warmup)), 0.0)


def _width_at(trained: Floats) -> Floats:
    return interval_width(-np.log2(np.minimum(np.maximum(trained, _TINY), 0.999)))


@lru_cache(maxsize=64)
def _first_width(warmup: float) -> float:
    return float(_width_at(np.array([warmup]))[0])


def probabilities(
    curves: CurveTable, aligned: AlignedCurves, started: NDArray[np.bool_], open_share: Floats, constants: Constants
) -> Floats:
    """Return each started trial's probability to end best of them, by row; the sum is at most 1."""
    count = int(np.count_nonzero(started))
    if not count:
        return np.zeros(len(curves))
    lost = curves.diverged
    chance: Floats = weights(aligned, started, lost, constants) + np.where(
        started & ~lost, open_share * constants.prior / count, 0.0
    )
    return chance


def weights(
    aligned: AlignedCurves, started: NDArray[np.bool_], diverged: NDArray[np.bool_], constants: Constants
) -> Floats:
    """Return the part of the probability that the lags give: (1 - prior) times a softmax of -lag, by row.

    Cached until a curve changes: do not write into the array.
    """
    key = ("weights", constants, started.tobytes(), diverged.tobytes())
    if key not in aligned.results:
        lag = lags(aligned, diverged, constants)
        least = float(lag[started].min())
        # a trial that is not started may be far ahead of all started ones
        behind = np.minimum(np.maximum(lag - (least if math.isfinite(least) else 0.0), 0.0), _MAX_LAG)
        weight = np.where(started, np.exp(-behind), 0.0)
        aligned.results[key] = (1.0 - constants.prior) * weight / weight.sum()
    return cast(Floats, aligned.results[key])


def lags(aligned: AlignedCurves, diverged: NDArray[np.bool_], constants: Constants) -> Floats:
    """Return each trial's lag by row, in units; infinite where diverged, 0 without values to judge by."""
    at = aligned.standings()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        unit = constants.unit * (np.maximum(at.gain, at.leader_gain) + _TINY) * at.gain_ratio**constants.spread
        lag: Floats = (at.deficit - constants.slope * (at.gain - at.leader_gain)) / unit
        lag = np.where(at.deficit <= 0.0, np.minimum(lag, 0.0), lag)
        if constants.less_trained > 0.0:
            scale = LagScale(constants.unit, constants.spread, constants.slope)
            less_trained = aligned.cached(scale, lambda: LagsBehindLessTrained(aligned, scale))
            lag = np.maximum(lag, constants.less_trained * less_trained.largest_lag(at, diverged))
    lag[np.isnan(lag)] = np.inf
    lag[at.column < 0] = 0.0
    lag[diverged] = np.inf
    return lag


def trusted(
    curves: CurveTable, aligned: AlignedCurves, chance: Floats, live: NDArray[np.bool_], share: float, trust: float
) -> Floats:
    """Return the chances of the `live` rows, weighted by how far early order predicts final order.

    `share`: share of training at which the completed trials' order is compared with their final order. The module's
    docstring has the formulas.
    """
    rows = curves.complete.nonzero()[0]
    if len(rows) < 3 or not np.count_nonzero(live):
        return chance
    rho = math.sin(0.5 * math.pi * _order_persistence(curves, aligned, rows, share))
    weight = max(0.0, (rho * len(rows) + trust) / (len(rows) + trust))
    similar = predict_by_similar_curves(curves, aligned, live)
    if similar is None:
        return np.where(live, weight * chance + (1.0 - weight) * _mean(chance[live]), chance)
    skill = similar.skill * len(rows) / (len(rows) + trust)
    weight *= 1.0 - skill
    predicted = similar.predicted
    predicted_share = skill * similar.chance / similar.total + (1.0 - skill) / similar.count
    fallback = np.where(predicted, predicted_share * chance[predicted].sum(), _mean(chance[live]))
    return np.where(live, weight * chance + (1.0 - weight) * fallback, chance)


def _order_persistence(curves: CurveTable, aligned: AlignedCurves, rows: NDArray[np.intp], share: float) -> float:
    """Return Kendall's tau between the order of these completed trials at a share of training and at their ends."""
    column = min(len(aligned.grid_list) - 1, bisect_left(aligned.grid_list, share * aligned.horizon))
    key = (column, rows.tobytes(), curves.version[rows].tobytes())
    known: dict[tuple[int, bytes, bytes], float] = curves.cached(("order persistence", aligned.horizon), dict)
    if key not in known:
        known.clear()
        early, late = aligned.best[rows, column], curves.best[rows]
        finite = np.isfinite(early) & np.isfinite(late)
        known[key] = kendall_tau(early[finite], late[finite])
    return known[key]


def _mean(values: Floats) -> float:
    """Return numpy's mean, a few times faster."""
    return float(values.sum() / len(values))


def kendall_tau(early: Floats, late: Floats) -> float:
    """Return Kendall's tau of two orders without ties; 1 where there is no pair.

    O(n^2) for at most 64 values.
    """
    if len(early) > _MAX_PAIRED:  # evenly spaced over the ranks: bounds the cost
        pick = np.argsort(late, kind="stable")[np.linspace(0, len(late) - 1, _MAX_PAIRED).astype(np.intp)]
        early, late = early[pick], late[pick]
    with np.errstate(over="ignore"):  # the difference of two huge values is infinite and keeps its sign
        concordance = np.sign(early[:, None] - early) * np.sign(late[:, None] - late)
    pairs = np.count_nonzero(concordance)
    return float(concordance.sum()) / pairs if pairs else 1.0


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


def _pace(curves: CurveTable) -> float:
    """Return GPU-seconds per step over all trials that have reported a step."""
    reported = (curves.step > 0.0).nonzero()[0]
    steps, seconds = float(curves.step[reported].sum()), float(curves.seconds[reported].sum())
    pace = seconds / steps if steps > 0.0 else 0.0
    return pace if pace > MIN_PACE else 1.0


def _evaluation_spacing(curves: CurveTable) -> float:
    """Return the median number of steps between two values of a trial; 0 before any value."""
    reported = curves.points.nonzero()[0]
    return median(curves.step[reported] / curves.evaluations[reported]) if len(reported) else 0.0


def _trained_steps(curves: CurveTable, pace: float, spacing: float, length: float) -> Floats:
    """Return the trained steps by row, estimated from the GPU-seconds since the last value.

    The estimate is at most one evaluation beyond the last value: a trial that is slower than the others, or that
    repeated steps, has used more GPU-seconds without being further.
    """
    shown = np.maximum(curves.step, 0.0)
    ahead = shown + np.maximum(shown / curves.evaluations, spacing)
    return cast(Floats, np.minimum(np.maximum(shown, np.minimum(curves.seconds / pace, ahead)), length))

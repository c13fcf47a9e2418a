"""How many jobs will come in the next hours? Holt-Winters with additive season, and the naive forecast it must beat.

Level, slope and season are updated with each count (Winters, Management Science 6, 1960):
  level_t  = a (x_t - season_{t-m}) + (1 - a) (level_{t-1} + d slope_{t-1})
  slope_t  = b (level_t - level_{t-1}) + (1 - b) d slope_{t-1}
  season_t = c (x_t - level_t) + (1 - c) season_{t-m}
with damping d (Gardner and McKenzie, Management Science 31, 1985), on x = log(1 + count): jobs come in bursts, and one
burst of 500 must not count as 500 hours. The weights are those with the least squared error of one step on the history.
The forecast is the median; bands are from the variance h steps ahead (Hyndman et al., Forecasting with Exponential
Smoothing, 2008, ch. 6, for d = 1). Called by the hybrid planner and benchmarks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from podium_optimisers.engine.workload import Floats

WIDTH_90 = 1.6449  # standard normal: 90 % lie within this many deviations
LARGEST = 50.0  # logarithm beyond which no count is forecast: a runaway slope must stay a finite number


@dataclass(frozen=True, slots=True)
class Weights:
    """Each from 0 (never changes) to 1 (only the newest counts); `damping` 1 keeps the slope for ever."""

    level: float
    slope: float
    season: float
    damping: float = 0.98


@dataclass(frozen=True, slots=True)
class Forecast:
    """Counts for each of the next steps, shape (h,), with the band that holds 90 %."""

    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class HoltWinters:
    """A fitted model at the end of its history, in logarithms. `season`: offsets of the next m steps in turn."""

    weights: Weights
    level: float
    slope: float
    season: tuple[float, ...]
    deviation: float  # standard deviation of one step's error

    def forecast(self, steps: int) -> Forecast:
        """The next `steps` counts. O(steps)."""
        if steps < 1:
            raise ValueError(f"InvalidSetting: steps is {steps}; give 1 or more.")
        damped = np.cumsum(self.weights.damping ** np.arange(1, steps + 1))
        period = len(self.season)
        mean = self.level + damped * self.slope + np.array([self.season[step % period] for step in range(steps)])
        passed = np.arange(1, steps)
        carried = self.weights.level * (1.0 + passed * self.weights.slope)
        carried = carried + self.weights.season * (1.0 - self.weights.level) * (passed % period == 0)
        spread = WIDTH_90 * self.deviation * np.sqrt(1.0 + np.concatenate([[0.0], np.cumsum(carried**2)]))
        return Forecast(
            *(np.maximum(np.expm1(np.minimum(values, LARGEST)), 0.0) for values in (mean, mean - spread, mean + spread))
        )

    def updated(self, count: float) -> HoltWinters:
        """The model one count later, same weights."""
        _check(np.array([count]))
        state = _step(self.weights, self.level, self.slope, self.season[0], math.log1p(count))
        return HoltWinters(self.weights, state[0], state[1], (*self.season[1:], state[2]), self.deviation)


def fit_holt_winters(counts: Floats, period: int, damping: float = 0.98) -> HoltWinters:
    """Fits to `counts` (shape (n,), n >= 2 `period`, one number a step). Deterministic; O(n) for each try of weights.

    Errors: ValueError when there are less than two periods, or a count that is none.
    """
    values = _logarithms(counts, period)
    starts = ((0.1, 0.01, 0.1), (0.5, 0.05, 0.3))
    bounds = [(0.001, 0.999), (0.0, 0.5), (0.001, 0.999)]
    tries = [
        minimize(lambda w: _replay(_weights(w, damping), values, period)[1], start, method="L-BFGS-B", bounds=bounds)
        for start in starts
    ]
    best = min(tries, key=lambda found: float(found.fun))
    return _model(_weights(best.x, damping), values, period)


def smooth(counts: Floats, period: int, weights: Weights) -> HoltWinters:
    """The model with given weights after `counts`: one pass, for who plans often. Errors: as `fit_holt_winters`."""
    return _model(weights, _logarithms(counts, period), period)


def seasonal_naive(counts: Floats, period: int, steps: int) -> Floats:
    """The forecast to beat: what was counted one period ago, shape (steps,)."""
    return np.array([counts[len(counts) - period + step % period] for step in range(steps)])


def arrivals_per(arrival: Floats, seconds: float) -> Floats:
    """Arrivals in each whole step of `seconds`, from time 0 to the last arrival; the last, cut-off step is left out."""
    if not (seconds > 0.0 and math.isfinite(seconds)):
        raise ValueError(f"InvalidSetting: seconds is {seconds}; give a finite number above 0.")
    steps = int(float(np.max(arrival)) // seconds)
    return np.bincount((arrival // seconds).astype(np.int64), minlength=steps)[:steps].astype(np.float64)


def _model(weights: Weights, values: list[float], period: int) -> HoltWinters:
    state, error = _replay(weights, values, period)
    return HoltWinters(weights, state[0], state[1], state[2], math.sqrt(error / (len(values) - period)))


def _logarithms(counts: Floats, period: int) -> list[float]:
    if period < 2 or len(counts) < 2 * period:
        text = f"{len(counts)} counts with a period of {period}"
        raise ValueError(f"TooShort: {text}; give a period of 2 or more and at least two periods of counts.")
    _check(counts)
    values: list[float] = np.log1p(counts).tolist()
    return values


def _check(counts: Floats) -> None:
    wrong = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0.0)))
    if wrong.size:
        raise ValueError(f"InvalidHistory: counts[{wrong[0]}] is {counts[wrong[0]]}; give finite numbers, 0 or more.")


def _weights(found: Floats, damping: float) -> Weights:
    return Weights(float(found[0]), float(found[1]), float(found[2]), damping)


def _step(w: Weights, level: float, slope: float, season: float, count: float) -> tuple[float, float, float]:
    ahead = level + w.damping * slope
    new = w.level * (count - season) + (1.0 - w.level) * ahead
    turned = w.slope * (new - level) + (1.0 - w.slope) * w.damping * slope
    return new, turned, w.season * (count - new) + (1.0 - w.season) * season


def _replay(w: Weights, values: list[float], period: int) -> tuple[tuple[float, float, tuple[float, ...]], float]:
    """State at the end and the sum of squared one-step errors; the first period sets level and season."""
    level = sum(values[:period]) / period
    slope = (sum(values[period : 2 * period]) / period - level) / period
    season = [value - level for value in values[:period]]
    error = 0.0
    for at in range(period, len(values)):
        place = at % period
        error += (values[at] - (level + w.damping * slope + season[place])) ** 2
        level, slope, season[place] = _step(w, level, slope, season[place], values[at])
    turn = len(values) % period
    return (level, slope, (*season[turn:], *season[:turn])), error

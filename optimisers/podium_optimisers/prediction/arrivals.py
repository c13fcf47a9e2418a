"""Forecast the number of arrivals by Holt-Winters with additive season, and by a naive baseline.

Level, slope and season are updated with each count (Winters, Management Science 6, 1960):

  level_t  = a (x_t - season_{t-m}) + (1 - a) (level_{t-1} + d slope_{t-1})
  slope_t  = b (level_t - level_{t-1}) + (1 - b) d slope_{t-1}
  season_t = c (x_t - level_t) + (1 - c) season_{t-m}

The slope is damped by d (Gardner and McKenzie, Management Science 31, 1985). The input is x = log(1 + count): arrivals
come in bursts, and one burst of 500 must not count as 500 hours. The weights minimise the squared one-step error on the
history. The forecast is the median. The bands come from the variance h steps ahead (Hyndman et al., Forecasting with
Exponential Smoothing, 2008, ch. 6, for d = 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from podium_optimisers.arrays import Floats

NORMAL_QUANTILE_95 = 1.6449  # standard normal: 90 % lie within this many standard deviations
MAX_LOGARITHM = 50.0  # upper limit of a forecast's logarithm: a runaway slope must stay finite


@dataclass(frozen=True, slots=True)
class SmoothingWeights:
    """Smoothing weights, each from 0 (never changes) to 1 (only the newest count matters).

    A `damping` of 1 keeps the slope forever.
    """

    level: float
    slope: float
    season: float
    damping: float = 0.98


@dataclass(frozen=True, slots=True)
class ArrivalForecast:
    """Forecast counts for each of the next steps, shape (h,), with a 90 % band."""

    median: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class HoltWinters:
    """A fitted model at the end of its history, in logarithms.

    `season`: the offsets of the next m steps. `deviation`: the standard deviation of the one-step error.
    """

    weights: SmoothingWeights
    level: float
    slope: float
    season: tuple[float, ...]
    deviation: float

    def forecast(self, steps: int) -> ArrivalForecast:
        """Forecast the next `steps` counts. O(steps)."""
        if steps < 1:
            raise ValueError(f"InvalidSetting: steps must be at least 1 (got {steps}).")
        damped = np.cumsum(self.weights.damping ** np.arange(1, steps + 1))
        period = len(self.season)
        mean = self.level + damped * self.slope + np.array([self.season[step % period] for step in range(steps)])
        passed = np.arange(1, steps)
        carried = self.weights.level * (1.0 + passed * self.weights.slope)
        carried = carried + self.weights.season * (1.0 - self.weights.level) * (passed % period == 0)
        spread = NORMAL_QUANTILE_95 * self.deviation * np.sqrt(1.0 + np.concatenate([[0.0], np.cumsum(carried**2)]))
        return ArrivalForecast(
            *(
                np.maximum(np.expm1(np.minimum(values, MAX_LOGARITHM)), 0.0)
                for values in (mean, mean - spread, mean + spread)
            )
        )

    def updated(self, count: float) -> HoltWinters:
        """Return the model after one more count, with the same weights."""
        _check(np.array([count]))
        state = _step(self.weights, self.level, self.slope, self.season[0], math.log1p(count))
        return HoltWinters(self.weights, state[0], state[1], (*self.season[1:], state[2]), self.deviation)


def fit_holt_winters(counts: Floats, period: int, damping: float = 0.98) -> HoltWinters:
    """Fit the model to `counts`: shape (n,), n >= 2 `period`. Each evaluation of the weights takes O(n).

    The fit is deterministic. Raises ValueError if there are fewer than two periods, or if a count is negative or not
    finite.
    """
    values = _logarithms(counts, period)
    starts = ((0.1, 0.01, 0.1), (0.5, 0.05, 0.3))
    bounds = [(0.001, 0.999), (0.0, 0.5), (0.001, 0.999)]
    tries = [
        minimize(lambda w: _replay(_weights(w, damping), values, period)[1], start, method="L-BFGS-B", bounds=bounds)
        for start in starts
    ]
    best = min(tries, key=lambda fit: float(fit.fun))
    return _model(_weights(best.x, damping), values, period)


def apply_holt_winters(counts: Floats, period: int, weights: SmoothingWeights) -> HoltWinters:
    """Return the model with given weights after `counts`, in one pass.

    Raises ValueError like `fit_holt_winters`.
    """
    return _model(weights, _logarithms(counts, period), period)


def seasonal_naive(counts: Floats, period: int, steps: int) -> Floats:
    """Return the naive baseline, the counts of one period ago, shape (steps,)."""
    return np.array([counts[len(counts) - period + step % period] for step in range(steps)])


def count_arrivals(arrival: Floats, seconds: float) -> Floats:
    """Count the arrivals in each whole step of `seconds`, from time 0 to the last arrival.

    The last, incomplete step is omitted.
    """
    if not (seconds > 0.0 and math.isfinite(seconds)):
        raise ValueError(f"InvalidSetting: seconds must be a finite number above 0 (got {seconds}).")
    steps = int(float(np.max(arrival)) // seconds)
    return np.bincount((arrival // seconds).astype(np.int64), minlength=steps)[:steps].astype(np.float64)


def _model(weights: SmoothingWeights, values: list[float], period: int) -> HoltWinters:
    """Return the model after all values."""
    state, error = _replay(weights, values, period)
    return HoltWinters(weights, state[0], state[1], state[2], math.sqrt(error / (len(values) - period)))


def _logarithms(counts: Floats, period: int) -> list[float]:
    """Validate the counts and return log(1 + count)."""
    if period < 2 or len(counts) < 2 * period:
        text = f"{len(counts)} counts with a period of {period}"
        raise ValueError(f"TooShort: {text}; give a period of 2 or more and at least two periods of counts.")
    _check(counts)
    values: list[float] = np.log1p(counts).tolist()
    return values


def _check(counts: Floats) -> None:
    """Raise ValueError for a count that is negative or not finite."""
    wrong = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0.0)))
    if wrong.size:
        raise ValueError(
            f"InvalidHistory: counts[{wrong[0]}] is {counts[wrong[0]]}; give finite numbers of at least 0."
        )


def _weights(vector: Floats, damping: float) -> SmoothingWeights:
    return SmoothingWeights(float(vector[0]), float(vector[1]), float(vector[2]), damping)


def _step(w: SmoothingWeights, level: float, slope: float, season: float, count: float) -> tuple[float, float, float]:
    """Return level, slope and season after one value."""
    ahead = level + w.damping * slope
    new = w.level * (count - season) + (1.0 - w.level) * ahead
    turned = w.slope * (new - level) + (1.0 - w.slope) * w.damping * slope
    return new, turned, w.season * (count - new) + (1.0 - w.season) * season


def _replay(
    w: SmoothingWeights, values: list[float], period: int
) -> tuple[tuple[float, float, tuple[float, ...]], float]:
    """Return the final state and the sum of squared one-step errors.

    The first period sets level and season.
    """
    level = sum(values[:period]) / period
    slope = (sum(values[period : 2 * period]) / period - level) / period
    season = [value - level for value in values[:period]]
    error = 0.0
    for position in range(period, len(values)):
        place = position % period
        error += (values[position] - (level + w.damping * slope + season[place])) ** 2
        level, slope, season[place] = _step(w, level, slope, season[place], values[position])
    phase = len(values) % period
    return (level, slope, (*season[phase:], *season[:phase])), error

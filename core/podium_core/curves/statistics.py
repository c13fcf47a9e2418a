"""General statistics on plain arrays, where numpy has no function or is slow for short arrays."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
_MAX_PAIRED = 64  # values that Kendall's tau uses
_NORMAL = NormalDist()


def mean(values: Floats) -> float:
    """Return numpy's mean, a few times faster."""
    return float(values.sum() / len(values))


def median(values: Floats) -> float:
    """Return the median of at least one value; much faster than numpy's for short arrays."""
    ordered = values.copy()
    ordered.sort()
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] / 2 + ordered[half] / 2)


def middle_values(values: Floats) -> Floats:
    """Return the four values, in order, that determine `median_of_others` for each of at least two values.

    The median of the others is the mean of their two middle values. Each of the two is one of two neighbours among all
    `values`: leaving out a value below moves it up by one.
    """
    ordered = np.sort(values)
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    return ordered[[low, low + 1, high, high + 1]]


def median_of_others(own: Floats, middle: Floats) -> Floats:
    """Return the median of a column of values without the own value, for each own value.

    `middle`: the `middle_values` of each one's column, (values, 4).
    """
    low, above_low, high, above_high = middle.T
    # Halve first: the sum of two huge values overflows.
    medians: Floats = np.where(own <= low, above_low, low) / 2 + np.where(own <= high, above_high, high) / 2
    return medians


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


def normal_cdf(z: Floats) -> Floats:
    """Return the standard normal distribution function, to 1e-7. numpy has no error function.

    Abramowitz and Stegun, 26.2.17.
    """
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail: Floats = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * series
    return np.where(z > 0.0, 1.0 - tail, tail)


@lru_cache(maxsize=64)
def normal_scores(count: int) -> Floats:
    """Return the normal scores of `count` ranks, lowest first. Do not write into the array."""
    return np.array([_NORMAL.inv_cdf((rank + 0.5) / count) for rank in range(count)])


def gaussian_kernel(squares: Floats, bandwidth: float, count: int) -> Floats:
    """Return weights: 1 at the distance 0, towards 0 for large distances; 0 where nothing was compared.

    `squares`: squared distances summed over `count` compared coordinates.
    """
    if not count:
        return np.zeros_like(squares)
    weights: Floats = np.exp(squares / (-2.0 * bandwidth * bandwidth * count))
    return weights

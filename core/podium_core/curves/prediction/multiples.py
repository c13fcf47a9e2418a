"""Quantiles of the multiple M of a trial's final value, on plain arrays.

M is the distance from a trial's best value so far to its final value, in units of its scale (`final_value.py`). It
depends on the number of doublings that remain, and very little on the task: `TABLE` holds its quantiles on recorded
curves (`benchmarks/hpo/calibration.py --fit` computes it; its report shows the coverage on tasks that were not used).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from podium_core.curves.statistics import Floats

LEVELS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
DOUBLINGS_LEFT = (0.2, 0.55, 1.0, 1.5, 2.0, 2.75, 3.75, 4.8)
PRIOR_WEIGHT = 4.0  # number of completed trials that weigh as much as the table
_TINY, _HUGE = 1e-12, 1e300
TABLE = np.array(
    [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.04, 0.09, 0.23, 0.41, 0.59, 1.07],
        [0.0, 0.0, 0.0, 0.0, 0.02, 0.14, 0.29, 0.44, 0.64, 0.91, 1.34, 1.83, 3.05],
        [0.0, 0.0, 0.0, 0.0, 0.12, 0.34, 0.53, 0.74, 0.99, 1.32, 2.08, 2.87, 4.0],
        [0.0, 0.0, 0.0, 0.0, 0.38, 0.72, 1.01, 1.33, 1.72, 2.22, 3.43, 5.3, 9.22],
        [0.0, 0.0, 0.0, 0.05, 0.46, 0.88, 1.23, 1.67, 2.17, 2.98, 4.81, 7.53, 15.55],
        [0.0, 0.0, 0.0, 0.19, 0.6, 0.99, 1.35, 1.78, 2.36, 3.43, 5.95, 10.16, 15.71],
        [0.0, 0.0, 0.0, 0.33, 0.64, 0.98, 1.31, 1.62, 2.09, 2.86, 5.09, 7.69, 12.29],
        [0.0, 0.0, 0.0, 0.33, 0.56, 1.0, 1.36, 1.65, 2.15, 2.98, 4.77, 6.42, 8.8],
    ]
)


def interval_widths(quantiles: Floats) -> tuple[Floats, Floats]:
    """Return the doublings left and the width of the table's 80 % interval at each of them."""
    result = np.maximum.accumulate(quantiles[:, LEVELS.index(0.9)] - quantiles[:, LEVELS.index(0.1)])
    return np.array((0.0, *DOUBLINGS_LEFT)), np.array((0.0, *result))


_WIDTH_BY_DOUBLINGS = interval_widths(TABLE)
_AT_LEVELS = np.array(LEVELS)


def level_probabilities() -> Floats:
    """Return the probability that each of LEVELS represents: half of the way to each neighbour. Sum 1."""
    between = (_AT_LEVELS[1:] + _AT_LEVELS[:-1]) / 2
    return np.diff(between, prepend=0.0, append=1.0)


_PROBABILITIES = level_probabilities()
_MIDPOINTS = np.cumsum(_PROBABILITIES) - _PROBABILITIES / 2


def table_quantiles(doublings: Floats, quantiles: Floats = TABLE) -> Floats:
    """Return quantiles at LEVELS of the multiple M: (doublings, levels).

    0 at the end: a trial that has trained to its horizon keeps its best value.
    """
    at = (0.0, *DOUBLINGS_LEFT)
    return np.stack([np.interp(doublings, at, (0.0, *column)) for column in quantiles.T], axis=1)


def mix_with_completed(expected: Floats, seen: Floats) -> Floats:
    """Return these quantiles at LEVELS (rows, levels) after completed trials showed the multiples `seen`.

    They are the quantiles of a mixture in which the table has PRIOR_WEIGHT and each completed trial 1: the posterior
    mean of a Dirichlet process (Ferguson 1973). A mean of quantiles would lose the table's tails to a few trials and
    would keep the table's median. Many trials are represented by as many quantiles as the table has. O(rows levels) and
    one sort.
    """
    if not len(seen):
        return expected
    seen = np.clip(seen, -_HUGE, _HUGE)  # infinity times 0 is NaN
    many = len(seen) > len(LEVELS)
    own = np.quantile(seen, _MIDPOINTS, method="hazen") if many else seen
    values = np.concatenate([expected, np.broadcast_to(own, (len(expected), len(own)))], axis=1)
    weights = np.concatenate(
        [PRIOR_WEIGHT * _PROBABILITIES, len(seen) * _PROBABILITIES if many else np.ones(len(seen))]
    )
    order = np.argsort(values, axis=1, kind="stable")
    values, weights = np.take_along_axis(values, order, axis=1), weights[order]
    reached = (np.cumsum(weights, axis=1) - weights / 2) / (PRIOR_WEIGHT + len(seen))
    after = np.clip((reached[:, None, :] < _AT_LEVELS[:, None]).sum(axis=2), 1, values.shape[1] - 1)
    low, high = (np.take_along_axis(reached, place, axis=1) for place in (after - 1, after))
    part = np.clip((_AT_LEVELS - low) / (high - low), 0.0, 1.0)
    before, behind = (np.take_along_axis(values, place, axis=1) for place in (after - 1, after))
    result: Floats = before * (1.0 - part) + behind * part
    return result


def interval_width(doublings: Floats) -> Floats:
    """Return the width of the 80 % interval of M: 0 at the end, never smaller with more doublings left."""
    result: Floats = np.interp(doublings, *_WIDTH_BY_DOUBLINGS)
    return result


def undecided(trained: Floats, warmup: float) -> Floats:
    """Return the width of a trial's prediction interval, relative to the width after its warm-up.

    It falls from 1 to 0 at the end. `trained` and `warmup` are shares of a trial.
    """
    return np.where(trained < 1.0, np.minimum(1.0, _width_at(trained) / _first_width(warmup)), 0.0)


def _width_at(trained: Floats) -> Floats:
    return interval_width(-np.log2(np.minimum(np.maximum(trained, _TINY), 0.999)))


@lru_cache(maxsize=64)
def _first_width(warmup: float) -> float:
    return float(_width_at(np.array([warmup]))[0])

"""Value of a new trial relative to the others, from started trials with similar parameters.

The `envelope` policy calls it: before its first value, a trial's parameters are all that is known of it.

Formula: kernel regression (Nadaraya 1964, Watson 1964) of the started trials' values v on their parameters x, with
KAPPA pseudo-observations of the mean value:
  w_ij  = share_j exp(-d_ij^2 / (2 h^2 p)),  d_ij^2 = sum over the p parameters of min(1, |x_i - x_j|)^2
  factor_i = (sum_j w_ij v_j / mean(v) + KAPPA) / (sum_j w_ij + KAPPA)

A numeric parameter is replaced by its rank among the values that the job tries, scaled to [0, 1], so its scale need not
be known. Any other parameter is equal (0) or different (1). share_j is the trained share of trial j. Repeats of one
configuration that differ only in their seed are the clearest case. In a wide random search hardly any two trials are
similar, and the factor is 1.

The parameters are read again when a trial is added, O(trials x parameters).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.row_cache import Memo
from podium_core.curves.statistics import Floats, Rows, gaussian_kernel
from podium_core.domain.snapshot import Scalar

MAX_NEIGHBOURS = 128  # started trials that are used, evenly spaced over the rows
BANDWIDTH = 0.1  # h: bandwidth of the kernel, as a share of the tried values
KAPPA = 1.0  # weight of the mean value; a completed trial with equal parameters has weight 1
_MISSING_RANK = -9.0  # rank of a missing value: at the largest distance from every other

Parameters = Sequence[tuple[str, Scalar]]


def parameter_ranks(parameters: Sequence[Parameters]) -> Floats:
    """Return the parameters as ranks: (trials, parameters that differ).

    The distance of two trials in a parameter is the difference of their ranks, at most 1. Numbers are spaced evenly
    from 0 to 1 in their order. Other values, and missing ones, are 1 or more apart.
    """
    given = [dict(one) for one in parameters]
    result = []
    for name in sorted({name for one in given for name in one}):
        values = [one.get(name) for one in given]
        tried = {value for value in values if value is not None}
        if len(tried) + (None in values) < 2:
            continue
        if all(kind is not bool and issubclass(kind, (int, float)) for kind in set(map(type, tried))):
            ordered = sorted(tried, key=float)
            step = 1.0 / max(1, len(ordered) - 1)
        else:
            ordered, step = sorted(tried, key=lambda value: (type(value).__name__, str(value))), 1.0
        rank = {value: index * step for index, value in enumerate(ordered)}
        result.append([_MISSING_RANK if value is None else rank[value] for value in values])
    return np.array(result).reshape(len(result), len(given)).T


def neighbour_weights(new: Floats, started: Floats) -> Floats:
    """Return the kernel weights (new, started) of trials with these ranks, without the trained shares.

    1 for equal configurations, towards 0 for different ones; 0 where no parameter differs.
    """
    squares = np.zeros((len(new), len(started)))
    for one, other in zip(new.T, started.T, strict=True):
        squares += np.minimum(np.abs(one[:, None] - other), 1.0) ** 2
    return gaussian_kernel(squares, BANDWIDTH, new.shape[1])


def relative_values(weights: Floats, values: Floats, mean: float) -> Floats:
    """Return factor_i of each new trial. `weights`: w_ij; `values`: v_j of the started trials."""
    result: Floats = (weights @ values / mean + KAPPA) / (weights.sum(axis=1) + KAPPA)
    return result


@lru_cache(maxsize=64)
def _evenly_spaced(count: int) -> Rows:
    """Return MAX_NEIGHBOURS of `count` indexes, evenly spaced. Do not write into the array."""
    return np.linspace(0, count - 1, MAX_NEIGHBOURS).astype(np.intp)


class SimilarConfigurations:
    """Cache: parameters of a curve table's trials as ranks, and the neighbour weights of the last request."""

    def __init__(self, parameters: Sequence[Parameters]) -> None:
        self._ranks = parameter_ranks(parameters)
        self._weights: Memo[tuple[Floats, Floats]] = Memo()  # weights, and an array of the same shape

    def weighted(self, new: Rows, started: Rows, by: Floats) -> Floats:
        """Return the weights times `by`, one factor per started trial.

        The array is valid until the next call; allocating one for each call would be slow.
        """

        def compute() -> tuple[Floats, Floats]:
            weights = neighbour_weights(self._ranks[new], self._ranks[started])
            return weights, np.empty_like(weights)

        weights, buffer = self._weights.get((new.tobytes(), started.tobytes()), compute)
        return np.multiply(weights, by, out=buffer)


def relative_value(
    curves: CurveTable, new: NDArray[np.bool_], started: NDArray[np.bool_], worth: Floats, trained: Floats
) -> Floats:
    """Return, for each new row in order, the expected value relative to the mean of all started trials.

    1 where no started trial has similar parameters. `worth` and `trained` hold, by row, the value and the trained share
    of each started trial. Weighting by the trained share matters where good trials start slowly: otherwise their first
    values would keep all similar trials from being started.
    """
    rows, neighbours = new.nonzero()[0], started.nonzero()[0]
    if len(neighbours) > MAX_NEIGHBOURS:
        neighbours = neighbours[_evenly_spaced(len(neighbours))]
    if not len(rows) or not len(neighbours):
        return np.ones(len(rows))
    mean = float(worth[neighbours].sum() / len(neighbours))  # as numpy's mean, but a few times faster
    if mean <= 0.0:
        return np.ones(len(rows))
    similar = curves.cached(
        "similar configurations",
        lambda: SimilarConfigurations([() if view is None else view.origin.parameters for view in curves.views]),
    )
    weights = similar.weighted(rows, neighbours, trained[neighbours])
    return relative_values(weights, worth[neighbours], mean)

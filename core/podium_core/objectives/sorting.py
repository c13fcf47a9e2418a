"""Non-dominated sorting and crowding distance (Deb et al. 2002, NSGA-II), on plain arrays.

Rows are trials, columns are objectives, and larger is better. A row dominates another one if it is nowhere worse and
somewhere better. Front 0 holds the rows that no row dominates, front 1 those that only rows of front 0 dominate, and so
on.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Fronts = NDArray[np.intp]


def non_dominated_fronts(values: Floats) -> Fronts:
    """Return the front of each row, counted from 0. All values must be finite.

    Rows are visited in lexical order, so all rows that dominate one come before it. With up to two objectives O(n log
    n), otherwise O(n^2) comparisons and O(n) memory.
    """
    order = np.lexsort(-values.T[::-1])
    columns = np.ascontiguousarray(values[order].T)
    equal = np.concatenate(([False], (columns[:, 1:] == columns[:, :-1]).all(axis=0)))[: len(values)]
    found = _of_pairs(columns[-1], equal) if len(columns) <= 2 else _of_tuples(columns, equal)
    fronts = np.empty_like(found)
    fronts[order] = found
    return fronts


def _of_pairs(last: Floats, equal: NDArray[np.bool_]) -> Fronts:
    """Return the fronts of rows in lexical order, given their last column, which is their only or their second one.

    A front dominates a row if the best last value in it is not worse. These best values fall from front to front, so
    the first front that does not dominate the row is found by bisection.
    """
    least: list[float] = []  # by front, the best value, negated
    found = np.zeros(len(last), dtype=np.intp)
    for row, value in enumerate((-last).tolist()):
        if equal[row]:
            found[row] = found[row - 1]
            continue
        front = bisect_right(least, value)
        least[front : front + 1] = [value]
        found[row] = front
    return found


def _of_tuples(columns: Floats, equal: NDArray[np.bool_]) -> Fronts:
    """Return the fronts of rows in lexical order: one more than the largest front of the rows that dominate them."""
    found = np.full(len(equal), -1, dtype=np.intp)
    for row in range(len(equal)):
        if equal[row]:
            found[row] = found[row - 1]
            continue
        # a row that comes before is not worse in the first column, and not equal
        dominating = np.ones(row, dtype=np.bool_)
        for column in columns[1:]:
            dominating &= column[:row] >= column[row]
        found[row] = found[:row].max(where=dominating, initial=-1) + 1
    return found


def crowding_distances(values: Floats, fronts: Fronts) -> Floats:
    """Return the crowding distance of each row within its front: larger in a sparser region.

    It is the sum, over the objectives, of the distance between the two neighbours, as a share of the front's range. The
    two ends have an infinite distance. An objective in which a front has one value only adds nothing.
    """
    distances = np.zeros(len(values))
    for front in np.unique(fronts):
        rows = np.flatnonzero(fronts == front)
        for column in values[rows].T:
            order = np.argsort(column, kind="stable")
            ordered = column[order]
            half = 0.5 * ordered[-1] - 0.5 * ordered[0]  # of the range, which may overflow
            if half > 0.0:
                gaps = (0.5 * ordered[2:] - 0.5 * ordered[:-2]) / half
                distances[rows[order[1:-1]]] += gaps
                distances[rows[order[[0, -1]]]] = np.inf
        if len(rows) <= 2:
            distances[rows] = np.inf
    return distances


def best_first(fronts: Fronts, crowding: Floats) -> NDArray[np.intp]:
    """Return the rows, the best first: by front, then the sparser region, then the row."""
    return np.lexsort((-crowding, fronts))

"""Non-dominated sorting and crowding distance (Deb et al. 2002, NSGA-II), on plain arrays.

Rows are trials, columns are objectives, and larger is better. A row dominates another one if it is nowhere worse and
somewhere better. Front 0 holds the rows that no row dominates, front 1 those that only rows of front 0 dominate, and so
on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Fronts = NDArray[np.intp]


def non_dominated_fronts(values: Floats) -> Fronts:
    """Return the front of each row, counted from 0. All values must be finite.

    Rows are visited in lexical order, so all rows that dominate one come before it. With up to two objectives O(n log
    n), otherwise O(n log n) operations on sets of n bits, and n^2 bits of memory: 12 MB for 10,000 rows.
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
    """Return the fronts of rows in lexical order.

    If a row of a front dominates this row, so does a row of each front before. The first front without such a row is
    thus found by bisection. Sets of rows are the bits of an integer, so each comparison is one operation.
    """
    found = np.zeros(len(equal), dtype=np.intp)
    fronts: list[int] = []  # by front, the set of its rows
    for row, dominating in enumerate(_dominating(columns)):
        if equal[row]:
            found[row] = found[row - 1]
            continue
        front = bisect_left(fronts, True, key=lambda rows: not rows & dominating)
        if front == len(fronts):
            fronts.append(0)
        fronts[front] |= 1 << row
        found[row] = front
    return found


def _dominating(columns: Floats) -> list[int]:
    """Return the set of the rows that dominate each row, except for rows that are equal to the one before.

    Rows before it in lexical order are not worse in the first column, and not equal. Of these, those that are not worse
    in the other columns remain.
    """
    sets = [(1 << row) - 1 for row in range(columns.shape[1])]
    for column in columns[1:]:
        order = np.argsort(-column, kind="stable")
        ordered = column[order]
        ends = (np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()  # of the rows with one value
        rows, seen = order.tolist(), 0
        for start, end in pairwise([0, *ends, len(rows)]):
            for row in rows[start:end]:
                seen |= 1 << row
            for row in rows[start:end]:
                sets[row] &= seen
    return sets


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

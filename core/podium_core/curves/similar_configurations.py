"""How much more than any other is a new trial worth, by the trials that were opened with a configuration like its own?

Called by the `envelope` policy: before its first value a trial's parameters are all that is known of it. Kernel
regression (Nadaraya 1964, Watson 1964) of what the opened trials are worth on their parameters: a number is its place
among the numbers that the job's trials try (so no scale needs to be known), anything else is the same or not. Repeats
of one configuration, which differ in their seed only, are the clearest case; in a wide random search hardly two are
alike, and then nothing is said.

A memory of what was computed, of one board's parameters. A new trial costs O(trials x parameters).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board, Floats
from podium_core.domain.snapshot import Scalar

MOST = 128  # opened trials that are asked, evenly spaced over the rows
WIDTH = 0.1  # of the kernel, in shares of the values that are tried
KAPPA = 1.0  # a completed trial alike counts as 1, what any trial is worth as so much
_MISSING = -9.0  # a place that is as far from every other as can be

Rows = NDArray[np.intp]
Parameters = Sequence[tuple[str, Scalar]]


class Kin:
    """The parameters of a board's trials, as places; `weights` are kept until other rows are asked about."""

    def __init__(self, parameters: Sequence[Parameters]) -> None:
        self._places = places(parameters)
        self._asked: tuple[bytes, bytes] | None = None
        self._weights = self._room = np.zeros((0, 0))

    def weights(self, new: Rows, opened: Rows) -> Floats:
        """(new, opened): 1 for equal configurations, towards 0 for unlike ones."""
        asked = new.tobytes(), opened.tobytes()
        if asked != self._asked:
            columns = self._places.shape[1]
            squares = np.zeros((len(new), len(opened)))
            for column in self._places.T:
                squares += np.minimum(np.abs(column[new][:, None] - column[opened]), 1.0) ** 2
            if columns:
                self._weights = np.exp(squares / (-2.0 * WIDTH * WIDTH * columns))
            else:  # nothing tells them apart, so nothing is said
                self._weights = squares
            self._asked = asked
            self._room = np.empty_like(self._weights)
        return self._weights

    def weighted(self, new: Rows, opened: Rows, by: Floats) -> Floats:
        """The weights times `by`, one of each opened; until the next call: a new array would be new pages each time."""
        weights = self.weights(new, opened)
        return np.multiply(weights, by, out=self._room)


def places(parameters: Sequence[Parameters]) -> Floats:
    """(trials, parameters that differ). Of two trials a parameter's distance is the difference of their places, 1 at
    most: numbers lie evenly from 0 to 1 in their order, what is no number and what is missing is 1 or more apart.
    """
    given = [dict(one) for one in parameters]
    found = []
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
        place = {value: index * step for index, value in enumerate(ordered)}
        found.append([_MISSING if value is None else place[value] for value in values])
    return np.array(found).reshape(len(found), len(given)).T


def company(seen: Board, new: NDArray[np.bool_], opened: NDArray[np.bool_], worth: Floats, trained: Floats) -> Floats:
    """Of each new row, in their order: what those that were opened with a configuration like its own are worth, over
    what all are worth; 1 where none was like it. By row, of those that are `opened`: `worth`, and `trained`, the share
    of its whole training. So much it counts: where good trials start slowly,
    first values would keep all that are like them from being opened.
    """
    rows, asked = new.nonzero()[0], opened.nonzero()[0]
    if len(asked) > MOST:
        asked = asked[_spread(len(asked))]
    if not len(rows) or not len(asked):
        return np.ones(len(rows))
    mean = float(worth[asked].sum() / len(asked))  # numpy's own, a few times faster
    if mean <= 0.0:
        return np.ones(len(rows))
    kin = seen.keep("kin", lambda: Kin([() if view is None else view.parameters for view in seen.views]))
    weights = kin.weighted(rows, asked, trained[asked])
    found: Floats = (weights @ worth[asked] / mean + KAPPA) / (weights.sum(axis=1) + KAPPA)
    return found


@lru_cache(maxsize=64)
def _spread(count: int) -> Rows:
    """MOST of so many places, evenly. Not to be written into."""
    return np.linspace(0, count - 1, MOST).astype(np.intp)

"""Softmax and sums over groups of rows of different sizes. A group is one decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Rows 0..n-1 in consecutive groups. `starts`: the first row of each group; `sizes`: >= 1; shape (g,)."""

    starts: Ints
    sizes: Ints

    @classmethod
    def of(cls, sizes: Ints) -> RowGroups:
        """Return groups of these sizes."""
        return cls(np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64), sizes)

    def repeat(self, values: Floats) -> Floats:
        """Repeat one value for each group over the group's rows."""
        return np.repeat(values, self.sizes)

    def sums(self, rows: Floats) -> Floats:
        """Return the sum of each group."""
        return np.add.reduceat(rows, self.starts)

    def maxima(self, rows: Floats) -> Floats:
        """Return the maximum of each group."""
        maxima: Floats = np.maximum.reduceat(rows, self.starts)
        return maxima

    def log_softmax(self, scores: Floats) -> Floats:
        """Return the logarithm of the softmax within each group, shape (n,)."""
        shifted = scores - self.repeat(self.maxima(scores))
        return shifted - self.repeat(np.log(self.sums(np.exp(shifted))))


def stack_groups(rows: list[Floats], chosen_rows: Ints) -> tuple[RowGroups, Floats, Floats]:
    """Return the groups of these decisions, all their rows, and 1 for each chosen row (0 for others)."""
    groups = RowGroups.of(np.array([len(row) for row in rows], dtype=np.int64))
    stacked = np.concatenate(rows)
    chosen = np.zeros(len(stacked))
    chosen[groups.starts + chosen_rows] = 1.0
    return groups, stacked, chosen

"""Softmax and sums over groups of rows of different size: one group is one decision. Called by the trainers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.engine.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows 0..n-1 in groups that follow one another. `starts`: first row of each, `sizes`: at least 1, shape (g,)."""

    starts: Ints
    sizes: Ints

    @classmethod
    def of(cls, sizes: Ints) -> Groups:
        return cls(np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64), sizes)

    def spread(self, values: Floats) -> Floats:
        """One value a group to one a row."""
        return np.repeat(values, self.sizes)

    def sums(self, rows: Floats) -> Floats:
        return np.add.reduceat(rows, self.starts)

    def highest(self, rows: Floats) -> Floats:
        highest: Floats = np.maximum.reduceat(rows, self.starts)
        return highest

    def log_softmax(self, scores: Floats) -> Floats:
        """Of each row within its group, shape (n,)."""
        shifted = scores - self.spread(self.highest(scores))
        return shifted - self.spread(np.log(self.sums(np.exp(shifted))))


def stack(rows: list[Floats], picks: Ints) -> tuple[Groups, Floats, Floats]:
    """Decisions as groups of rows: the groups, all rows, and 1 for each chosen row, else 0."""
    groups = Groups.of(np.array([len(row) for row in rows], dtype=np.int64))
    stacked = np.concatenate(rows)
    chosen = np.zeros(len(stacked))
    chosen[groups.starts + picks] = 1.0
    return groups, stacked, chosen

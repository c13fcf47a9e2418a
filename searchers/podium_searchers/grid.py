"""Grid search: every combination once, the last parameter changes fastest. The points of `initialTrials` come first."""

from __future__ import annotations

from collections.abc import Sequence

from podium_core.schema.job import JobSpec
from podium_core.schema.search.grid import ParameterGrid
from podium_searchers.base import Proposal, TrialResult


class GridSearcher:
    """Proposes the points of the grid in order, without those that are tried first."""

    def propose(self, spec: JobSpec, number: int, tried: Sequence[TrialResult] = ()) -> Proposal | None:
        """Return remaining point `number` of the grid, or None after the last one."""
        grid = ParameterGrid(spec)
        if grid.size is None:
            raise ValueError("a grid needs a step for each range")
        for taken in sorted(grid.index(given) for given in spec.search.initial_trials):
            number += taken <= number
        return grid[number]

    def size(self, spec: JobSpec) -> int | None:
        """Return the number of points."""
        return ParameterGrid(spec).size

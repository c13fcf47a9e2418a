"""Successive halving without a barrier: the trials that arrived at a rung decide promotions.

`asha` calls it, and `hyperband` in the mode `async` for each of its brackets. Li et al., MLSys 2020, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import CurveTable
from podium_core.domain.snapshot import JobView
from podium_core.policies.promotable import ever_promotable
from podium_core.policies.rungs import NO_RUNG, Halving, rung_arrivals, rung_positions, top_fraction


def asynchronous_promotions(
    job: JobView, curves: CurveTable, steps: Sequence[float], eta: float, stop: bool, bracket: NDArray[np.intp]
) -> Halving:
    """Return which trials may continue.

    `bracket`: bracket of each row; the first rung of a bracket has the bracket's number. `stop`: trials that may not
    continue will be ended. Then the best of even a few arrivals is promoted, and a trial that was once among the best
    is not judged again.
    """
    arrivals, least = rung_arrivals(curves, steps, job.abilities.suspendable), int(stop)
    allowed = ever_promotable(curves, arrivals, steps, eta, least, bracket)
    positions = rung_positions(arrivals, allowed)
    promoted = (positions.rung != NO_RUNG) & (positions.rung < bracket)
    # A trial that was never promotable is not promotable now. A trial between rungs is not judged.
    eligible = ~positions.held & ~positions.between & (positions.rung >= bracket)
    if stop:
        promoted |= eligible
    else:
        for first, k in {*zip(bracket[eligible].tolist(), positions.rung[eligible].tolist(), strict=True)}:
            in_bracket = bracket == first
            promoted |= (
                in_bracket
                & eligible
                & (positions.rung == k)
                & top_fraction(np.where(in_bracket, positions.value[:, k], np.nan), eta, least)
            )
    return Halving(positions, promoted, np.zeros(len(curves), dtype=bool), len(steps))

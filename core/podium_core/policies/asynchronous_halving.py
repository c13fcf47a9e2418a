"""Successive halving without a barrier: who may go on at a rung is decided by those that came so far.

Called by `asha` and, in each of its brackets, by hyperband in the mode `async`. Li et al., MLSys 2020, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.curve_table import Board
from podium_core.domain.snapshot import JobView
from podium_core.policies.promotable import ever_promotable
from podium_core.policies.rungs import UNOPENED, Halving, climb, stand, top


def asynchronous(
    job: JobView, seen: Board, steps: Sequence[float], eta: float, stop: bool, bracket: NDArray[np.intp]
) -> Halving:
    """`bracket`: by row; a bracket's first rung has its number. `stop`: who may not go on will be ended, so that the
    best of the few that came does go on, and who was once among the best is not asked again.
    """
    climbed, least = climb(seen, steps, job.suspendable), int(stop)
    let = ever_promotable(seen, climbed, steps, eta, least, bracket)
    found = stand(climbed, let)
    promoted = (found.rung != UNOPENED) & (found.rung < bracket)
    # who was never promotable is not so now, and who is on its way is not asked
    able = ~found.held & ~found.between & (found.rung >= bracket)
    if stop:
        promoted |= able
    else:
        for first, k in {*zip(bracket[able].tolist(), found.rung[able].tolist(), strict=True)}:
            mine = bracket == first
            promoted |= mine & able & (found.rung == k) & top(np.where(mine, found.value[:, k], np.nan), eta, least)
    return Halving(found, promoted, np.zeros(len(seen), dtype=bool), len(steps))

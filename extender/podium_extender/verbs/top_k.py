"""Which of the nodes that may take a pod are handed on to kube-scheduler: the best by our score. Pure; used by
`narrow`.

kube-scheduler reads each name that filter leaves, lets its plugins score each, writes them all into its next question
and reads the answer: at 5,000 nodes that takes as long as the rest of its work on a pod (bench-scheduler.md). Its own
`percentageOfNodesToScore` leaves nodes out for the same reason, by turns; this does it by score. The favourite of
`rank` is always in the head, and kube-scheduler's own scores may still choose another of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.scores import HIGHEST

SCORED_NODES = 32  # nodes: enough for kube-scheduler's own scores to choose among


def head(
    scores: NDArray[np.int64], costs: NDArray[np.float64], places: NDArray[np.intp], most: int
) -> NDArray[np.intp]:
    """Where in `scores` the `most` highest are, in ascending order; of equal ones those of the least cost, then of the
    least place: whatever the order of the question is. Unknown costs (nan) come last. O(n).
    """
    if len(scores) <= most:
        return np.arange(len(scores))
    from_the_top = np.cumsum(np.bincount(scores, minlength=HIGHEST + 1)[::-1])
    level = HIGHEST - int(np.searchsorted(from_the_top, most))
    sure, tied = np.flatnonzero(scores > level), np.flatnonzero(scores == level)
    known = np.where(np.isnan(costs[tied]), np.inf, costs[tied])
    left = most - len(sure)
    limit = np.partition(known, left - 1)[left - 1]
    cheaper, last = tied[known < limit], tied[known == limit]
    left -= len(cheaper)
    last = last[np.argpartition(places[last], left - 1)[:left]]
    return np.sort(np.concatenate([sure, cheaper, last]))

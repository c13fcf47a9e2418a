"""filter may hand on fewer nodes than fit: the best, where nobody's wish but ours decides among them. Used by `verbs`.

By then every filter of kube-scheduler itself has passed these nodes, and one that is left out is no failed node: no
reason is given for it, none is looked at for a preemption. At least one is always handed on.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.needs import has_preferences
from podium_core.placement.scores import Ranking
from podium_core.schema.pod import Pod
from podium_extender.state.node_cache import Telemetry
from podium_extender.state.views import Views
from podium_extender.verbs.top_k import head


@dataclass(frozen=True, slots=True, eq=False)
class Handed:
    """The answer to filter, with what prioritize says when it asks of these: their scores among all that fit, and which
    of them is to have the pod.
    """

    names: tuple[str, ...]
    scores: NDArray[np.int64]
    favourite: str


def others_say(pod: Pod, telemetry: Telemetry) -> bool:
    """Not our scores alone are to decide: a node that is not among our best could be the one that the pod would rather
    have, or that other pods would rather have it on.
    """
    return has_preferences(pod) or telemetry.others_mean(pod)


def narrowed(
    ranking: Ranking, names: Sequence[str], views: Views, most: int, shunned: Set[str] = frozenset()
) -> Handed | None:
    """The `most` best of `names`, in the order given; where one of them is `shunned`, those of the others as well, for
    kube-scheduler to choose. None: no node stands alone at the top, the choice is not ours.
    """
    if ranking.favourite is None:
        return None
    scores, costs, places = ranking.scores, ranking.costs, views.places(names)
    best = head(scores, costs, places, most)
    if shunned and not shunned.isdisjoint(names[i] for i in best.tolist()):
        free = np.array([i for i, name in enumerate(names) if name not in shunned], dtype=np.intp)
        best = np.union1d(best, free[head(scores[free], costs[free], places[free], most)])
    chosen = tuple([names[i] for i in best.tolist()])
    return Handed(chosen, scores[best], names[ranking.favourite])

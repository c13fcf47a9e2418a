"""Selection of the nodes for the response of filter: those without failed bindings, and of them the best.

kube-scheduler reads each name that filter returns, lets its plugins score each node, writes all names into its next
request and reads the scores. At 5,000 nodes that takes as long as the rest of its work on a pod (bench-scheduler.md).
Its own `percentageOfNodesToScore` omits nodes for the same reason, in turn; this module omits those with low scores.

All filters of kube-scheduler itself have already passed these nodes. An omitted node is not a failed node: it has no
reason, and kube-scheduler does not search victims on it. At least one node is always returned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.placement.scores import HIGHEST, NodeRanking
from podium_extender.state.views import Views

SCORED_NODES = 32  # enough for kube-scheduler's own scores to choose among
MAX_ATTEMPTS = 2  # the first one may have failed for another reason, such as a restart of the API server
MAX_PODS = 1000  # pods remembered: those of the latest responses
FORGET_SECONDS = 600.0  # after the last attempt on a node: the cause of the failure may have gone


@dataclass(frozen=True, slots=True, eq=False)
class NodeSelection:
    """The nodes that filter returns, with their scores among all nodes that fit.

    `favourite` is the node that should get the pod.
    """

    names: tuple[str, ...]
    scores: NDArray[np.int64]
    favourite: str


def select_best(
    ranking: NodeRanking, names: Sequence[str], views: Views, limit: int, avoided: Set[str] = frozenset()
) -> NodeSelection | None:
    """Return the best `limit` of `names`, in the order given; None if no node is the single best one.

    `avoided` are nodes with a taint `PreferNoSchedule`. If one of them is selected, the best of the other nodes are
    selected as well, and kube-scheduler chooses.
    """
    if ranking.favourite is None:
        return None
    scores, costs, places = ranking.scores, ranking.costs, views.places(names)
    best = top_k(scores, costs, places, limit)
    if avoided and not avoided.isdisjoint(names[i] for i in best.tolist()):
        others = np.array([i for i, name in enumerate(names) if name not in avoided], dtype=np.intp)
        best = np.union1d(best, others[top_k(scores[others], costs[others], places[others], limit)])
    selected = tuple([names[i] for i in best.tolist()])
    return NodeSelection(selected, scores[best], names[ranking.favourite])


def top_k(scores: NDArray[np.int64], costs: NDArray[np.float64], places: NDArray[np.intp], k: int) -> NDArray[np.intp]:
    """Return the indices of the `k` highest scores, in ascending order, in O(n).

    Equal scores are ordered by lower cost, then by lower place, so the result does not depend on the order of the
    request. Unknown costs (nan) come last.
    """
    if len(scores) <= k:
        return np.arange(len(scores))
    counts_from_top = np.cumsum(np.bincount(scores, minlength=HIGHEST + 1)[::-1])
    threshold = HIGHEST - int(np.searchsorted(counts_from_top, k))
    above, tied = np.flatnonzero(scores > threshold), np.flatnonzero(scores == threshold)
    tied_costs = np.where(np.isnan(costs[tied]), np.inf, costs[tied])
    remaining = k - len(above)
    cost_limit = np.partition(tied_costs, remaining - 1)[remaining - 1]
    cheaper, last = tied[tied_costs < cost_limit], tied[tied_costs == cost_limit]
    remaining -= len(cheaper)
    last = last[np.argpartition(places[last], remaining - 1)[:remaining]]
    return np.sort(np.concatenate([above, cheaper, last]))


@dataclass(frozen=True, slots=True)
class _Attempts:
    count: int
    at: float  # time of the last one

    def counts_at(self, now: float) -> bool:
        """Return whether the attempts still count; a negative age means that the clock was set back."""
        return 0 <= now - self.at < FORGET_SECONDS


class BindingAttempts:
    """Attempts to bind each pod (by uid) to each node, to leave out nodes that failed repeatedly.

    All filters have passed when a node is chosen, but a later step may fail for it. For example, the pod's volume
    cannot be created in the zone of the node. kube-scheduler then asks again and takes the node with the highest score.
    Without this record it would take the same node forever. The extender does not learn which node kube-scheduler took.
    If kube-scheduler's own scores decided (a preferred affinity), the failing node is not detected here. The caller
    passes the times.
    """

    def __init__(self) -> None:
        self._pods: OrderedDict[str, dict[str, _Attempts]] = OrderedDict()

    def record(self, uid: str, node: str, now: float) -> None:
        """Count an attempt on the node that was the best one in a response.

        A pod is scheduled every few seconds at most, so the number of nodes remembered for it stays small.
        """
        attempts = {name: one for name, one in self._pods.pop(uid, {}).items() if one.counts_at(now)}
        before = attempts[node].count if node in attempts else 0
        self._pods[uid] = attempts | {node: _Attempts(before + 1, now)}
        if len(self._pods) > MAX_PODS:
            self._pods.popitem(last=False)

    def untried(self, uid: str, names: Sequence[str], now: float) -> Sequence[str]:
        """Return the nodes that have attempts left, or all of `names` if none has."""
        attempts = self._pods.get(uid, {})
        failed = {name for name, one in attempts.items() if one.count >= MAX_ATTEMPTS and one.counts_at(now)}
        if not failed:
            return names
        rest = tuple([name for name in names if name not in failed])
        if rest:
            return rest
        del self._pods[uid]
        return names

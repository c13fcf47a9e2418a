"""Assumed pods: pods that count on their best node until a watch shows their binding.

kube-scheduler starts with its next pod before the binding of the last one is written, and its own cache *assumes* the
last pod on its node. The extender has to do the same. Otherwise every pod of a burst would see the nodes as they were
before the burst. The result would be uneven, and a GPU could get more declared memory than it has.

The scheduler does not report its choice to an extender. (The verb `bind` would come from another thread, possibly after
the request for the next pod.) Therefore the node with the best score is assumed. If the scheduler's own scores decide
otherwise, the watch corrects the assumption with the binding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from podium_cluster.watch import Key
from podium_core.placement.node_parser import PlacedPod
from podium_extender.state.affinity_index import AffinityIndex

ASSUME_SECONDS = 30.0  # until a pod whose binding was never observed no longer counts
MAX_ASSUMED = 20_000  # pods; above that the oldest no longer counts
End = Literal["confirmed", "elsewhere", "asked_again", "gone", "expired"]


@dataclass(frozen=True, slots=True)
class _Assumption:
    key: Key
    pod: PlacedPod  # with the node that it is assumed on
    at: float


class AssumedPods:
    """The assumed pods by uid; the caller passes the times.

    Each method that ends an assumption returns the nodes that changed, and calls `ended` with the outcome.
    `assume_seconds` is the longest duration of an assumption. `terms` are the affinity terms of the assumed pods, which
    kube-scheduler already considers.
    """

    def __init__(self, assume_seconds: float = ASSUME_SECONDS, ended: Callable[[End], None] = lambda _: None) -> None:
        self._assume_seconds = assume_seconds
        self._ended = ended
        self.terms = AffinityIndex()
        self._pods: dict[str, _Assumption] = {}  # the oldest first
        self._on_node: defaultdict[str, dict[Key, PlacedPod]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._pods)

    def on(self, node: str) -> Mapping[Key, PlacedPod]:
        """Return the pods that are assumed on a node."""
        return self._on_node.get(node, {})

    def assume(self, key: Key, pod: PlacedPod, now: float) -> list[str]:
        """Assume the pod on `pod.node`, its best node."""
        changed = [pod.node, *self.forget(pod.uid)]
        if len(self._pods) >= MAX_ASSUMED:
            changed += self._end(next(iter(self._pods)), "expired")
        self._pods[pod.uid] = _Assumption(key, pod, now)
        self._on_node[pod.node][key] = pod
        for term in pod.affinity_terms:
            self.terms.add(term)
        return changed

    def forget(self, uid: str) -> list[str]:
        """End the assumption of a pod that the scheduler asks about again, so it was not bound."""
        return self._end(uid, "asked_again")

    def observe(self, uid: str, node: str) -> list[str]:
        """End the assumption if a watch shows the pod on a node; an empty `node` is an old event."""
        assumption = self._pods.get(uid)
        if assumption is None or not node:
            return []
        return self._end(uid, "confirmed" if node == assumption.pod.node else "elsewhere")

    def remove(self, uid: str) -> list[str]:
        """End the assumption of a pod that was deleted or has finished."""
        return self._end(uid, "gone")

    def expire(self, now: float) -> list[str]:
        """End the assumptions that are too old: the pod was not bound, and the scheduler did not retry it."""
        changed: list[str] = []
        while self._pods:
            uid, oldest = next(iter(self._pods.items()))
            if 0 <= now - oldest.at < self._assume_seconds:  # a negative age means that the clock was set back
                break
            changed += self._end(uid, "expired")
        return changed

    def _end(self, uid: str, outcome: End) -> list[str]:
        assumption = self._pods.pop(uid, None)
        if assumption is None:
            return []
        for term in assumption.pod.affinity_terms:
            self.terms.remove(term)
        node = assumption.pod.node
        current = self._on_node[node].get(assumption.key)
        if current is not None and current.uid == uid:  # not a later pod of the same name
            del self._on_node[node][assumption.key]
        if not self._on_node[node]:
            del self._on_node[node]
        self._ended(outcome)
        return [node]

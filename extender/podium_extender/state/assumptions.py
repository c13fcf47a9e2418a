"""Where the pods that were scored a moment ago will be: counted there until a watch shows it. Pure; `telemetry` counts
them, `verbs` says which node was scored best.

kube-scheduler takes up its next pod before the last one's binding is written, and its own cache *assumes* the last
pod on its node. Without the same here a burst would see every node as it was before the burst: uneven, and with more
declared memory on a GPU than it has. The scheduler tells no extender which node it chose (the verb `bind` would come
from a thread of its own, so just as well after the next pod's question), so the best of our scores is taken for it.
Where its own scores decide otherwise, the watch corrects that with the binding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from podium_cluster.watch import Key
from podium_core.placement.node_parser import PlacedPod
from podium_extender.state.affinity_index import FiledTerms

LONGEST = 30.0  # seconds until a pod that was never seen bound is no more counted
MOST = 20_000  # pods at once; beyond that the oldest is no more counted
End = Literal["confirmed", "elsewhere", "asked_again", "gone", "expired"]


@dataclass(frozen=True, slots=True)
class _Assumption:
    key: Key
    pod: PlacedPod  # with the node that it is assumed on
    at: float


class Assumed:
    """By the pod's uid. Each method that ends an assumption returns the nodes that changed by it; `ended` is told how
    each ended. `longest` in seconds; times are the caller's. `terms`: what they say of other pods, which kube-scheduler
    weighs from now on, too.
    """

    def __init__(self, longest: float = LONGEST, ended: Callable[[End], None] = lambda _: None) -> None:
        self._longest = longest
        self._ended = ended
        self.terms = FiledTerms()
        self._pods: dict[str, _Assumption] = {}  # the oldest first
        self._on_node: defaultdict[str, dict[Key, PlacedPod]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._pods)

    def on(self, node: str) -> Mapping[Key, PlacedPod]:
        return self._on_node.get(node, {})

    def place(self, key: Key, pod: PlacedPod, now: float) -> list[str]:
        """The pod was scored best on `pod.node`."""
        changed = [pod.node, *self.asked_again(pod.uid)]
        if len(self._pods) >= MOST:
            changed += self._end(next(iter(self._pods)), "expired")
        self._pods[pod.uid] = _Assumption(key, pod, now)
        self._on_node[pod.node][key] = pod
        for term in pod.affinity_terms:
            self.terms.add(term)
        return changed

    def asked_again(self, uid: str) -> list[str]:
        """The scheduler asks about a pod only while it has no node: whatever was assumed did not come true."""
        return self._end(uid, "asked_again")

    def seen_on(self, uid: str, node: str) -> list[str]:
        """A watch shows where the pod is; "" while it waits, which is old news."""
        assumption = self._pods.get(uid)
        if assumption is None or not node:
            return []
        return self._end(uid, "confirmed" if node == assumption.pod.node else "elsewhere")

    def gone(self, uid: str) -> list[str]:
        """It was deleted, or it is over."""
        return self._end(uid, "gone")

    def expire(self, now: float) -> list[str]:
        """Those that are too old: no binding came of them, and the scheduler did not try again."""
        changed: list[str] = []
        while self._pods:
            uid, oldest = next(iter(self._pods.items()))
            if 0 <= now - oldest.at < self._longest:  # below 0: the clock was set back, and would count for too long
                break
            changed += self._end(uid, "expired")
        return changed

    def _end(self, uid: str, how: End) -> list[str]:
        assumption = self._pods.pop(uid, None)
        if assumption is None:
            return []
        for term in assumption.pod.affinity_terms:
            self.terms.remove(term)
        node = assumption.pod.node
        if (there := self._on_node[node].get(assumption.key)) is not None and there.uid == uid:  # no later namesake
            del self._on_node[node][assumption.key]
        if not self._on_node[node]:
            del self._on_node[node]
        self._ended(how)
        return [node]

"""Nodes that a pod was to have time and again and never got: it is let go elsewhere. Pure; used by `verbs`.

All filters have passed by the time a node is chosen, but what comes after may fail for it: its volume cannot be made in
that zone, say. kube-scheduler then asks anew, and takes the node of the highest score: by us, the same one for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

TRIES = 2  # one may have failed for another reason: an API server that was away, an answer that was late
MOST = 1000  # pods remembered, those of the latest answers
FORGOTTEN = 600.0  # seconds after the last answer: what was wrong there may be right again


class Tried:
    """By the pod's uid. Times are the caller's."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, tuple[float, dict[str, int]]] = OrderedDict()

    def named(self, uid: str, node: str, now: float) -> None:
        """The answer was that this node is the best for it."""
        _, counts = self._pods.pop(uid, (now, {}))
        self._pods[uid] = now, counts | {node: counts.get(node, 0) + 1}
        if len(self._pods) > MOST:
            self._pods.popitem(last=False)

    def without(self, uid: str, names: Sequence[str], now: float) -> Sequence[str]:
        """Those of `names` that are worth a try: all of them again, where each has had its own."""
        at, counts = self._pods.get(uid, (now, {}))
        if max(counts.values(), default=0) < TRIES:
            return names
        left = tuple([name for name in names if counts.get(name, 0) < TRIES])
        if not 0 <= now - at < FORGOTTEN or not left:
            del self._pods[uid]
            return names
        return left

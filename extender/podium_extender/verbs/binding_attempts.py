"""Nodes that a pod was to have time and again and never got: it is let go elsewhere. Pure; used by `verbs`.

All filters have passed by the time a node is chosen, but what comes after may fail for it: its volume cannot be made in
that zone, say. kube-scheduler then asks anew, and takes the node of the highest score: by us, the same one for ever.
Which node it took nobody tells: where its own scores outvote ours (a preferred affinity), the one that failed stays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

TRIES = 2  # one may have failed for another reason: an API server that was away, an answer that was late
MOST = 1000  # pods remembered, those of the latest answers
FORGET_SECONDS = 600.0  # seconds after a node's last try: what was wrong there may be right again


@dataclass(frozen=True, slots=True)
class _Tries:
    count: int
    at: float  # of the last one

    def count_at(self, now: float) -> bool:
        """Below 0: the clock was set back, and they would count for too long."""
        return 0 <= now - self.at < FORGET_SECONDS


class BindingAttempts:
    """By the pod's uid, each of its nodes. Times are the caller's."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, dict[str, _Tries]] = OrderedDict()

    def named(self, uid: str, node: str, now: float) -> None:
        """The answer was that this node is the best for it. A pod is asked about every few seconds at most, so the
        nodes that are not forgotten yet stay few, however long it waits.
        """
        tries = {name: one for name, one in self._pods.pop(uid, {}).items() if one.count_at(now)}
        before = tries[node].count if node in tries else 0
        self._pods[uid] = tries | {node: _Tries(before + 1, now)}
        if len(self._pods) > MOST:
            self._pods.popitem(last=False)

    def without(self, uid: str, names: Sequence[str], now: float) -> Sequence[str]:
        """Those of `names` that are worth a try: all of them again, where each has had its own."""
        tries = self._pods.get(uid, {})
        over = {name for name, one in tries.items() if one.count >= TRIES and one.count_at(now)}
        if not over:
            return names
        left = tuple([name for name in names if name not in over])
        if left:
            return left
        del self._pods[uid]
        return names

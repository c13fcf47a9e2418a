"""Nodes that a pod was assigned repeatedly without being bound to them.

All filters have passed when a node is chosen, but a later step may fail for it. For example, the pod's volume cannot be
created in the zone of the node. kube-scheduler then asks again and takes the node with the highest score. Without this
record it would take the same node forever. The extender does not learn which node kube-scheduler took. If
kube-scheduler's own scores decided (a preferred affinity), the failing node is not detected here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

MAX_ATTEMPTS = 2  # the first one may have failed for another reason, such as a restart of the API server
MAX_PODS = 1000  # pods remembered: those of the latest responses
FORGET_SECONDS = 600.0  # after the last attempt on a node: the cause of the failure may have gone


@dataclass(frozen=True, slots=True)
class _Attempts:
    count: int
    at: float  # time of the last one

    def counts_at(self, now: float) -> bool:
        """Return whether the attempts still count; a negative age means that the clock was set back."""
        return 0 <= now - self.at < FORGET_SECONDS


class BindingAttempts:
    """Attempts to bind each pod (by uid) to each node; the caller passes the times."""

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

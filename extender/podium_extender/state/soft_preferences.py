"""What kube-scheduler's own scores may go by although the pod in question does not say it: nodes with a taint
`PreferNoSchedule`, and pods on nodes whose affinities mean this one. Kept by watches; `narrow` goes by it.

A pod counts from its binding's being seen on; until then `assumed` has its affinities. One that waits does not count:
it may wait for days, and all pods that it means would be scheduled the slow way.
What an answer costs grows neither with the pods nor with the affinities that do not concern the one in question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

from podium_cluster.watch import Key, WatchCache
from podium_core.placement.affinity import AffinityTerm
from podium_core.placement.free_cpus import NodeCpus
from podium_core.schema.pod import Pod
from podium_extender.state.affinity_index import FiledTerms


class OnNode(Protocol):
    """A pod as its cache keeps it."""

    @property
    def node(self) -> str: ...

    @property
    def affinity_terms(self) -> tuple[AffinityTerm, ...]: ...


class Preferences:
    """`nodes` and `pods` as they are watched for free CPUs, too; what is not watched is not weighed."""

    def __init__(self, nodes: WatchCache[NodeCpus] | None = None, pods: Sequence[WatchCache[Any]] = ()) -> None:
        self._caches = [*([nodes] if nodes is not None else ()), *pods]
        self._nodes = nodes
        self._shunned: set[str] = set()
        self._terms = FiledTerms()
        if nodes is not None:
            nodes.follow(self._node_changed)
        for cache in pods:
            cache.follow(self._pod_changed)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        """Those that nobody else runs."""
        return {} if self._nodes is None else {"nodes": self._nodes}

    @property
    def shunned(self) -> Set[str]:
        """Nodes with a taint `PreferNoSchedule`, whether a pod tolerates it or not."""
        return self._shunned

    def may_mean(self, pod: Pod) -> bool:
        """Some pod may prefer to be near this one, or away from it; or that cannot be told yet."""
        if not all(cache.synced for cache in self._caches):
            return True
        meta = pod.metadata
        return self._terms.any_may_mean(meta.namespace, meta.labels)

    def _node_changed(self, key: Key, before: NodeCpus | None, after: NodeCpus | None) -> None:
        if after is not None and after.prefer_no_schedule:
            self._shunned.add(key[1])
        else:
            self._shunned.discard(key[1])

    def _pod_changed(self, key: Key, before: OnNode | None, after: OnNode | None) -> None:
        gone = before.affinity_terms if before is not None and before.node else ()
        come = after.affinity_terms if after is not None and after.node else ()
        if gone == come:
            return
        for term in come:
            self._terms.add(term)
        for term in gone:
            self._terms.remove(term)

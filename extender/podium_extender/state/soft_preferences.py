"""Soft preferences of kube-scheduler that the pod itself does not state.

They are taints `PreferNoSchedule` of nodes, and affinities of other pods on nodes that match the pod. Watches keep them
up to date.

A pod's affinities count from the moment that its binding is observed; before that, `assumptions` has them. Those of an
unscheduled pod do not count: it may wait for days, and no selection would be possible for the pods that it matches. The
cost of a request depends neither on the number of pods nor on affinities that do not concern the pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

from podium_cluster.watch import Key, WatchCache
from podium_core.placement.affinity import AffinityTerm
from podium_core.placement.free_cpus import NodeCpus
from podium_core.schema.pod import Pod
from podium_extender.state.affinity_index import AffinityIndex


class OnNode(Protocol):
    """A pod as its cache keeps it."""

    @property
    def node(self) -> str: ...

    @property
    def affinity_terms(self) -> tuple[AffinityTerm, ...]: ...


class SoftPreferences:
    """Soft preferences from the watches of nodes and pods; a kind that is not watched has none.

    The caches are those that are also used for free CPUs.
    """

    def __init__(self, nodes: WatchCache[NodeCpus] | None = None, pods: Sequence[WatchCache[Any]] = ()) -> None:
        self._caches = [*([nodes] if nodes is not None else ()), *pods]
        self._nodes = nodes
        self._prefer_no_schedule: set[str] = set()
        self._terms = AffinityIndex()
        if nodes is not None:
            nodes.follow(self._node_changed)
        for cache in pods:
            cache.follow(self._pod_changed)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        """The caches that no other object runs, by name."""
        return {} if self._nodes is None else {"nodes": self._nodes}

    @property
    def prefer_no_schedule(self) -> Set[str]:
        """Nodes with a taint `PreferNoSchedule`, whether a pod tolerates it or not."""
        return self._prefer_no_schedule

    def may_match(self, pod: Pod) -> bool:
        """Return whether a soft affinity of another pod may match this one, or whether that is still unknown."""
        if not all(cache.synced for cache in self._caches):
            return True
        meta = pod.metadata
        return self._terms.any_may_match(meta.namespace, meta.labels)

    def _node_changed(self, key: Key, before: NodeCpus | None, after: NodeCpus | None) -> None:
        if after is not None and after.prefer_no_schedule:
            self._prefer_no_schedule.add(key[1])
        else:
            self._prefer_no_schedule.discard(key[1])

    def _pod_changed(self, key: Key, before: OnNode | None, after: OnNode | None) -> None:
        removed = before.affinity_terms if before is not None and before.node else ()
        added = after.affinity_terms if after is not None and after.node else ()
        if removed == added:
            return
        for term in added:
            self._terms.add(term)
        for term in removed:
            self._terms.remove(term)

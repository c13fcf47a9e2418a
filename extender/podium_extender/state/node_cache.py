"""The state of each node, kept in memory by four watches.

They watch GPUNodes, the scheduler's own pods (which an agent may not have reported yet), the agents' heartbeats, and
the ranks of trials. `free_cpus` adds free CPUs. The verbs read views of the nodes; nothing here does I/O.

An event changes only the view of its own node, so a request costs the same for any number of trials. Views are updated
between requests. After a quiet minute every node has changed, and updating 5,000 views takes a third of a second, while
kube-scheduler waits for at most one second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from podium_cluster.watch import Key, WatchCache
from podium_core.placement.node_parser import (
    LEASE_PREFIX,
    NodeReport,
    PlacedPod,
    TrialName,
    current_gpus,
    node_report,
    node_view,
    placed_pod,
)
from podium_core.placement.typical_pods import Typical, total_variation, typical_needs
from podium_core.placement.victims import Occupant
from podium_core.placement.views import PodNeed
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.pod import Pod
from podium_extender.state.assumptions import AssumedPods
from podium_extender.state.free_cpus import FreeCpus
from podium_extender.state.soft_preferences import SoftPreferences
from podium_extender.state.trials import TrialState
from podium_extender.state.views import Views

NEW_PODS = 0.1  # fraction of all pods that must come or go before the typical pods are counted again
BACKLOG = 64  # changed nodes; more are not left to the next request, which would wait for them (70 us each)
OTHER_MIX = 0.05  # fraction of the pods' mix that must change before the typical pods do, and all nodes are evaluated


def parse_gpunode(payload: Mapping[str, Any]) -> NodeReport:
    """Return the report of a GPUNode object."""
    return node_report(GPUNode.model_validate(payload))


def parse_pod(payload: Mapping[str, Any]) -> PlacedPod:
    """Return what the extender reads of a Pod object."""
    return placed_pod(Pod.model_validate(payload))


class Heartbeats:
    """Lease renewals as local times.

    A *changed* renewTime counts from the moment that it was observed. Only the first observation of a lease has to
    trust what it contains: the API server's time, as its agent knew it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def parse(self, payload: Mapping[str, Any]) -> float:
        """Return the local time of the last renewal of a Lease object."""
        name = payload["metadata"]["name"]
        written = (payload.get("spec") or {}).get("renewTime") or ""
        before = self._seen.get(name)
        if before is not None and before[0] == written:
            return before[1]
        at = self._clock() if before is not None else min(self._clock(), _timestamp(written))
        self._seen[name] = (written, at)
        return at


def _timestamp(text: str) -> float:
    """Return seconds since the epoch; an empty time is the epoch itself, so a long time ago."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else 0.0


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches without which no request can be answered."""

    nodes: WatchCache[NodeReport]
    pods: WatchCache[PlacedPod]
    heartbeats: WatchCache[float]
    trials: WatchCache[TrialState]


class NodeCache:
    """Views of the nodes by name.

    `namespace` contains the agents' leases. `assumed` are pods that count on a node before their binding is observed.
    `free_cpus` counts the free CPUs of each node. `preferences` tells whether kube-scheduler has soft preferences among
    the nodes for a pod.
    """

    def __init__(
        self,
        watches: Watches,
        *,
        namespace: str,
        clock: Callable[[], float],
        assumed: AssumedPods | None = None,
        free_cpus: FreeCpus | None = None,
        preferences: SoftPreferences | None = None,
    ) -> None:
        self._nodes = watches.nodes
        self._pods = watches.pods
        self._heartbeats = watches.heartbeats
        self._trials = watches.trials
        self._namespace = namespace
        self.clock = clock
        self._assumed = AssumedPods() if assumed is None else assumed
        self._free_cpus = free_cpus
        self.preferences = preferences or SoftPreferences()
        self.cpus_known = False  # as of the last call of `views`
        self._views = Views()
        self._changed: set[str] = set()  # nodes whose views have to be updated
        self._on_node: defaultdict[str, dict[Key, PlacedPod]] = defaultdict(dict)
        self._ranks: dict[TrialName, int] = {}
        self._reported_on: defaultdict[TrialName, set[str]] = defaultdict(set)  # nodes whose agents report the trial
        self._needs: Counter[PodNeed] = Counter()
        self._typical: Typical = ()
        self._uncounted = 0  # pods that came or went since `_typical` was counted
        watches.nodes.follow(self._node_changed)
        watches.pods.follow(self._pod_changed)
        watches.heartbeats.follow(self._heartbeat)
        watches.trials.follow(self._trial_changed)
        for cache in self.caches.values():
            cache.subscribe(self._update_backlog)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        """The caches without which no request can be answered, by name."""
        return {"GPUNodes": self._nodes, "pods": self._pods, "heartbeats": self._heartbeats, "trials": self._trials}

    @property
    def optional_caches(self) -> Mapping[str, WatchCache[Any]]:
        """The caches that are not waited for, by name; without them less is known."""
        return {**self.preferences.caches, **({} if self._free_cpus is None else self._free_cpus.caches)}

    def not_ready(self) -> str | None:
        """Return None once every cache has its first list; before that, a sentence with the missing ones."""
        waiting = [name for name, cache in self.caches.items() if not cache.synced]
        return f"waiting for the first list of {' and '.join(waiting)}" if waiting else None

    def views(self) -> Views:
        """Return the views of all nodes, as they are now."""
        self._changed.update(self._assumed.expire(self.clock()))
        self._update_cpus()
        self._update_changed()
        return self._views

    def _update_backlog(self) -> None:
        """Update the views after many events, but not during the first lists, of which each changes every node."""
        if len(self._changed) >= BACKLOG and self.not_ready() is None:
            self._update_changed()

    def _update_changed(self) -> None:
        for name in sorted(self._changed):  # places of new nodes decide ties, so all replicas need the same order
            self._update(name)
        self._changed.clear()

    def _update_cpus(self) -> None:
        """Update the free CPUs; the GPUs of these views remain the same object, so few costs are computed again."""
        if self._free_cpus is None:
            return
        changed, known = self._free_cpus.changed(), self._free_cpus.known()
        if known != self.cpus_known:
            self.cpus_known, changed = known, frozenset(self._views.names())
        for name in changed - self._changed:
            if self._views.known(name):
                current = self._views.get(name)
                self._views.put(replace(current, cpu_free=self._cpu_free(name, self._pods_on(name))))

    def forget_assumption(self, uid: str) -> None:
        """End the assumption of a pod that the scheduler asks about, because it has no node yet."""
        self._changed.update(self._assumed.forget(uid))

    def assume(self, key: Key, pod: PlacedPod) -> None:
        """Count the pod on `pod.node` from now on."""
        self._changed.update(self._assumed.assume(key, pod, self.clock()))

    def may_be_preferred_by_others(self, pod: Pod) -> bool:
        """Return whether a pod on a node, or assumed on one, may prefer to be near this one or away from it."""
        meta = pod.metadata
        return self.preferences.may_match(pod) or self._assumed.terms.any_may_match(meta.namespace, meta.labels)

    def occupants(self, name: str) -> dict[str, Occupant]:
        """Return the scheduler's own pods on a node by uid, with the work that each would lose.

        They include assumed pods. The scheduler may propose them as victims, and a refusal would make the preemptor
        wait.
        """
        return {pod.uid: self._occupant(pod) for pod in self._pods_on(name).values()}

    def _pods_on(self, name: str) -> Mapping[Key, PlacedPod]:
        return {**self._on_node.get(name, {}), **self._assumed.on(name)}

    def _occupant(self, pod: PlacedPod) -> Occupant:
        trial = self._trials.get(*pod.trial) if pod.trial else None
        if trial is None:  # unknown or deleted, so it has no work to lose
            return Occupant(pod)
        return Occupant(pod, trial.rank, trial.unsaved.gpu_seconds, steps=trial.unsaved.steps, trial_uid=trial.uid)

    def typical(self) -> Typical:
        """Return the most frequent needs of the present pods, for the policies `fragmentation` and `fill`.

        Pods come and go all the time. The same object is returned until their mix changes.
        """
        if not self._typical or self._uncounted > NEW_PODS * self._needs.total():
            typical, self._uncounted = typical_needs(self._needs), 0
            if total_variation(self._typical, typical) > OTHER_MIX:
                self._typical = typical
        return self._typical

    def _update(self, name: str) -> None:
        node = self._nodes.get("", name)
        if node is None:
            self._views.drop(name)
            return
        # in the same order for observed and assumed pods, so that an expected binding changes nothing
        pods = self._pods_on(name)
        gpus = current_gpus(node, [pods[key] for key in sorted(pods)], self._ranks)
        cpu_free = self._cpu_free(name, pods)
        self._views.put(node_view(name, gpus, node.written_at, self._last_heartbeat(name), self.clock(), cpu_free))

    def _cpu_free(self, name: str, pods: Mapping[Key, PlacedPod]) -> int | None:
        return self._free_cpus.free(name, pods.values()) if self._free_cpus is not None and self.cpus_known else None

    def _last_heartbeat(self, name: str) -> float | None:
        return self._heartbeats.get(self._namespace, LEASE_PREFIX + name)

    def _node_changed(self, key: Key, before: NodeReport | None, after: NodeReport | None) -> None:
        if before == after:  # the objects were listed again
            return
        name = key[1]
        self._changed.add(name)
        for trial in _trials_of(before) - _trials_of(after):
            self._reported_on[trial].discard(name)
            if not self._reported_on[trial]:
                del self._reported_on[trial]
        for trial in _trials_of(after):
            self._reported_on[trial].add(name)

    def _pod_changed(self, key: Key, before: PlacedPod | None, after: PlacedPod | None) -> None:
        counted = self._is_counted(key, before, after)
        if before is not None:
            self._needs.subtract((self._need(before),))
            if before.node:
                self._on_node[before.node].pop(key, None)
                self._changed.update(() if counted else (before.node,))
            if after is None or after.uid != before.uid:
                self._changed.update(self._assumed.remove(before.uid))
        if after is not None:
            self._needs[self._need(after)] += 1
            finished = not after.node and not after.pending
            ended = self._assumed.remove(after.uid) if finished else self._assumed.observe(after.uid, after.node)
            self._changed.update(node for node in ended if not counted or node != after.node)
            if after.node:
                self._on_node[after.node][key] = after
                self._changed.update(() if counted else (after.node,))
        self._uncounted += before is None or after is None

    def _need(self, pod: PlacedPod) -> PodNeed:
        """Return the need that counts for the typical pods: with its CPUs if those of the nodes are watched."""
        return pod.need if self._free_cpus is None else pod.need_with_cpus

    def _is_counted(self, key: Key, before: PlacedPod | None, after: PlacedPod | None) -> bool:
        """Return whether the pod already counted the same on its node, observed or assumed, as after most events."""
        if after is None or not after.node:
            return False
        counted = before if before is not None and before.node else self._assumed.on(after.node).get(key)
        load = after.node, after.uid, after.need, after.requests
        return counted is not None and (counted.node, counted.uid, counted.need, counted.requests) == load

    def _heartbeat(self, key: Key, before: float | None, after: float | None) -> None:
        """Update the time of a view, as after most events; its GPUs remain the same object, so no cost changes."""
        name = key[1].removeprefix(LEASE_PREFIX)
        node = self._nodes.get("", name)
        if node is not None and self._views.known(name):
            current = self._views.get(name)
            self._views.put(node_view(name, current.gpus, node.written_at, after, self.clock(), current.cpu_free))

    def _trial_changed(self, key: Key, before: TrialState | None, after: TrialState | None) -> None:
        """Update the rank; most events extend only a curve and change no node."""
        ranks = (before.rank if before else None, after.rank if after else None)
        if ranks[0] == ranks[1]:
            return
        if ranks[1] is None:
            self._ranks.pop(key, None)
        else:
            self._ranks[key] = ranks[1]
        self._changed.update(self._reported_on.get(key, ()))


def _trials_of(node: NodeReport | None) -> frozenset[TrialName]:
    return frozenset(name for names in node.trials for name in names) if node else frozenset()

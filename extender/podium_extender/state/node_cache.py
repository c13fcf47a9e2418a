"""What the extender knows of each node, kept in memory by four watches: GPUNodes (telemetry), the scheduler's own pods
(placed, perhaps not yet seen by an agent), the agents' heartbeats, and trials (rank); free CPUs come from `room`.
`verbs` asks it for views; nothing here does I/O.

An event changes the view of its own node and no other, so a request costs the same however many trials there are. Views
are made between the questions: after a quiet minute every node has changed, and to make 5,000 views takes a third of a
second, of the one that kube-scheduler waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
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
from podium_extender.state.assumptions import Assumed
from podium_extender.state.free_cpus import Room
from podium_extender.state.soft_preferences import Preferences
from podium_extender.state.trials import SeenTrial
from podium_extender.state.views import Views

NEW_PODS = 0.1  # part of all pods that must have come or gone before what is typical is counted anew
BACKLOG = 64  # changed nodes; more are not left to the next question, which would wait for them (70 us each)
OTHER_MIX = 0.05  # part of them that must be of another kind before the answer changes: all nodes are looked at then


def parse_gpunode(payload: Mapping[str, Any]) -> NodeReport:
    return node_report(GPUNode.model_validate(payload))


def parse_pod(payload: Mapping[str, Any]) -> PlacedPod:
    return placed_pod(Pod.model_validate(payload))


class Heartbeats:
    """Lease renewals as local times: clocks of nodes differ, so a *changed* renewTime counts from when we saw it.

    Only the first sight of a lease has to believe the node's own clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def parse(self, payload: Mapping[str, Any]) -> float:
        name = payload["metadata"]["name"]
        written = (payload.get("spec") or {}).get("renewTime") or ""
        before = self._seen.get(name)
        if before is not None and before[0] == written:
            return before[1]
        at = self._clock() if before is not None else min(self._clock(), _timestamp(written))
        self._seen[name] = (written, at)
        return at


def _timestamp(text: str) -> float:
    """Seconds since the epoch; an empty time is the epoch itself, so: long ago."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else 0.0


class Telemetry:
    """Views of nodes by name. `namespace` is where the agents' leases are; `assumed` are pods that count already;
    `room` knows of CPUs, `preferences` what kube-scheduler may go by beside our scores.
    """

    def __init__(
        self,
        nodes: WatchCache[NodeReport],
        pods: WatchCache[PlacedPod],
        beats: WatchCache[float],
        trials: WatchCache[SeenTrial],
        *,
        namespace: str,
        clock: Callable[[], float],
        assumed: Assumed | None = None,
        room: Room | None = None,
        preferences: Preferences | None = None,
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._beats = beats
        self._trials = trials
        self._namespace = namespace
        self.clock = clock
        self._assumed = Assumed() if assumed is None else assumed
        self._room = room
        self.preferences = preferences or Preferences()
        self.cpus_known = False  # as of the last `views`
        self._views = Views()
        self._changed: set[str] = set()  # nodes whose view has to be made anew
        self._on_node: defaultdict[str, dict[Key, PlacedPod]] = defaultdict(dict)
        self._ranks: dict[TrialName, int] = {}
        self._seats: defaultdict[TrialName, set[str]] = defaultdict(set)  # nodes whose agents report the trial
        self._needs: Counter[PodNeed] = Counter()
        self._typical: Typical = ()
        self._uncounted = 0  # pods that came or went since `_typical` was counted
        nodes.follow(self._node_changed)
        pods.follow(self._pod_changed)
        beats.follow(self._beat)
        trials.follow(self._trial_changed)
        for cache in self.caches.values():
            cache.subscribe(self._keep_up)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        return {"GPUNodes": self._nodes, "pods": self._pods, "heartbeats": self._beats, "trials": self._trials}

    @property
    def more_caches(self) -> Mapping[str, WatchCache[Any]]:
        """Those that are not waited for: without them less is known."""
        return {**self.preferences.caches, **({} if self._room is None else self._room.caches)}

    def cold(self) -> str | None:
        """None once every cache has its first list; before that, the sentence that says what is awaited."""
        waiting = [name for name, cache in self.caches.items() if not cache.synced]
        return f"waiting for the first list of {' and '.join(waiting)}" if waiting else None

    def views(self) -> Views:
        """All nodes, as they are now."""
        self._changed.update(self._assumed.expire(self.clock()))
        self._look_at_cpus()
        self._make_changed()
        return self._views

    def _keep_up(self) -> None:
        """After each event. While the first lists come, every one of them changes every node: they are waited for."""
        if len(self._changed) >= BACKLOG and self.cold() is None:
            self._make_changed()

    def _make_changed(self) -> None:
        for name in sorted(self._changed):  # a new node's place decides between equal ones: the same on every replica
            self._make(name)
        self._changed.clear()

    def _look_at_cpus(self) -> None:
        """Nodes of which nothing but that changed keep their GPUs, the very same object: few costs are found anew."""
        if self._room is None:
            return
        changed, known = self._room.changed(), self._room.known()
        if known != self.cpus_known:
            self.cpus_known, changed = known, frozenset(self._views.names())
        for name in changed - self._changed:
            if self._views.known(name):
                seen = self._views.get(name)
                self._views.put(replace(seen, cpu_free=self._cpu_free(name, self._there(name))))

    def asked_about(self, uid: str) -> None:
        """The scheduler asks about this pod, so it has no node yet."""
        self._changed.update(self._assumed.asked_again(uid))

    def expect(self, key: Key, pod: PlacedPod) -> None:
        """It will be on this node, as far as can be told: it counts there from now on."""
        self._changed.update(self._assumed.place(key, pod, self.clock()))

    def others_mean(self, pod: Pod) -> bool:
        """Some pod on a node, or assumed on one, may prefer to be near this one, or away from it."""
        meta = pod.metadata
        return self.preferences.may_mean(pod) or self._assumed.terms.any_may_mean(meta.namespace, meta.labels)

    def occupants(self, name: str) -> dict[str, Occupant]:
        """The scheduler's own pods on a node by uid, with what each would lose; also those of which the binding was not
        seen yet: the scheduler may propose them, and to refuse would park the pod that asks. O(pods of that node).
        """
        return {pod.uid: self._occupant(pod) for pod in self._there(name).values()}

    def _there(self, name: str) -> Mapping[Key, PlacedPod]:
        return {**self._on_node.get(name, {}), **self._assumed.on(name)}

    def _occupant(self, pod: PlacedPod) -> Occupant:
        trial = self._trials.get(*pod.trial) if pod.trial else None
        if trial is None:  # nothing is known of it, or its object is gone: nobody waits for what it would save
            return Occupant(pod)
        return Occupant(pod, trial.rank, trial.unsaved.gpu_seconds, steps=trial.unsaved.steps, trial_uid=trial.uid)

    def typical(self) -> Typical:
        """The most frequent needs of the pods that there are, for `fragmentation` and `fill`. Pods come and go all the
        time; the very same object is given until their mix is another.
        """
        if not self._typical or self._uncounted > NEW_PODS * self._needs.total():
            found, self._uncounted = typical_needs(self._needs), 0
            if total_variation(self._typical, found) > OTHER_MIX:
                self._typical = found
        return self._typical

    def _make(self, name: str) -> None:
        node = self._nodes.get("", name)
        if node is None:
            self._views.drop(name)
            return
        # in one order, whether they are seen there or assumed: a binding that was expected changes nothing
        pods = self._there(name)
        gpus = current_gpus(node, [pods[key] for key in sorted(pods)], self._ranks)
        cpu_free = self._cpu_free(name, pods)
        self._views.put(node_view(name, gpus, node.written_at, self._heard(name), self.clock(), cpu_free))

    def _cpu_free(self, name: str, pods: Mapping[Key, PlacedPod]) -> int | None:
        return self._room.free(name, pods.values()) if self._room is not None and self.cpus_known else None

    def _heard(self, name: str) -> float | None:
        return self._beats.get(self._namespace, LEASE_PREFIX + name)

    def _node_changed(self, key: Key, before: NodeReport | None, after: NodeReport | None) -> None:
        if before == after:  # all were listed anew
            return
        name = key[1]
        self._changed.add(name)
        for trial in _trials_of(before) - _trials_of(after):
            self._seats[trial].discard(name)
            if not self._seats[trial]:
                del self._seats[trial]
        for trial in _trials_of(after):
            self._seats[trial].add(name)

    def _pod_changed(self, key: Key, before: PlacedPod | None, after: PlacedPod | None) -> None:
        counted = self._counted(key, before, after)
        if before is not None:
            self._needs.subtract((self._wanted(before),))
            if before.node:
                self._on_node[before.node].pop(key, None)
                self._changed.update(() if counted else (before.node,))
            if after is None or after.uid != before.uid:
                self._changed.update(self._assumed.gone(before.uid))
        if after is not None:
            self._needs[self._wanted(after)] += 1
            over = not after.node and not after.pending
            moved = self._assumed.gone(after.uid) if over else self._assumed.seen_on(after.uid, after.node)
            self._changed.update(node for node in moved if not counted or node != after.node)
            if after.node:
                self._on_node[after.node][key] = after
                self._changed.update(() if counted else (after.node,))
        self._uncounted += before is None or after is None

    def _wanted(self, pod: PlacedPod) -> PodNeed:
        """As it is counted for what is typical: with its CPUs, where those of the nodes are watched."""
        return pod.need if self._room is None else pod.need_with_cpus

    def _counted(self, key: Key, before: PlacedPod | None, after: PlacedPod | None) -> bool:
        """It counts on its node just as it did before, seen or assumed there: most events of pods change nothing."""
        if after is None or not after.node:
            return False
        there = before if before is not None and before.node else self._assumed.on(after.node).get(key)
        weight = after.node, after.uid, after.need, after.requests
        return there is not None and (there.node, there.uid, there.need, there.requests) == weight

    def _beat(self, key: Key, before: float | None, after: float | None) -> None:
        """Most events are these: what is known of the GPUs stays the same object, so that no cost is found anew."""
        name = key[1].removeprefix(LEASE_PREFIX)
        node = self._nodes.get("", name)
        if node is not None and self._views.known(name):
            seen = self._views.get(name)
            self._views.put(node_view(name, seen.gpus, node.written_at, after, self.clock(), seen.cpu_free))

    def _trial_changed(self, key: Key, before: SeenTrial | None, after: SeenTrial | None) -> None:
        """A curve grows every few seconds and moves nothing; a rank does."""
        ranks = (before.rank if before else None, after.rank if after else None)
        if ranks[0] == ranks[1]:
            return
        if ranks[1] is None:
            self._ranks.pop(key, None)
        else:
            self._ranks[key] = ranks[1]
        self._changed.update(self._seats.get(key, ()))


def _trials_of(node: NodeReport | None) -> frozenset[TrialName]:
    return frozenset(name for names in node.trials for name in names) if node else frozenset()

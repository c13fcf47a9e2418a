"""What the extender knows of each node, kept in memory by three watches: GPUNodes (telemetry), the scheduler's own pods
(placed, perhaps not yet seen by an agent) and the agents' heartbeats. `app` asks it for views; nothing here does I/O.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from podium.placement.views import GpuReading, NodeView, PodNeed
from podium.schema.gpunode import GPUNode, GpuStatus
from podium_cluster.watch import WatchCache
from podium_extender.needs import BadPodError, need_of
from podium_extender.wire import Pod

LEASE_PREFIX = "podium-agent-"
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Reported:
    """One GPUNode as its agent last wrote it."""

    gpus: tuple[GpuReading, ...]
    pods: frozenset[str]  # uids of the pods that the agent counts already
    written_at: float | None


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod of our scheduler; `node` is empty while it waits or when it is over."""

    uid: str
    node: str
    need: PodNeed


def parse_gpunode(payload: Mapping[str, Any]) -> Reported:
    status = GPUNode.model_validate(payload).status
    return Reported(
        gpus=tuple(_reading(gpu) for gpu in status.gpus),
        pods=frozenset(trial.pod_uid for gpu in status.gpus for trial in gpu.trials),
        written_at=status.updated_at.timestamp() if status.updated_at else None,
    )


def _reading(gpu: GpuStatus) -> GpuReading:
    return GpuReading(
        uuid=gpu.uuid,
        product=gpu.product,
        memory_total=gpu.memory_total,
        memory_reserved=gpu.memory_reserved,
        memory_used=gpu.memory_used,
        sm_utilization=gpu.sm_utilization,
        health=gpu.health,
        health_reason=gpu.health_reason,
        shares=gpu.shares,
        trials=len(gpu.trials),
        throttled=bool(gpu.throttle),
    )


def parse_pod(payload: Mapping[str, Any]) -> PlacedPod:
    pod = Pod.model_validate(payload)
    try:
        need = need_of(pod)
    except BadPodError:  # it is on its node all the same, with whatever the scheduler counted
        need = PodNeed(gpus=1)
    return PlacedPod(pod.metadata.uid, "" if pod.status.phase in _OVER else pod.spec.node_name, need)


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
    """Views of nodes by name. `namespace` is where the agents' leases are."""

    def __init__(
        self,
        nodes: WatchCache[Reported],
        pods: WatchCache[PlacedPod],
        beats: WatchCache[float],
        *,
        namespace: str,
        clock: Callable[[], float],
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._beats = beats
        self._namespace = namespace
        self.clock = clock
        self._placed: Mapping[str, Sequence[PlacedPod]] | None = None
        pods.subscribe(self._forget_placed)

    @property
    def caches(self) -> tuple[WatchCache[Any], ...]:
        return (self._nodes, self._pods, self._beats)

    def cold(self) -> str | None:
        """None once every cache has its first list; before that, the sentence that says what is awaited."""
        names = ("GPUNodes", "pods", "heartbeat leases")
        waiting = [name for name, cache in zip(names, self.caches, strict=True) if not cache.synced]
        return f"waiting for the first list of {' and '.join(waiting)}" if waiting else None

    def views(self, names: Iterable[str]) -> list[NodeView]:
        """One view a name, in the same order; a node without a GPUNode has no GPUs and was never heard."""
        if self._placed is None:
            self._placed = _by_node(self._pods.values())
        return [self._view(name, self._placed.get(name, ())) for name in names]

    def _view(self, name: str, placed: Sequence[PlacedPod]) -> NodeView:
        node = self._nodes.get("", name)
        if node is None:
            return NodeView(name=name, gpus=(), reported_at=None)
        beat = self._beats.get(self._namespace, LEASE_PREFIX + name)
        heard = [at for at in (beat, node.written_at) if at is not None]
        unseen = [pod.need for pod in placed if pod.uid not in node.pods]
        gpus = charge(node.gpus, unseen) if unseen else node.gpus
        return NodeView(name=name, gpus=gpus, reported_at=max(heard) if heard else None)

    def _forget_placed(self) -> None:
        self._placed = None


def charge(gpus: tuple[GpuReading, ...], needs: Iterable[PodNeed]) -> tuple[GpuReading, ...]:
    """Add pods that the agent has not reported yet, each where the device plugin would put it: on the least loaded."""
    charged = list(gpus)
    for need in needs:
        order = sorted(
            range(len(charged)),
            key=lambda i: (charged[i].health == "Unhealthy", charged[i].trials, charged[i].memory_reserved, i),
        )
        for i in order[: need.gpus]:
            gpu = charged[i]
            charged[i] = replace(gpu, trials=gpu.trials + 1, memory_reserved=gpu.memory_reserved + (need.memory or 0))
    return tuple(charged)


def _by_node(pods: Iterable[PlacedPod]) -> Mapping[str, Sequence[PlacedPod]]:
    placed: defaultdict[str, list[PlacedPod]] = defaultdict(list)
    for pod in pods:
        if pod.node:
            placed[pod.node].append(pod)
    return placed

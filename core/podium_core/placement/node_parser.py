"""From a GPUNode object to what placement sees of the node: its GPUs, the trials on them, and pods that no agent has
reported yet.

Used by the extender (`telemetry`, from watches) and by `podium explain pod` (from lists): both see the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from podium_core.placement.affinity import AffinityTerm, terms_about_other_pods
from podium_core.placement.gpu_choice import charge
from podium_core.placement.needs import TRIAL_LABEL, InvalidPodError, has_placement_constraints, need_of
from podium_core.placement.requests import requests_of
from podium_core.placement.views import CLOCK_SKEW, GpuReading, NodeView, PodNeed
from podium_core.schema.gpunode import GPUNode, GpuStatus
from podium_core.schema.pod import Pod

TrialName = tuple[str, str]  # namespace and name
LEASE_PREFIX = "podium-agent-"  # + the node's name: the agent's heartbeat
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One GPUNode as its agent last wrote it; `trials`: of each GPU, in the order of `gpus`."""

    gpus: tuple[GpuReading, ...]
    trials: tuple[tuple[TrialName, ...], ...]
    written_at: float | None  # by the node's clock


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod of our scheduler; `node` is empty while it waits or when it is over."""

    uid: str
    node: str
    need: PodNeed
    trial: TrialName | None = None  # whose pod it is; None: of none
    priority: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)  # thousandths by resource
    exchangeable: bool = False  # another pod that requests as much leaves the same room
    terminating: bool = False  # it was told to end
    deletion_deadline: float | None = None  # when its time to end is over
    started_at: float | None = None  # when its first container started; None: it has not
    pending: bool = False  # for a node; a pod behind a scheduling gate does not yet
    affinity_terms: tuple[AffinityTerm, ...] = ()  # what it says of other pods, once it is on its node

    @property
    def need_with_cpus(self) -> PodNeed:
        """Its need with the CPUs that it requests, for the policies that know of those."""
        return replace(self.need, cpu=self.requests.get("cpu", 0))


def node_report(node: GPUNode) -> NodeReport:
    status = node.status
    return NodeReport(
        gpus=tuple(gpu_reading(gpu) for gpu in status.gpus),
        trials=tuple(tuple((trial.namespace, trial.trial) for trial in gpu.trials) for gpu in status.gpus),
        written_at=status.updated_at.timestamp() if status.updated_at else None,
    )


def placed_pod(pod: Pod, need: PodNeed | None = None) -> PlacedPod:
    """`need`: what `need_of` says of it, where the caller has asked already."""
    meta, spec = pod.metadata, pod.spec
    exchangeable = not has_placement_constraints(pod)
    try:
        need, requests = need or need_of(pod), requests_of(pod.spec)
    except InvalidPodError:  # it is on its node all the same, with whatever the scheduler counted
        need, requests, exchangeable = PodNeed(gpus=1), {}, False
    trial = meta.labels.get(TRIAL_LABEL)
    return PlacedPod(
        uid=meta.uid,
        node="" if pod.status.phase in _OVER else spec.node_name,
        need=need,
        trial=(meta.namespace, trial) if trial else None,
        priority=spec.priority,
        requests=requests,
        exchangeable=exchangeable,
        terminating=meta.deletion_timestamp is not None,
        deletion_deadline=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else None,
        started_at=_began(pod),
        affinity_terms=terms_about_other_pods(meta.namespace, spec.affinity),
        pending=not spec.node_name and not spec.scheduling_gates and pod.status.phase not in _OVER,
    )


def _began(pod: Pod) -> float | None:
    main = [container.name for container in pod.spec.containers[:1]]
    first = next((one for one in pod.status.container_statuses if one.name in main), None)
    running = first.state.running if first is not None else None
    return running.started_at.timestamp() if running is not None and running.started_at is not None else None


def current_gpus(node: NodeReport, pods: Iterable[PlacedPod], ranks: Mapping[TrialName, int]) -> tuple[GpuReading, ...]:
    """The GPUs with their trials' ranks, and with the pods that the scheduler placed after the agent's last word."""
    seen = frozenset(uid for gpu in node.gpus for uid in gpu.pods)
    gpus = tuple(
        replace(gpu, ranks=tuple(ranks.get(name) for name in names)) if names else gpu
        for gpu, names in zip(node.gpus, node.trials, strict=True)
    )
    unseen = [pod.need for pod in pods if pod.uid not in seen and not pod.need.exclusive]
    return charge(gpus, unseen) if unseen else gpus


def node_view(
    name: str,
    gpus: tuple[GpuReading, ...],
    written_at: float | None,
    beat: float | None,
    now: float,
    cpu_free: int | None = None,
) -> NodeView:
    """`written_at` (by the node's clock) counts only where it is not still to come: a node whose clock is ahead would
    else look alive long after its agent died. `beat`: when its heartbeat last changed, by our own clock.
    """
    if written_at is not None and written_at > now + CLOCK_SKEW:
        written_at = None
    heard = [at for at in (beat, written_at) if at is not None]
    return NodeView(name=name, gpus=gpus, reported_at=max(heard) if heard else None, cpu_free=cpu_free)


def gpu_reading(gpu: GpuStatus) -> GpuReading:
    """A guest counts as a trial that never leaves: it has a share, and its memory stays."""
    return GpuReading(
        uuid=gpu.uuid,
        product=gpu.product,
        memory_total=gpu.memory_total,
        memory_reserved=gpu.memory_claimed,
        memory_movable=gpu.memory_movable,
        memory_used=gpu.memory_used,
        sm_utilization=gpu.sm_utilization,
        health=gpu.health,
        health_reason=gpu.health_reason,
        slots=gpu.slots,
        trials=len(gpu.trials) + len(gpu.other_pods),
        pods=(*(trial.pod_uid for trial in gpu.trials), *(guest.pod_uid for guest in gpu.other_pods)),
        throttled=bool(gpu.throttle),
        temperature=gpu.temperature,
        ecc_uncorrected=gpu.ecc_uncorrected,
        xid=gpu.xid,
    )

"""Reader of GPUNode objects: the GPUs of a node, the trials on them, and pods that no agent has reported yet.

The extender (from watches) and `podium explain pod` (from lists) use it, so both see the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from podium_core.placement.affinity import AffinityTerm, terms_about_other_pods
from podium_core.placement.gpu_choice import charge
from podium_core.placement.needs import TRIAL_LABEL, InvalidPodError, has_placement_constraints, need_of
from podium_core.placement.requests import requests_of
from podium_core.placement.views import CLOCK_SKEW, GpuCondition, GpuReading, MemoryUse, NodeView, PodNeed
from podium_core.schema.gpunode import GPUNode, GpuStatus
from podium_core.schema.pod import Pod

TrialName = tuple[str, str]  # namespace and name
LEASE_PREFIX = "podium-agent-"  # + the node's name: the Lease that is the agent's heartbeat
_ENDED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A GPUNode as its agent last wrote it. `trials` holds the trials of each GPU, in the order of `gpus`."""

    gpus: tuple[GpuReading, ...]
    trials: tuple[tuple[TrialName, ...], ...]
    written_at: float | None  # by the node's clock


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod of Podium's scheduler; `node` is empty while it waits or after it has ended."""

    uid: str
    node: str
    need: PodNeed
    trial: TrialName | None = None  # trial of the pod; None: it is not a trial
    priority: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)  # thousandths by resource
    exchangeable: bool = False  # another pod with equal requests would free the same capacity
    terminating: bool = False  # it is being deleted
    deletion_deadline: float | None = None  # when its grace period is over
    started_at: float | None = None  # when its first container started; None: not started
    pending: bool = False  # it waits for a node and has no scheduling gate
    affinity_terms: tuple[AffinityTerm, ...] = ()  # its terms about other pods, once it is on its node

    @property
    def need_with_cpus(self) -> PodNeed:
        """Return the pod's need with the CPUs that it requests, for policies that use them."""
        return replace(self.need, cpu=self.requests.get("cpu", 0))


def node_report(node: GPUNode) -> NodeReport:
    """Return the content of a GPUNode for placement."""
    status = node.status
    return NodeReport(
        gpus=tuple(gpu_reading(gpu) for gpu in status.gpus),
        trials=tuple(tuple((trial.namespace, trial.trial) for trial in gpu.trials) for gpu in status.gpus),
        written_at=status.updated_at.timestamp() if status.updated_at else None,
    )


def placed_pod(pod: Pod, need: PodNeed | None = None) -> PlacedPod:
    """Return the pod as placement sees it. `need`: the result of `need_of`, if the caller has it already."""
    meta, spec = pod.metadata, pod.spec
    exchangeable = not has_placement_constraints(pod)
    try:
        need, requests = need or need_of(pod), requests_of(pod.spec)
    except InvalidPodError:  # it is on its node nevertheless, with what the scheduler counted
        need, requests, exchangeable = PodNeed(gpus=1), {}, False
    trial = meta.labels.get(TRIAL_LABEL)
    return PlacedPod(
        uid=meta.uid,
        node="" if pod.status.phase in _ENDED_PHASES else spec.node_name,
        need=need,
        trial=(meta.namespace, trial) if trial else None,
        priority=spec.priority,
        requests=requests,
        exchangeable=exchangeable,
        terminating=meta.deletion_timestamp is not None,
        deletion_deadline=meta.deletion_timestamp.timestamp() if meta.deletion_timestamp else None,
        started_at=_began(pod),
        affinity_terms=terms_about_other_pods(meta.namespace, spec.affinity),
        pending=not spec.node_name and not spec.scheduling_gates and pod.status.phase not in _ENDED_PHASES,
    )


def _began(pod: Pod) -> float | None:
    main = [container.name for container in pod.spec.containers[:1]]
    first = next((one for one in pod.status.container_statuses if one.name in main), None)
    running = first.state.running if first is not None else None
    return running.started_at.timestamp() if running is not None and running.started_at is not None else None


def current_gpus(node: NodeReport, pods: Iterable[PlacedPod], ranks: Mapping[TrialName, int]) -> tuple[GpuReading, ...]:
    """Return the GPUs with the ranks of their trials and with unreported pods.

    Unreported pods were placed after the agent's last report.
    """
    reported = frozenset(uid for gpu in node.gpus for uid in gpu.pods)
    gpus = tuple(
        replace(gpu, ranks=tuple(ranks.get(name) for name in names)) if names else gpu
        for gpu, names in zip(node.gpus, node.trials, strict=True)
    )
    unreported = [pod.need for pod in pods if pod.uid not in reported and not pod.need.exclusive]
    return charge(gpus, unreported) if unreported else gpus


def node_view(
    name: str,
    gpus: tuple[GpuReading, ...],
    written_at: float | None,
    beat: float | None,
    now: float,
    cpu_free: int | None = None,
) -> NodeView:
    """Return the view of a node.

    `written_at` (by the node's clock) counts only if it is not in the future: otherwise a node whose clock is ahead
    would seem alive long after its agent died. `beat` is when its heartbeat last changed, by the local clock.
    """
    if written_at is not None and written_at > now + CLOCK_SKEW:
        written_at = None
    times = [at for at in (beat, written_at) if at is not None]
    return NodeView(name=name, gpus=gpus, reported_at=max(times) if times else None, cpu_free=cpu_free)


def gpu_reading(gpu: GpuStatus) -> GpuReading:
    """Return one GPU for placement.

    Another pod counts as a trial that is never suspended: it has a slot and keeps its memory.
    """
    return GpuReading(
        uuid=gpu.uuid,
        product=gpu.product,
        memory_total=gpu.memory_total,
        memory=MemoryUse(gpu.memory_claimed, gpu.memory_movable, gpu.memory_used),
        sm_utilization=gpu.sm_utilization,
        health=gpu.health,
        health_reason=gpu.health_reason,
        slots=gpu.slots,
        trials=len(gpu.trials) + len(gpu.other_pods),
        pods=(*(trial.pod_uid for trial in gpu.trials), *(other.pod_uid for other in gpu.other_pods)),
        condition=GpuCondition(bool(gpu.throttle), gpu.temperature, gpu.ecc_uncorrected, gpu.xid),
    )

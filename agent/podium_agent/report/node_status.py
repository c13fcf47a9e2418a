"""Content of GPUNode.status, from telemetry and the node reconciler's view. Pure; used by the node reporter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from podium_agent.observe.gpu_health import Gpu, Reading
from podium_agent.observe.other_pods import LocalOtherPod
from podium_agent.schedule.node_reconciler import View
from podium_core.attempts.local_trial import OCCUPYING, LocalTrial
from podium_core.schema.base import Condition
from podium_core.schema.gpunode import GpuNodeStatus, GpuStatus, Holder, OtherPod, SlotState, TrialOnGpu

USE_STEP = 5.0  # percentage points
MEMORY_STEP = 0.02  # of the total
HEAT_STEP = 3.0  # degrees
# the holder runs, or is being started, suspended or resumed
_RANK = {SlotState.RUNNING: 0, SlotState.SUSPENDING: 1, SlotState.STARTING: 2, SlotState.RESUMING: 3}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about the node and its agent. `slots`: number of slots of a GPU that Podium has."""

    reading: Reading
    slots: int
    methods: tuple[str, ...]
    agent: str
    driver_library: str = ""
    other_pods: Sequence[LocalOtherPod] = ()
    usable: Condition | None = None  # whether another device plugin gives out the GPUs; None: that is allowed


@dataclass(frozen=True, slots=True)
class _GpuSlots:
    """Slots of one GPU, and its other users. `epoch`: that its trials have arrived at."""

    count: int
    epoch: int
    exclusive_pod: str | None
    reservation: str | None
    other_pods: Sequence[LocalOtherPod]


def build(
    node: NodeFacts,
    view: View,
    settled: Callable[[str], int],
    held_since: Callable[[LocalTrial], float],
    now: float,
) -> GpuNodeStatus:
    """Build the status. `settled` returns the epoch that a GPU's trials have arrived at."""
    reading, reserved = node.reading, view.reserved
    gpus = []
    for gpu in reading.gpus:
        reservation = None if reserved is None else reserved.get(gpu.uuid)
        slots = _GpuSlots(
            count=node.slots if _usable(node, gpu, reserved is None or reservation is not None) else 0,
            epoch=settled(gpu.uuid),
            exclusive_pod=view.exclusive_pods.get(gpu.uuid),
            reservation=reservation,
            other_pods=[other_pod for other_pod in node.other_pods if gpu.uuid in other_pod.gpus],
        )
        gpus.append(_gpu(gpu, view.trials, held_since, slots))
    return GpuNodeStatus(
        observed_epoch=view.run_queues.epoch,
        driver=reading.driver if not reading.trouble else f"{reading.driver or 'none'} ({reading.trouble})",
        driver_library=node.driver_library,
        agent=node.agent,
        gate_volume=True,
        methods=list(node.methods),
        mode="dedicated" if reserved is None else "reservations",
        updated_at=_moment(now),
        gpus=gpus,
        conditions=[] if node.usable is None else [node.usable],
    )


def _usable(node: NodeFacts, gpu: Gpu, owned: bool) -> bool:
    """Return whether trials may have slots on a GPU; `owned`: it is Podium's, or reserved."""
    return gpu.shareable and owned and (node.usable is None or node.usable.status == "True")


def _gpu(
    gpu: Gpu, trials: tuple[LocalTrial, ...], held_since: Callable[[LocalTrial], float], slots: _GpuSlots
) -> GpuStatus:
    here = [trial for trial in trials if gpu.uuid in trial.seen_on]
    holders = sorted(
        (trial for trial in here if trial.state in OCCUPYING), key=lambda trial: (_RANK[trial.state], trial.since)
    )
    sample = gpu.sample
    movable = max((trial.memory.declared for trial in here if trial.memory.moves), default=0)
    return GpuStatus(
        uuid=gpu.uuid,
        index=sample.index,
        product=sample.product,
        memory_total=sample.memory_total,
        memory_used=sample.load.memory_used,
        memory_reserved=movable + sum(trial.memory.declared for trial in here if not trial.memory.moves),
        memory_movable=movable,
        sm_utilization=round(gpu.sm_utilization, 1),
        temperature=sample.load.temperature,
        sm_clock=sample.load.sm_clock,
        throttle=list(sample.load.throttle),
        ecc_uncorrected=sample.faults.ecc_uncorrected,
        xid=sample.faults.xid,
        health=gpu.health,
        health_reason=gpu.health_reason,
        slots=slots.count,
        epoch=slots.epoch,
        exclusive_pod=slots.exclusive_pod,
        reservation=slots.reservation,
        holder=_holder(holders[0], held_since(holders[0])) if holders else None,
        trials=[_trial(trial) for trial in here],
        other_pods=[_other_pod(other_pod) for other_pod in slots.other_pods],
    )


def _holder(trial: LocalTrial, since: float) -> Holder:
    return Holder(namespace=trial.key.namespace, trial=trial.key.name, uid=trial.key.uid, since=_moment(since))


def _trial(trial: LocalTrial) -> TrialOnGpu:
    return TrialOnGpu(
        namespace=trial.key.namespace,
        trial=trial.key.name,
        uid=trial.key.uid,
        pod=trial.pod.name,
        pod_uid=trial.pod.uid,
        state=trial.state,
        since=_moment(trial.since),
    )


def _other_pod(other_pod: LocalOtherPod) -> OtherPod:
    namespace, pod = other_pod.pod
    return OtherPod(namespace=namespace, pod=pod, pod_uid=other_pod.uid, memory=other_pod.need.memory or 0)


def decisive(status: GpuNodeStatus) -> tuple[Any, ...]:
    """Return the part of the status that others act on: any change of it is written without delay."""
    return (
        status.observed_epoch,
        (status.driver, status.driver_library, status.mode),
        tuple((one.type, one.status, one.message) for one in status.conditions),
        tuple(
            (
                *(
                    gpu.uuid,
                    gpu.health,
                    gpu.health_reason,
                    gpu.epoch,
                    gpu.slots,
                    gpu.xid,
                    gpu.exclusive_pod,
                    gpu.reservation,
                ),
                *(gpu.holder, tuple(gpu.trials), tuple(gpu.other_pods)),
            )
            for gpu in status.gpus
        ),
    )


def moved(before: GpuNodeStatus, after: GpuNodeStatus) -> bool:
    """Return whether a telemetry value passed its threshold since it was last written, or a GPU changed."""
    old = {gpu.uuid: gpu for gpu in before.gpus}
    for gpu in after.gpus:
        last = old.get(gpu.uuid)
        if last is None or last.throttle != gpu.throttle or last.ecc_uncorrected != gpu.ecc_uncorrected:
            return True
        if (last.product, last.memory_total) != (gpu.product, gpu.memory_total):
            return True
        if abs(last.sm_utilization - gpu.sm_utilization) >= USE_STEP:
            return True
        if abs(last.memory_used - gpu.memory_used) >= max(1, int(MEMORY_STEP * gpu.memory_total)):
            return True
        if abs((last.temperature or 0.0) - (gpu.temperature or 0.0)) >= HEAT_STEP:
            return True
    return False


def to_json(status: GpuNodeStatus) -> dict[str, Any]:
    """Return the status as JSON."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

"""GPUNode.status as the agent writes it: built from telemetry and the conductor's view. Pure; used by the reporter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from podium_agent.observe.gpu_health import Gpu, Reading
from podium_agent.observe.other_pods import Guest
from podium_agent.observe.trials import OCCUPYING, LocalTrial
from podium_core.schema.gpunode import GpuNodeStatus, GpuStatus, Holder, OtherPod, TrialOnGpu, TrialState

USE_STEP = 5.0  # percent points
MEMORY_STEP = 0.02  # of the total
HEAT_STEP = 3.0  # degrees
# the holder is who works, or is on the way on or off
_RANK = {TrialState.RUNNING: 0, TrialState.SUSPENDING: 1, TrialState.STARTING: 2, TrialState.RESUMING: 3}


def build(
    reading: Reading,
    trials: tuple[LocalTrial, ...],
    epoch: int,
    settled: Callable[[str], int],
    held_since: Callable[[LocalTrial], float],
    shares: int,
    methods: tuple[str, ...],
    agent: str,
    now: float,
    taken: Mapping[str, str],
    leased: Mapping[str, str] | None = None,
    guests: Sequence[Guest] = (),
) -> GpuNodeStatus:
    """`settled` gives the epoch that a GPU's trials have arrived at, `taken` the pods that have one for themselves,
    `leased` the placeholders that hold one; None: all are Podium's own.
    """
    gpus = []
    for gpu in reading.gpus:
        lease = None if leased is None else leased.get(gpu.uuid)
        here = shares if leased is None or lease is not None else 0
        visit = [guest for guest in guests if gpu.uuid in guest.gpus]
        gpus.append(_gpu(gpu, trials, settled(gpu.uuid), held_since, here, taken.get(gpu.uuid), lease, visit))
    return GpuNodeStatus(
        observed_epoch=epoch,
        driver=reading.driver if not reading.trouble else f"{reading.driver or 'none'} ({reading.trouble})",
        agent=agent,
        methods=list(methods),
        mode="dedicated" if leased is None else "reservations",
        updated_at=_moment(now),
        gpus=gpus,
    )


def _gpu(
    gpu: Gpu,
    trials: tuple[LocalTrial, ...],
    epoch: int,
    held_since: Callable[[LocalTrial], float],
    shares: int,
    exclusive: str | None,
    lease: str | None,
    guests: Sequence[Guest],
) -> GpuStatus:
    here = [trial for trial in trials if gpu.uuid in trial.seen_on]
    holders = sorted(
        (trial for trial in here if trial.state in OCCUPYING), key=lambda trial: (_RANK[trial.state], trial.since)
    )
    sample = gpu.sample
    moved = max((trial.memory for trial in here if trial.moves), default=0)
    return GpuStatus(
        uuid=gpu.uuid,
        index=sample.index,
        product=sample.product,
        memory_total=sample.memory_total,
        memory_used=sample.memory_used,
        memory_reserved=moved + sum(trial.memory for trial in here if not trial.moves),
        memory_movable=moved,
        sm_utilization=round(gpu.sm_utilization, 1),
        temperature=sample.temperature,
        sm_clock=sample.sm_clock,
        throttle=list(sample.throttle),
        ecc_uncorrected=sample.ecc_uncorrected,
        xid=sample.xid,
        health=gpu.health,
        health_reason=gpu.health_reason,
        slots=shares,
        epoch=epoch,
        exclusive_pod=exclusive,
        reservation=lease,
        holder=_holder(holders[0], held_since(holders[0])) if holders else None,
        trials=[_trial(trial) for trial in here],
        other_pods=[_guest(guest) for guest in guests],
    )


def _holder(trial: LocalTrial, since: float) -> Holder:
    return Holder(namespace=trial.key.namespace, trial=trial.key.name, uid=trial.key.uid, since=_moment(since))


def _trial(trial: LocalTrial) -> TrialOnGpu:
    return TrialOnGpu(
        namespace=trial.key.namespace,
        trial=trial.key.name,
        uid=trial.key.uid,
        pod=trial.pod,
        pod_uid=trial.pod_uid,
        state=trial.state,
        since=_moment(trial.since),
    )


def _guest(guest: Guest) -> OtherPod:
    namespace, pod = guest.pod
    return OtherPod(namespace=namespace, pod=pod, pod_uid=guest.uid, memory=guest.need.memory or 0)


def decisive(status: GpuNodeStatus) -> tuple[Any, ...]:
    """What must be known at once by those who decide: any change of it is written without delay."""
    return (
        status.observed_epoch,
        (status.driver, status.mode),
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
    """A telemetry value has passed its threshold since it was last written, or it is another GPU."""
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
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

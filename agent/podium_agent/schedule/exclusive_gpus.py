"""Rules of exclusive GPUs: which pod has one, which GPU is chosen, and what the pod still waits for. Pure.

The device plugin, `exclusive_allocations` and the local scheduler use it. An exclusive pod is not a trial and has no
gate: the kubelet gives it a GPU, and the trials there are suspended before its container starts. They resume when it
has ended. No trial is deleted for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from podium_agent.deviceplugin.slots import SEPARATOR, Device, uuid_of
from podium_agent.observe.gpu_health import Gpu
from podium_agent.observe.pod_resources import PodName
from podium_core.attempts.local_scheduler import NOT_FREEZABLE
from podium_core.attempts.local_trial import LocalTrial
from podium_core.placement.views import PodNeed
from podium_suspension.cuda_checkpoint import CudaCheckpoint

ADMISSION_SECONDS = 10.0  # from Allocate until the kubelet must list the pod; 0.3 s were measured


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod of this node as the API server shows it.

    `ended`: it has ended; `terminating`: it is being deleted; `need`: the slots it requests, None without any;
    `trial`: it is a trial's pod.
    """

    uid: str
    ended: bool
    terminating: bool = False
    need: PodNeed | None = None
    trial: bool = False


@dataclass(frozen=True, slots=True)
class ExclusiveAllocation:
    """One GPU of an exclusive pod.

    `pod` is None until the kubelet names the pod, `uid` is empty until the API server shows it.
    """

    gpu: str
    at: float
    pod: PodName | None = None
    uid: str = ""

    @property
    def name(self) -> str:
        """The pod as namespace/name; empty while it is not known."""
        return "" if self.pod is None else "/".join(self.pod)


def whole_gpu_devices(gpus: Sequence[Gpu]) -> tuple[Device, ...]:
    """Return the devices that the kubelet is offered: one for each GPU but those in MIG mode."""
    return tuple(Device(f"{gpu.uuid}{SEPARATOR}exclusive", gpu.health != "Unhealthy") for gpu in gpus if gpu.shareable)


def prefer(
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    gpus: Sequence[Gpu],
    trials: Sequence[LocalTrial],
) -> tuple[str, ...]:
    """Choose `size` devices whose trials are the cheapest to suspend. O(GPUs * trials).

    Health comes first. Then a GPU comes last if its trial cannot be suspended, and an idle one comes first. The next
    criteria are the number of GPUs that become idle (including the other GPUs of the trials), the bytes to move, the
    number of waiting trials and the utilisation.
    """
    known = {gpu.uuid: gpu for gpu in gpus}

    def cost(device: str) -> tuple[int, bool, int, int, int, float, str]:
        uuid = uuid_of(device)
        gpu = known.get(uuid)
        here = [trial for trial in trials if uuid in trial.gpus]
        at_work = [trial for trial in here if trial.occupies]
        health = {"Healthy": 0, "Unknown": 1, "Unhealthy": 2}[gpu.health if gpu else "Unknown"]
        stuck = any(not trial.freezable for trial in at_work)
        stops = sum(len(trial.gpus) for trial in at_work)
        moved = sum(trial.memory.declared for trial in at_work if trial.suspension.method == CudaCheckpoint.name)
        return health, stuck, stops, moved, len(here), round(gpu.sm_utilization) if gpu else 0, uuid

    chosen = list(must_include)
    chosen += [device for device in sorted(available, key=cost) if device not in chosen]
    return tuple(chosen[:size])


def advance(
    exclusive: Mapping[str, ExclusiveAllocation],
    listed: Mapping[str, PodName],
    pods: Mapping[PodName, NodePod],
    alive: Collection[str],
    now: float,
) -> dict[str, ExclusiveAllocation]:
    """Return the allocations after an answer of the kubelet.

    `listed`: the pod of each GPU as the kubelet reports it; `alive`: uids of pods that have a process.

    A GPU is free again when two conditions hold. The API reports that its pod has ended, or the kubelet no longer lists
    it. And no process of the pod is left. A restarted kubelet forgets pods that still run, and the API forgets a pod
    deleted by force.
    """
    kept: dict[str, ExclusiveAllocation] = {}
    for uuid in sorted(exclusive.keys() | listed.keys()):
        one = exclusive.get(uuid, ExclusiveAllocation(uuid, now))
        name = listed.get(uuid)
        if name is not None:
            pod = pods.get(name)
            one = replace(one, pod=name, uid=pod.uid if pod is not None else one.uid if name == one.pod else "")
            if pod is None or not pod.ended or one.uid in alive:
                kept[uuid] = one
        elif one.pod is None:
            # a time of an earlier agent that is far ahead is wrong, and must not close the GPU until then
            if abs(now - one.at) < ADMISSION_SECONDS:
                kept[uuid] = one
        elif one.uid in alive:
            kept[uuid] = one
    return kept


def blocked(
    uuids: Collection[str], exclusive_pods: Collection[str], trials: Sequence[LocalTrial], released: bool
) -> tuple[str, str] | None:
    """Return why the pod cannot start on these GPUs yet, or None if no trial runs there.

    The reason is a code and a sentence. `exclusive_pods`: the GPUs that were closed when `trials` were observed.
    """
    if released:
        return "Released", "this node was released (podium thaw): its trials are not suspended"
    missing = [uuid for uuid in uuids if uuid not in exclusive_pods]
    if missing:
        return "SuspensionPending", f"the trials of GPU {missing[0]} are about to be suspended"
    for trial in trials:
        if not trial.occupies or (trial.gpus and not set(uuids).intersection(trial.gpus)):
            continue
        name = f"trial {trial.key.namespace}/{trial.key.name}"
        if trial.termination.deleting:
            return "HolderTerminating", f"{name} is being deleted and has not ended yet"
        if not trial.freezable:
            return "HolderNotFreezable", f"{name} holds the GPU, and {NOT_FREEZABLE}"
        if trial.suspension.trouble:
            return "SuspendFailed", f"{name} could not be suspended: {trial.suspension.trouble}"
        return "SwitchInProgress", f"{name} is still {trial.state}"
    return None

"""Rules of GPU reservations on one node (docs/explanation): which GPUs are held, and what is advertised. Pure.

A reservation pod is an ordinary pod that requests `nvidia.com/gpu`. Trials share its GPU from the moment the kubelet
names the GPU until the pod's deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from podium_agent.deviceplugin.slots import Device, slot_devices, uuid_of
from podium_agent.observe.gpu_health import Gpu
from podium_agent.observe.pod_resources import PodName
from podium_agent.schedule.exclusive_gpus import blocked
from podium_core.attempts.local_trial import LocalTrial
from podium_core.domain.gpu_reservation import ReservationFacts, ReservationState, derive_state


@dataclass(frozen=True, slots=True)
class ReservationPod:
    """A pod of this node with the label `podium.dev/gpu-reservation`.

    `over`: it has ended; `terminating`: it is being deleted; `container`: id of its container, empty until it was
    started.
    """

    name: PodName
    uid: str
    over: bool = False
    terminating: bool = False
    container: str = ""


@dataclass(frozen=True, slots=True)
class ReservedGpu:
    """One GPU and the reservation pod that holds it."""

    gpu: str
    pod: PodName
    uid: str
    state: ReservationState
    container: str = ""

    @property
    def name(self) -> str:
        """The reservation pod as namespace/name."""
        return "/".join(self.pod)


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Devices that the kubelet allocated to a pod; `uid` of that pod, empty until the API shows it."""

    uid: str
    devices: frozenset[str]


def merge_kubelet_answer(
    before: Mapping[PodName, AllocatedDevices], answer: Mapping[PodName, frozenset[str]], alive: Mapping[PodName, str]
) -> Mapping[PodName, AllocatedDevices]:
    """Return the devices of each pod after an answer of the kubelet.

    `alive`: uids of this node's pods that have not ended, as the API server shows them. A pod keeps its devices as
    long as it lives. A restarted kubelet lists no running pod until the API server has named it. So a pod that is
    missing from the answer keeps its devices while it is alive.
    """
    now = {name: AllocatedDevices(alive.get(name, ""), devices) for name, devices in answer.items()}
    stand = {name: one for name, one in before.items() if one.uid and alive.get(name) == one.uid}
    return {**stand, **now}


def gpus_of_reservations(
    listed: Mapping[PodName, Collection[str]], pods: Iterable[ReservationPod]
) -> Mapping[str, ReservedGpu]:
    """Return the reserved GPUs by uuid.

    `listed`: devices of `nvidia.com/gpu` by pod, as the kubelet reports.

    Other pods do not count, nor do reservation pods whose device the kubelet has not named.
    """
    reserved_gpus: dict[str, ReservedGpu] = {}
    for pod in pods:
        for device in listed.get(pod.name, ()):
            facts = ReservationFacts(True, bound=True, device_known=True, deleting=pod.terminating, ended=pod.over)
            reserved_gpus[uuid_of(device)] = ReservedGpu(
                uuid_of(device), pod.name, pod.uid, derive_state(facts), pod.container
            )
    return reserved_gpus


def advertised(
    gpus: Sequence[Gpu], shares: int, held: Collection[str], allocated: Collection[str]
) -> tuple[Device, ...]:
    """Return every slot of a held GPU, and of other GPUs only the slots that a pod has (`allocated`).

    The scheduler counts what pods request against what is advertised.
    """
    return tuple(one for one in slot_devices(gpus, shares) if uuid_of(one.id) in held or one.id in allocated)


def is_evacuated(gpu: str, reserved: Collection[str], trials: Sequence[LocalTrial], *, released: bool) -> bool:
    """Return whether the GPU is free of trials and remains so.

    `trials` were scheduled with these reserved GPUs.
    """
    return gpu not in reserved and blocked([gpu], [gpu], trials, released) is None

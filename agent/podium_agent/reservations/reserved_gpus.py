"""GPUs of this node that Podium holds by reservation pods, and what the device plugin announces of them.

Pure; used by the controller. docs/explanation/gpu-reservations.md explains reservations.

A placeholder is an ordinary pod that requests `nvidia.com/gpu`. Its GPU is shared among trials from when the kubelet
says which one it is until the pod is told to end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from podium_agent.deviceplugin.slots import Device, devices, uuid_of
from podium_agent.observe.gpu_health import Gpu
from podium_agent.observe.pod_resources import PodName
from podium_agent.observe.trials import LocalTrial
from podium_agent.schedule.exclusive_gpus import blocked
from podium_core.domain.gpu_reservation import ReservationFacts, ReservationState, derive_state


@dataclass(frozen=True, slots=True)
class ReservationPod:
    """A pod of this node with the label `podium.dev/gpu-reservation`.

    `over`: it has ended; `terminating`: it is being deleted;
    `container`: id of its one container, empty until it was started.
    """

    name: PodName
    uid: str
    over: bool = False
    terminating: bool = False
    container: str = ""


@dataclass(frozen=True, slots=True)
class ReservedGpu:
    gpu: str
    pod: PodName
    uid: str
    state: ReservationState
    container: str = ""

    @property
    def name(self) -> str:
        return "/".join(self.pod)


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """Devices that the kubelet has given a pod. `uid`: of that pod, empty: the API has not shown it yet."""

    uid: str
    devices: frozenset[str]


def merge_kubelet_answer(
    before: Mapping[PodName, AllocatedDevices], answer: Mapping[PodName, frozenset[str]], alive: Mapping[PodName, str]
) -> Mapping[PodName, AllocatedDevices]:
    """What pods have, after an answer of the kubelet's. `alive`: uids of this node's pods that are not over, as the API
    server shows them.

    A pod has its devices as long as it lives. A kubelet that has just started lists none of the pods that work on until
    the API server has told it of them; what it leaves out of those that are there stands.
    """
    now = {name: AllocatedDevices(alive.get(name, ""), devices) for name, devices in answer.items()}
    stand = {name: one for name, one in before.items() if one.uid and alive.get(name) == one.uid}
    return {**stand, **now}


def gpus_of_reservations(
    listed: Mapping[PodName, Collection[str]], pods: Iterable[ReservationPod]
) -> Mapping[str, ReservedGpu]:
    """By uuid. `listed`: devices of `nvidia.com/gpu` by pod, as the kubelet says; other pods than placeholders count
    for nothing, nor do placeholders whose device the kubelet has not named.
    """
    found: dict[str, ReservedGpu] = {}
    for pod in pods:
        for device in listed.get(pod.name, ()):
            facts = ReservationFacts(True, bound=True, device_known=True, deleting=pod.terminating, ended=pod.over)
            found[uuid_of(device)] = ReservedGpu(uuid_of(device), pod.name, pod.uid, derive_state(facts), pod.container)
    return found


def advertised(
    gpus: Sequence[Gpu], shares: int, held: Collection[str], allocated: Collection[str]
) -> tuple[Device, ...]:
    """Every share of a GPU that is held; of others only those that a pod has (`given`), since the scheduler counts what
    pods request against what is announced.
    """
    return tuple(one for one in devices(gpus, shares) if uuid_of(one.id) in held or one.id in allocated)


def is_evacuated(gpu: str, reserved: Collection[str], trials: Sequence[LocalTrial], *, released: bool) -> bool:
    """No trial works on the GPU, nor can one come: `leased` is what `trials` were decided with."""
    return gpu not in reserved and blocked([gpu], [gpu], trials, released) is None

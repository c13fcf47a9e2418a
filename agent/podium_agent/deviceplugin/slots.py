"""Slots of GPUs as device IDs, and the choice of slots for a container. Pure.

The kubelet treats all slots of a node as equal. Podium can only prefer some of them and refuse invalid allocations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from podium_agent.observe.gpu_health import Gpu, Health
from podium_core.placement.gpu_choice import fullest
from podium_core.placement.views import GpuReading, PodNeed

SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class Device:
    """A device as it is advertised to the kubelet."""

    id: str
    healthy: bool


class AllocationRefusedError(Exception):
    """An invalid allocation: a CamelCase code and a message for the pod's events."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")


def device_id(uuid: str, slot: int) -> str:
    """Return the device ID of a slot of a GPU."""
    return f"{uuid}{SEPARATOR}{slot}"


def uuid_of(device: str) -> str:
    """Return the UUID of the GPU to which a device ID belongs."""
    return device.split(SEPARATOR, 1)[0]


def slot_devices(gpus: Iterable[Gpu], slots: int) -> tuple[Device, ...]:
    """Return the devices to advertise: `slots` for each GPU that is not in MIG mode.

    A GPU of unknown health counts as healthy.
    """
    return tuple(
        Device(device_id(gpu.uuid, slot), gpu.health != "Unhealthy")
        for gpu in gpus
        if gpu.shareable
        for slot in range(slots)
    )


def choose_slots(
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    health: Mapping[str, Health],
    use: Mapping[str, float],
    exclusive_gpus: Collection[str] = (),
) -> tuple[str, ...]:
    """Choose `size` slots of different GPUs: healthy GPUs first, then most free slots, then least used.

    `health` and `use` (per cent) are by GPU UUID. GPUs in `exclusive_gpus` belong to exclusive pods, beside which no
    trial runs: only unhealthy GPUs come after them. Returns fewer than `size` slots if there are fewer GPUs with a free
    slot; the kubelet then adds other slots, and `check_allocation` refuses them.
    """
    free: dict[str, list[str]] = defaultdict(list)
    for device in sorted(available, key=_sort_key):
        free[uuid_of(device)].append(device)
    chosen = list(must_include)
    chosen_gpus = {uuid_of(device) for device in chosen}

    def preference(uuid: str) -> tuple[bool, bool, int, int, float, str]:
        known = health.get(uuid, "Unknown")
        rank = {"Healthy": 0, "Unknown": 1, "Unhealthy": 2}[known]
        return known == "Unhealthy", uuid in exclusive_gpus, rank, -len(free[uuid]), round(use.get(uuid, 0.0)), uuid

    for uuid in sorted((uuid for uuid in free if uuid not in chosen_gpus), key=preference):
        if len(chosen) >= size:
            break
        chosen.append(free[uuid][0])
    return tuple(chosen[:size])


def check_allocation(requested: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the GPU UUIDs of the requested devices; raise AllocationRefusedError if invalid."""
    uuids = [uuid_of(device) for device in requested]
    for uuid in uuids:
        if uuid not in known:
            raise AllocationRefusedError(
                "UnknownGPU", f"{uuid} is not a GPU of this node; its GPUs are: {', '.join(sorted(known)) or 'none'}"
            )
        if uuids.count(uuid) > 1:
            raise AllocationRefusedError(
                "DuplicateGPU",
                f"a container requested {len(uuids)} slots and would get two of GPU {uuid}; "
                f"this node has fewer than {len(uuids)} GPUs with a free slot",
            )
    return tuple(sorted(uuids))


def _sort_key(device: str) -> tuple[str, int]:
    uuid, _, slot = device.partition(SEPARATOR)
    return uuid, int(slot) if slot.isdigit() else 0


def pack(
    available: Sequence[str], size: int, gpus: Sequence[GpuReading], need: PodNeed, exclusive_gpus: Collection[str] = ()
) -> tuple[str, ...]:
    """Choose `size` slots of different GPUs for a pod that states its GPU memory.

    Returns an empty tuple if the pod does not fit. The rule is `podium_core.placement.gpu_choice.fullest`, by which
    the extender chose the node: the fullest GPUs that have enough free memory. GPUs in `exclusive_gpus` belong to
    exclusive pods and are skipped. `available` are the slots that the kubelet reports as free.
    """
    free: defaultdict[str, list[str]] = defaultdict(list)
    for device in sorted(available):
        free[uuid_of(device)].append(device)
    candidates = tuple(
        replace(gpu, trials=gpu.slots - len(free[gpu.uuid]))
        for gpu in gpus
        if gpu.uuid in free and gpu.uuid not in exclusive_gpus
    )
    chosen = fullest(candidates, replace(need, gpus=size))
    return tuple(free[candidates[i].uuid][0] for i in chosen) if len(chosen) == size else ()

"""Shares of GPUs as device ids, and which of them a container should get. Pure; used by the servicer.

Shares of a node are fungible for the kubelet: we only say which we would prefer, and refuse what must not be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from podium_agent.observe.gpu_health import Gpu, Health

SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    healthy: bool


class RefusedError(Exception):
    """An allocation that must not be: CamelCase code and a sentence for the pod's events."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")


def device_id(uuid: str, share: int) -> str:
    return f"{uuid}{SEPARATOR}{share}"


def uuid_of(device: str) -> str:
    return device.split(SEPARATOR, 1)[0]


def devices(gpus: Iterable[Gpu], shares: int) -> tuple[Device, ...]:
    """What is announced to the kubelet. A GPU of unknown health stays announced: unknown is not broken."""
    return tuple(
        Device(device_id(gpu.uuid, share), gpu.health != "Unhealthy") for gpu in gpus for share in range(shares)
    )


def prefer(
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    health: Mapping[str, Health],
    use: Mapping[str, float],
    taken: Collection[str] = (),
) -> tuple[str, ...]:
    """`size` shares of different GPUs: healthy ones first, then those that no urgent pod has for itself (`taken`), then
    those with most free shares, then the least used.

    Fewer than `size` if there are not so many GPUs with a free share (the kubelet then fills up, and Allocate refuses).
    """
    free: dict[str, list[str]] = defaultdict(list)
    for device in sorted(available, key=_natural):
        free[uuid_of(device)].append(device)
    chosen = list(must_include)
    taken = {uuid_of(device) for device in chosen}

    def load(uuid: str) -> tuple[int, bool, int, float, str]:
        order = {"Healthy": 0, "Unknown": 1, "Unhealthy": 2}[health.get(uuid, "Unknown")]
        return order, uuid in taken, -len(free[uuid]), round(use.get(uuid, 0.0)), uuid

    for uuid in sorted((uuid for uuid in free if uuid not in taken), key=load):
        if len(chosen) >= size:
            break
        chosen.append(free[uuid][0])
    return tuple(chosen[:size])


def check(requested: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """The uuids of the GPUs that a container gets; raises RefusedError."""
    uuids = [uuid_of(device) for device in requested]
    for uuid in uuids:
        if uuid not in known:
            raise RefusedError(
                "UnknownGPU", f"{uuid} is no GPU of this node; there are: {', '.join(sorted(known)) or 'none'}"
            )
        if uuids.count(uuid) > 1:
            raise RefusedError(
                "DuplicateGPU",
                f"a container asked for {len(uuids)} shares and would get two of GPU {uuid}; "
                f"this node has no {len(uuids)} different GPUs with a free share",
            )
    return tuple(sorted(uuids))


def _natural(device: str) -> tuple[str, int]:
    uuid, _, share = device.partition(SEPARATOR)
    return uuid, int(share) if share.isdigit() else 0

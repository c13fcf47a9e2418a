"""The pool of contexts: partitions of a device's SMs that are made and warmed once, so that moving costs nothing.

Over-subscription: the contexts' SMs may sum to more than the device has, so that an idle context's SMs are not lost.
Built by the simulator, the CPU runtime and the CUDA back-end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from podium_realtime.model.refusal import RealtimeError, require_between

Split = Literal["equal", "stepwise"]
IN_FLIGHT = 6  # stages on the device at once in the SGPRS repository: 2 contexts x 3, 3 contexts x 2


class StreamPriority(IntEnum):
    """CUDA streams have two levels; blocks of a high stream are placed first."""

    HIGH = 0
    LOW = 1


@dataclass(frozen=True, slots=True)
class ContextSpec:
    """`streams`: the priority of each stream. `in_flight`: stages that may be on the device at once. `depth`: works
    that may be committed to one stream; beyond 1 the next is launched while the first still runs.
    """

    number: int
    sms: int
    streams: tuple[StreamPriority, ...]
    in_flight: int
    depth: int = 1

    def __post_init__(self) -> None:
        where = f"context {self.number}"
        require_between(self.sms, 1, 100_000, f"{where}: sms")
        require_between(len(self.streams), 1, 1024, f"{where}: streams")
        require_between(self.in_flight, 1, len(self.streams), f"{where}: in_flight")
        require_between(self.depth, 1, 8, f"{where}: depth")


def shares(device_sms: int, contexts: int, oversubscription: float, split: Split = "equal") -> tuple[int, ...]:
    """SMs of each context: device x over-subscription, split equally or as 1:2:..., rounded to even, at least 2 (1 on a
    device with fewer than 2 a context) and at most the device.
    """
    require_between(device_sms, 1, 100_000, "pool: device_sms")
    require_between(contexts, 1, 64, "pool: contexts")
    require_between(oversubscription, 1.0, 64.0, "pool: oversubscription")
    weights = [1] * contexts if split == "equal" else list(range(1, contexts + 1))
    total = device_sms * oversubscription
    found = [int(total * weight / sum(weights) + 1e-9) for weight in weights]
    if min(found) >= 2:  # SMs come in pairs (a TPC): an odd count cannot be had
        found = [count - count % 2 for count in found]
    if min(found) < 1:
        told = f"{contexts} contexts on {device_sms} SMs leave one without; ask for fewer"
        raise RealtimeError("TooManyContexts", "pool: contexts", told)
    return tuple(min(device_sms, count) for count in found)


def context_pool(
    device_sms: int,
    contexts: int,
    oversubscription: float = 1.0,
    split: Split = "equal",
    *,
    high: int = 2,
    low: int = 2,
    in_flight: int | None = None,
    depth: int = 1,
) -> tuple[ContextSpec, ...]:
    """`contexts` alike but for their SMs. Without `in_flight` the SGPRS repository's: six over all contexts."""
    streams = (StreamPriority.HIGH,) * high + (StreamPriority.LOW,) * low
    most = max(1, IN_FLIGHT // contexts) if in_flight is None else in_flight
    return tuple(
        ContextSpec(number, sms, streams, min(most, len(streams)), depth)
        for number, sms in enumerate(shares(device_sms, contexts, oversubscription, split))
    )

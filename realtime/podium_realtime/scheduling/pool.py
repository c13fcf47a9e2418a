"""Pools of contexts: partitions of a device's SMs that are created and warmed once, before the run.

Because the contexts exist already, a stage can move to another one without configuration ("zero-configuration partition
switch" in SGPRS). Over-subscription: the contexts may have more SMs together than the device, so that other contexts
can use the SMs of an idle one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from podium_realtime.model.errors import RealtimeError, require_between

Split = Literal["equal", "stepwise"]
IN_FLIGHT = 6  # concurrent stages on the device in the SGPRS repository: 2 contexts x 3, 3 contexts x 2


class StreamPriority(IntEnum):
    """The two priorities of CUDA streams. The device places thread blocks of high-priority streams first."""

    HIGH = 0
    LOW = 1


@dataclass(frozen=True, slots=True)
class ContextSpec:
    """One context of a pool.

    `streams`: priority of each stream.
    `in_flight`: number of batches that may be on the device at once.
    `depth`: number of batches that may be committed to one stream. With more than 1, the next batch is launched while
        the first one still runs.
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


def context_sizes(device_sms: int, contexts: int, oversubscription: float, split: Split = "equal") -> tuple[int, ...]:
    """Return the SMs of each context.

    The contexts share device_sms x oversubscription SMs, equally or in the ratio 1:2:... ("stepwise"). Sizes are
    rounded down to even numbers, unless that would leave a context empty, and are at most device_sms.
    """
    require_between(device_sms, 1, 100_000, "pool: device_sms")
    require_between(contexts, 1, 64, "pool: contexts")
    require_between(oversubscription, 1.0, 64.0, "pool: oversubscription")
    weights = [1] * contexts if split == "equal" else list(range(1, contexts + 1))
    total = device_sms * oversubscription
    sizes = [int(total * weight / sum(weights) + 1e-9) for weight in weights]
    if min(sizes) >= 2:  # the device partitions SMs in pairs (TPCs)
        sizes = [size - size % 2 for size in sizes]
    if min(sizes) < 1:
        problem = f"{contexts} contexts on {device_sms} SMs leave a context without an SM; use fewer contexts"
        raise RealtimeError("TooManyContexts", "pool: contexts", problem)
    return tuple(min(device_sms, size) for size in sizes)


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
    """Return a pool of contexts that differ only in their SMs.

    `high`, `low`: number of high-priority and low-priority streams in each context.
    `in_flight`: stages on the device at once in each context; by default 6 over all contexts, as in SGPRS.
    """
    streams = (StreamPriority.HIGH,) * high + (StreamPriority.LOW,) * low
    concurrent = max(1, IN_FLIGHT // contexts) if in_flight is None else in_flight
    return tuple(
        ContextSpec(number, sms, streams, min(concurrent, len(streams)), depth)
        for number, sms in enumerate(context_sizes(device_sms, contexts, oversubscription, split))
    )

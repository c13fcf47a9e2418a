"""Load terms of one GPU for a new trial.

One pure function for each term, from 0 (best) to 1 (worst), and their weights.

The policy `load_balance` uses them, and `podium explain pod` shows each one. A term whose value is unknown is 0.5, so
an unknown GPU never looks best. Formulas and sources are in the documentation of placement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podium_core.placement.views import GpuReading, PodNeed

UNKNOWN = 0.5
COOL, HOT = 60.0, 90.0  # degrees Celsius: no loss up to COOL; from HOT on every product throttles
MANY_ERRORS = 8
PROGRAM_FAULT = 0.25


def expected_wait(gpu: GpuReading, need: PodNeed) -> float:
    """Return the time slices expected before that of a new trial, as a fraction of the slots.

    Each trial on the GPU counts with `slices_ahead`. This is Hermes' load balance.
    """
    if gpu.slots <= 0:
        return 1.0
    if gpu.trials <= 0:
        return 0.0
    known = gpu.ranks[: gpu.trials]
    slices = sum(slices_ahead(rank) for rank in known) + (gpu.trials - len(known)) * slices_ahead(None)
    return min(1.0, slices / gpu.slots)


def slices_ahead(rank: int | None) -> float:
    """Return 1/2 + 1/rank; 1 without a rank.

    The first trial of a job runs before a new one and remains; the last of many gives up the GPU soon.
    """
    return 1.0 if rank is None else 0.5 + 1.0 / max(1, rank)


def memory(gpu: GpuReading, need: PodNeed) -> float:
    """Return the part of the GPU's memory that is taken with the new trial.

    Memory is taken if it is used or declared; the larger of the two counts.
    """
    if gpu.memory_total <= 0:
        return UNKNOWN
    taken = max(gpu.memory.reserved, gpu.memory.used, 0) + (need.memory or 0)
    return min(1.0, taken / gpu.memory_total)


def work(gpu: GpuReading, need: PodNeed) -> float:
    """Return the smoothed utilization of the multiprocessors (the agent's half-life is 2.5 s)."""
    return min(1.0, max(0.0, gpu.sm_utilization / 100.0))


def throttling(gpu: GpuReading, need: PodNeed) -> float:
    """Return 1 if the driver reports a reason for a reduced clock rate."""
    return 1.0 if gpu.condition.throttled else 0.0


def heat(gpu: GpuReading, need: PodNeed) -> float:
    """Return the temperature as a linear value from COOL to HOT.

    A GPU that is about to throttle is worse than a cool one.
    """
    temperature = gpu.condition.temperature
    if temperature is None:
        return UNKNOWN
    return min(1.0, max(0.0, (temperature - COOL) / (HOT - COOL)))


def errors(gpu: GpuReading, need: PodNeed) -> float:
    """Return the errors of a GPU that its agent still reports as healthy.

    Unhealthy GPUs are filtered, with a reason.
    """
    fault = PROGRAM_FAULT if gpu.condition.xid is not None else 0.0
    return min(1.0, fault + max(0, gpu.condition.ecc_uncorrected) / MANY_ERRORS)


@dataclass(frozen=True, slots=True)
class Term:
    """A term with its weight, which is a fraction of 1."""

    name: str
    weight: float
    value: Callable[[GpuReading, PodNeed], float]


TERMS: tuple[Term, ...] = (
    Term("wait", 0.50, expected_wait),
    Term("work", 0.20, work),
    Term("memory", 0.12, memory),
    Term("throttling", 0.10, throttling),
    Term("heat", 0.05, heat),
    Term("errors", 0.03, errors),
)


def load_of(gpu: GpuReading, need: PodNeed) -> float:
    """Return the weighted sum of all terms, from 0 (idle, cool, empty) to 1."""
    return sum([term.weight * term.value(gpu, need) for term in TERMS])

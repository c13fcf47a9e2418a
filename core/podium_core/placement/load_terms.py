"""What the telemetry of one GPU says about a trial that would come to it: one pure function a term, from 0 (as good as
it can be) to 1 (as bad), and the table of their weights.

Used by the policy `load_balance`, and by `podium explain pod`, which shows each term. What is not known is the middle,
never the best. Formulas and sources: docs/explanation/placement.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podium_core.placement.views import GpuReading, PodNeed

UNKNOWN = 0.5
COOL, HOT = 60.0, 90.0  # degrees Celsius: below nothing is lost, above every product slows itself down
MANY_ERRORS = 8
PROGRAM_FAULT = 0.25


def expected_wait(gpu: GpuReading, need: PodNeed) -> float:
    """Turns before a newcomer's, in shares: each trial on the GPU counts by `turns_ahead`. Hermes' load balance."""
    if gpu.slots <= 0:
        return 1.0
    if gpu.trials <= 0:
        return 0.0
    known = gpu.ranks[: gpu.trials]
    turns = sum(slices_ahead(rank) for rank in known) + (gpu.trials - len(known)) * slices_ahead(None)
    return min(1.0, turns / gpu.slots)


def slices_ahead(rank: int | None) -> float:
    """1/2 + 1/rank, and 1 where there is no rank yet: the first of a job goes before a newcomer and stays, the last of
    many leaves the GPU to it soon.
    """
    return 1.0 if rank is None else 0.5 + 1.0 / max(1, rank)


def memory(gpu: GpuReading, need: PodNeed) -> float:
    """Part of the GPU's memory that is taken with the newcomer on it: declared or used, whichever is more."""
    if gpu.memory_total <= 0:
        return UNKNOWN
    taken = max(gpu.memory_reserved, gpu.memory_used, 0) + (need.memory or 0)
    return min(1.0, taken / gpu.memory_total)


def work(gpu: GpuReading, need: PodNeed) -> float:
    """Smoothed use of the multiprocessors (the agent's half-life is 2.5 s)."""
    return min(1.0, max(0.0, gpu.sm_utilization / 100.0))


def throttling(gpu: GpuReading, need: PodNeed) -> float:
    """The driver gives a reason why the clocks are below what was asked."""
    return 1.0 if gpu.throttled else 0.0


def heat(gpu: GpuReading, need: PodNeed) -> float:
    """From COOL to HOT in a straight line: a GPU about to throttle is worse than a cool one."""
    if gpu.temperature is None:
        return UNKNOWN
    return min(1.0, max(0.0, (gpu.temperature - COOL) / (HOT - COOL)))


def errors(gpu: GpuReading, need: PodNeed) -> float:
    """Errors of a GPU that its agent still calls healthy (an unhealthy one is filtered, with its reason)."""
    fault = PROGRAM_FAULT if gpu.xid is not None else 0.0
    return min(1.0, fault + max(0, gpu.ecc_uncorrected) / MANY_ERRORS)


@dataclass(frozen=True, slots=True)
class Term:
    """`weight`: part of the whole, which is 1."""

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
    """The weighted sum of all terms, from 0 (idle, cool, empty) to 1."""
    return sum([term.weight * term.value(gpu, need) for term in TERMS])

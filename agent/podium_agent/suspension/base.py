"""What every suspension method can do, as the carrier uses it: suspend, resume, and tell how things stand.

A method acts on one trial's containers together: all or none. It never raises for what a trial or kernel can do wrong:
the outcome says it, with a code and a sentence. `tests/contract/test_suspension.py` holds every method to this.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from podium_agent.observe.cgroups import Freezer

# Bytes that must be free beside those that a restore brings back: without them the process is lost for good. On an H100
# with driver 580.159 it was between 4 and 6 MiB more than NVML had listed, from 0.6 to 17 GB, by a bare program as by
# PyTorch (benchmarks/results/bench-gpu-nvidia-h100-80gb-hbm3.md).
RESTORE_SCRATCH = 32 << 20


class Standing(StrEnum):
    """How the trial's processes stand, as the kernel says."""

    WORKING = "Working"
    PARTLY_SUSPENDED = "PartlySuspended"  # some at work, others stopped or asked to stop: an agent died over it
    PARKED = "Parked"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to. `seconds` is what it took, `freed` the bytes of GPU memory that it gave back."""

    ok: bool
    seconds: float
    code: str
    message: str = ""
    freed: int = 0


class SuspensionMethod(Protocol):
    @property
    def name(self) -> str: ...

    async def suspend(self, targets: tuple[Freezer, ...]) -> Outcome:
        """Stop all; on failure all are at work again. Success means verified, not asked for."""
        ...

    async def resume(self, targets: tuple[Freezer, ...]) -> Outcome:
        """Let all go on from where they stopped."""
        ...

    def standing(self, targets: tuple[Freezer, ...]) -> Standing:
        """Parked only if every container that still has processes is verified stopped; OSError: cannot be known now."""
        ...

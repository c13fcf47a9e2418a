"""Usage ledger of one trial: GPU time, checkpoints, lost work and the cost of suspensions, as a growing value. Pure.

Trial records keep it, the trial writer writes it to the trial's status, and a restarted agent reads it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from podium_core.attempts.local_trial import OCCUPYING
from podium_core.attempts.lost_work import (
    AttemptStart,
    Checkpoint,
    CompletionMarker,
    LostWorkTotals,
    add_repeated_work,
    count,
    resumed_checkpoint,
)
from podium_core.schema.gpunode import SlotState

MAX_ALLOCATIONS = 512
MAX_RECENT = 32


@dataclass(frozen=True, slots=True)
class GpuAllocation:
    """One interval in which the trial held its GPUs; `end` None: it still does.

    `gpus` and `node` are those of worker 0. All `workers` of the trial hold equally many GPUs, at the same time.
    """

    gpus: tuple[str, ...]
    node: str
    start: float
    end: float | None = None
    workers: int = 1

    @property
    def width(self) -> int:
        """Return how many GPUs the trial holds on all of its nodes."""
        return len(self.gpus) * self.workers

    def seconds(self, now: float) -> float:
        """Return the GPU-seconds of the allocation until its end, or until `now`."""
        return max(0.0, (now if self.end is None else self.end) - self.start) * self.width


@dataclass(frozen=True, slots=True)
class SuspensionCost:
    """Duration of one suspension and, once the trial was resumed, of the resumption.

    `freed`: bytes of GPU memory that the suspension released.
    """

    method: str
    at: float
    suspend_seconds: float
    resume_seconds: float | None = None
    freed: int = 0


@dataclass(frozen=True, slots=True)
class UsageLedger:
    """Usage of one trial.

    `finished_gpu_seconds` are of ended allocations, also of those that left the list.
    """

    allocations: tuple[GpuAllocation, ...] = ()
    finished_gpu_seconds: float = 0.0
    count: int = 0
    suspend_seconds: float = 0.0
    resume_seconds: float = 0.0
    recent: tuple[SuspensionCost, ...] = ()
    checkpoint: Checkpoint | None = None
    lost_work: LostWorkTotals = field(default_factory=LostWorkTotals)
    workers: int = 1  # pods of the trial

    def gpu_seconds(self, now: float) -> float:
        """Return the GPU-seconds until `now`."""
        return self.finished_gpu_seconds + sum(
            allocation.seconds(now) for allocation in self.allocations[-1:] if allocation.end is None
        )


def follow(ledger: UsageLedger, state: SlotState | None, gpus: tuple[str, ...], node: str, now: float) -> UsageLedger:
    """Return the ledger after the trial has reached this state (None: it has ended)."""
    last = ledger.allocations[-1] if ledger.allocations and ledger.allocations[-1].end is None else None
    allocations = state in OCCUPYING
    if last is not None and (not allocations or (last.gpus, last.node) != (gpus, node)):
        ended = replace(last, end=max(now, last.start))
        ledger = replace(
            ledger,
            allocations=(*ledger.allocations[:-1], ended),
            finished_gpu_seconds=ledger.finished_gpu_seconds + ended.seconds(now),
        )
        last = None
    if allocations and last is None and gpus:
        allocation = GpuAllocation(gpus, node, now, workers=ledger.workers)
        ledger = replace(ledger, allocations=(*ledger.allocations, allocation)[-MAX_ALLOCATIONS:])
    return ledger


def suspended(ledger: UsageLedger, cost: SuspensionCost) -> UsageLedger:
    """Return the ledger after a suspension."""
    return replace(
        ledger,
        count=ledger.count + 1,
        suspend_seconds=ledger.suspend_seconds + cost.suspend_seconds,
        recent=(*ledger.recent, cost)[-MAX_RECENT:],
    )


def resumed(ledger: UsageLedger, seconds: float) -> UsageLedger:
    """Return the ledger after a resumption that took this long."""
    recent = ledger.recent
    if recent and recent[-1].resume_seconds is None:
        recent = (*recent[:-1], replace(recent[-1], resume_seconds=seconds))
    return replace(ledger, resume_seconds=ledger.resume_seconds + seconds, recent=recent)


def saw_marker(ledger: UsageLedger, marker: CompletionMarker, node: str, attempt: int, now: float) -> UsageLedger:
    """Return the ledger after this completion marker was seen; a known marker changes nothing."""
    if ledger.checkpoint is not None and ledger.checkpoint.is_of(marker):
        return ledger
    return replace(ledger, checkpoint=Checkpoint(marker.step, now, marker.path, node, ledger.gpu_seconds(now), attempt))


def begin_attempt(
    ledger: UsageLedger,
    start: AttemptStart,
    reached: float | None,
    spent: float,
    now: float,
    *,
    migrated: bool = False,
) -> UsageLedger:
    """Return the ledger at the start of an attempt, with the work that the previous attempt lost.

    `reached`: the step at which that attempt ended, `spent`: the GPU-seconds it reported. `migrated`: the same process
    continues in this attempt, so nothing is lost. An allocation without an end was on a node that died: its
    length is derived from the GPU-seconds that were reported.
    """
    last = ledger.allocations[-1] if ledger.allocations and ledger.allocations[-1].end is None else None
    if last is not None:
        part = max(0.0, spent - ledger.finished_gpu_seconds) / last.width if last.gpus else 0.0
        ended = replace(last, end=last.start + part)
        finished_gpu_seconds = ledger.finished_gpu_seconds + ended.seconds(now)
        ledger = replace(
            ledger, allocations=(*ledger.allocations[:-1], ended), finished_gpu_seconds=finished_gpu_seconds
        )
    if migrated:
        return ledger
    checkpoint = resumed_checkpoint(start, ledger.checkpoint, reached, ledger.finished_gpu_seconds, now)
    lost_work = count(ledger.lost_work, checkpoint, start.attempt, reached, ledger.finished_gpu_seconds, now)
    return replace(ledger, checkpoint=checkpoint, lost_work=lost_work)


def add_repeated_steps(ledger: UsageLedger, attempt: int, begun_at: float, steps: float, now: float) -> UsageLedger:
    """Return the ledger once the script started `steps` before the checkpoint that it could use."""
    return replace(ledger, lost_work=add_repeated_work(ledger.lost_work, attempt, begun_at, steps, now))

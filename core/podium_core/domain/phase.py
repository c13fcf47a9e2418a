"""The life of a trial as a table: which phase may follow which, and for which reasons.

The operator sets phases (through `observe.next_phase`); all other components only read them. The operator observes
samples: a trial may go through several phases while the operator is away. So the table also holds edges that skip
phases (reason `ObservedLate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from podium_core.domain.gpu_memory import GPU_MEMORY_EXCEEDED
from podium_core.domain.rebalancing import REBALANCING


class TrialPhase(StrEnum):
    """Phase of a trial."""

    PENDING = "Pending"
    GATED = "Gated"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMING = "Resuming"
    REQUEUED = "Requeued"
    SUCCEEDED = "Succeeded"
    EARLY_STOPPED = "EarlyStopped"
    KILLED = "Killed"
    FAILED = "Failed"


class IllegalTransitionError(ValueError):
    """A transition was requested that the table does not have."""

    code = "IllegalTransition"


_P = TrialPhase
FINAL: frozenset[TrialPhase] = frozenset({_P.SUCCEEDED, _P.EARLY_STOPPED, _P.KILLED, _P.FAILED})
LIVE: frozenset[TrialPhase] = frozenset({_P.GATED, _P.RUNNING, _P.SUSPENDING, _P.SUSPENDED, _P.RESUMING})
WAITING: frozenset[TrialPhase] = frozenset({_P.PENDING, _P.GATED, _P.REQUEUED})
ON_GPU: frozenset[TrialPhase] = frozenset({_P.RUNNING, _P.SUSPENDING, _P.RESUMING})

_LATE = ("ObservedLate",)
_OWN = (
    "ProcessFailed",
    "OOMKilled",
    GPU_MEMORY_EXCEEDED,
    "StorageExceeded",
    "DeadlineExceeded",
)  # failures of the trial's own process
_ENDED: Mapping[TrialPhase, tuple[str, ...]] = {
    _P.SUCCEEDED: ("Completed", "TargetReached"),
    _P.EARLY_STOPPED: (
        "StoppedByUser",
        "StoppedByPolicy",
        "PolicyDone",
        "Replaced",
        "SlotNeeded",
        "TargetReachedByRival",
        "BudgetSpent",
        "DeadlinePassed",
    ),
    _P.KILLED: ("JobFailed", "JobFinished"),
    _P.FAILED: _OWN,
}
# Reasons for which Podium deletes a pod whose trial continues in another one.
REQUEUES = (
    *(
        "NodeDraining",
        "GPUUnhealthy",
        "ReservationEnded",
        "Preempted",
        "SlotReclaimed",
        "SuspendedByUser",
        "RunInterrupted",
        "MigrationFailed",
        "WorkerStuck",
    ),
    REBALANCING,
)
_LOST = ("PodDisrupted", "PodDeleted", "PodRejected", *_OWN, *REQUEUES)


def _with_ends(forward: Mapping[TrialPhase, tuple[str, ...]]) -> dict[TrialPhase, tuple[str, ...]]:
    """Add the final phases: any unfinished trial can end."""
    return {**forward, **_ENDED}


_TABLE: Mapping[TrialPhase, Mapping[TrialPhase, tuple[str, ...]]] = {
    _P.PENDING: _with_ends(
        {
            _P.GATED: ("WaitingForTimeSlice",),
            _P.RUNNING: ("Started", "ObservedLate"),
            _P.SUSPENDING: _LATE,
            _P.SUSPENDED: _LATE,
            _P.RESUMING: _LATE,
            _P.REQUEUED: _LOST,
        }
    ),
    _P.GATED: _with_ends(
        {
            _P.RUNNING: ("Started",),
            _P.SUSPENDING: _LATE,
            _P.SUSPENDED: _LATE,
            _P.RESUMING: _LATE,
            _P.REQUEUED: _LOST,
        }
    ),
    _P.RUNNING: _with_ends(
        {
            _P.SUSPENDING: ("TimeSliceEnded",),
            _P.SUSPENDED: ("TimeSliceEnded", "ObservedLate"),
            _P.RESUMING: _LATE,
            _P.REQUEUED: _LOST,
        }
    ),
    _P.SUSPENDING: _with_ends(
        {
            _P.SUSPENDED: ("TimeSliceEnded",),
            _P.RUNNING: ("SuspensionReverted", "ObservedLate"),
            _P.RESUMING: _LATE,
            _P.REQUEUED: _LOST,
        }
    ),
    _P.SUSPENDED: _with_ends(
        {
            _P.RESUMING: ("TimeSliceStarted",),
            _P.RUNNING: ("TimeSliceStarted", "ObservedLate"),
            _P.SUSPENDING: _LATE,
            _P.REQUEUED: _LOST,
        }
    ),
    _P.RESUMING: _with_ends(
        {
            _P.RUNNING: ("TimeSliceStarted",),
            _P.SUSPENDED: ("ResumptionReverted", "ObservedLate"),
            _P.SUSPENDING: _LATE,
            _P.REQUEUED: _LOST,
        }
    ),
    _P.REQUEUED: _with_ends(
        {
            _P.PENDING: ("PodCreated",),
            _P.GATED: ("WaitingForTimeSlice", "ObservedLate"),
            _P.RUNNING: ("Started", "ObservedLate"),
            _P.SUSPENDING: _LATE,
            _P.SUSPENDED: _LATE,
            _P.RESUMING: _LATE,
        }
    ),
}

EDGES: Mapping[tuple[TrialPhase, TrialPhase], tuple[str, ...]] = MappingProxyType(
    {(start, end): reasons for start, ends in _TABLE.items() for end, reasons in ends.items()}
)


def is_final(phase: TrialPhase) -> bool:
    """Return whether the phase is final."""
    return phase in FINAL


def check(start: TrialPhase, end: TrialPhase) -> tuple[str, ...]:
    """Return the reasons for which `end` may follow `start`. Raises IllegalTransitionError if it may not."""
    reasons = EDGES.get((start, end))
    if reasons is None:
        allowed = sorted(to for begin, to in EDGES if begin == start)
        hint = f"from {start} a trial may change to {', '.join(allowed)}" if allowed else f"{start} is final"
        raise IllegalTransitionError(f"phase {start} cannot change to {end}; {hint}")
    return reasons

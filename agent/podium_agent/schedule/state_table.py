"""Life of a trial on this node as a table: its state by the facts, and the reason of each transition.

`derive` reads facts only (gate, cgroup, the executor's act), so a restarted agent arrives at the same state.
`TRANSITIONS` names every transition with its reason, for logs and for the record of GPU allocations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from podium_core.attempts.local_trial import Acting, Gate, Work
from podium_core.schema.gpunode import SlotState

G, S, R = SlotState.GATED, SlotState.STARTING, SlotState.RUNNING
OUT, OFF, IN = SlotState.SUSPENDING, SlotState.SUSPENDED, SlotState.RESUMING

_BY_GATE = {Gate.ABSENT: G, Gate.WAITING: G, Gate.SILENT: S, Gate.PASSED: S}
_BY_WORK = {
    (Work.THAWED, Acting.NOTHING): R,
    (Work.FROZEN, Acting.NOTHING): OFF,
    (Work.THAWED, Acting.ADMITTING): R,  # it was admitted by an earlier agent and started unobserved
    (Work.FROZEN, Acting.ADMITTING): OFF,
    (Work.THAWED, Acting.SUSPENDING): OUT,
    (Work.FROZEN, Acting.SUSPENDING): OUT,
    (Work.THAWED, Acting.RESUMING): IN,
    (Work.FROZEN, Acting.RESUMING): IN,
}

TRANSITIONS: Mapping[tuple[SlotState, SlotState], str] = MappingProxyType(
    {
        (G, S): "Granted",
        (S, G): "GateReconnected",  # a new agent took a silent gate for an open one
        (G, R): "StartedUnobserved",  # opened by an agent that died before it could report it
        (G, OFF): "ObservedFrozen",
        (S, R): "Started",
        (S, OFF): "ObservedFrozen",
        (R, OUT): "SuspendStarted",
        (R, IN): "ObservedPartlySuspended",
        (OUT, OFF): "Suspended",
        (OUT, R): "SuspendFailed",
        (R, OFF): "FrozenExternally",
        (OFF, IN): "ResumeStarted",
        (IN, R): "Resumed",
        (IN, OFF): "ResumeFailed",
        (OFF, R): "ThawedExternally",
    }
)


def derive(gate: Gate, work: Work, acting: Acting) -> SlotState | None:
    """Return the state that these facts amount to; None: the trial's containers have ended."""
    if work is Work.ENDED:
        return None
    if work is Work.NOT_STARTED:
        return _BY_GATE[gate]
    return _BY_WORK[work, acting]


def reason(before: SlotState | None, after: SlotState | None, done: Acting = Acting.NOTHING) -> str:
    """Return why one state followed another, in CamelCase.

    `done` is an act that ended since the last observation.

    An act may begin and end between two observations. A pair outside the table is a transition that was not observed.
    """
    if before is None:
        return "Observed"
    if after is None:
        return "Ended"
    if (before, after, done) == (R, OFF, Acting.SUSPENDING):
        before = OUT
    elif (before, after, done) == (OFF, R, Acting.RESUMING):
        before = IN
    return TRANSITIONS.get((before, after), "ObservedChange")

"""The two pod conditions that show a trial's state: a frozen pod would only say Running. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podium_core.schema.gpunode import INSUFFICIENT_GPU_MEMORY, TrialState

HOLDS = "podium.dev/holds-gpu"
SUSPENDED = "podium.dev/Suspended"

_MESSAGES = {
    TrialState.GATED: "it waits for its turn on the GPU",
    TrialState.STARTING: "it was let onto the GPU and is starting",
    TrialState.RUNNING: "it is at work on the GPU",
    TrialState.SUSPENDING: "it is being taken off the GPU",
    TrialState.SUSPENDED: "its processes are stopped; it goes on where it was at its next turn",
    TrialState.RESUMING: "it is being brought back onto the GPU",
}
_HOLDS = (TrialState.STARTING, TrialState.RUNNING)


def wanted(state: TrialState, memory_shortage: str = "", trouble: str = "") -> dict[str, tuple[str, str, str]]:
    """Condition type to (status, reason, message). `short`: the GPU memory that it waits for; `trouble`: what is wrong
    with the pod in whatever state, a code and a sentence.
    """
    reason, message = str(state), _MESSAGES[state]
    if memory_shortage and state in (TrialState.GATED, TrialState.SUSPENDED):
        reason, message = INSUFFICIENT_GPU_MEMORY, f"it waits for GPU memory: {memory_shortage}"
    if trouble:
        reason, _, message = trouble.partition(": ")
    return {
        HOLDS: ("True" if state in _HOLDS else "False", reason, message),
        SUSPENDED: ("True" if state is TrialState.SUSPENDED else "False", reason, message),
    }


def patch(
    state: TrialState, shown: Mapping[str, tuple[str, str]], now: str, memory_shortage: str = "", trouble: str = ""
) -> dict[str, Any] | None:
    """The patch that makes the pod show this state; None if it does already."""
    entries = []
    for kind, (status, reason, message) in wanted(state, memory_shortage, trouble).items():
        old_status, old_reason = shown.get(kind, ("", ""))
        if (old_status, old_reason) == (status, reason):
            continue
        entry = {"type": kind, "status": status, "reason": reason, "message": message}
        if old_status != status:
            entry["lastTransitionTime"] = now
        entries.append(entry)
    return {"status": {"conditions": entries}} if entries else None

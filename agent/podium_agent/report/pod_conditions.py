"""The pod conditions that show a trial's state: without them a frozen pod only shows Running. Pure.

A third one, DisruptionTarget of Kubernetes, shows that the GPU driver ended a process of the trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podium_core.domain.observe import GPU_DRIVER_ERROR
from podium_core.schema.gpunode import INSUFFICIENT_GPU_MEMORY, SlotState

DISRUPTION = "DisruptionTarget"
HOLDS = "podium.dev/holds-gpu"
SUSPENDED = "podium.dev/Suspended"

_MESSAGES = {
    SlotState.GATED: "waiting for a time slice on the GPU",
    SlotState.STARTING: "admitted to the GPU and starting",
    SlotState.RUNNING: "holds the GPU",
    SlotState.SUSPENDING: "being suspended",
    SlotState.SUSPENDED: "its processes are stopped; they resume where they stopped in the next time slice",
    SlotState.RESUMING: "being resumed",
}
_HOLDS = (SlotState.STARTING, SlotState.RUNNING)


def wanted(state: SlotState, memory_shortage: str = "", trouble: str = "") -> dict[str, tuple[str, str, str]]:
    """Return (status, reason, message) of each condition type.

    `memory_shortage`: the GPU memory that the trial waits for; `trouble`: a code and a sentence about a problem of the
    pod in any state.
    """
    reason, message = str(state), _MESSAGES[state]
    if memory_shortage and state in (SlotState.GATED, SlotState.SUSPENDED):
        reason, message = INSUFFICIENT_GPU_MEMORY, f"waiting for GPU memory: {memory_shortage}"
    if trouble:
        reason, _, message = trouble.partition(": ")
    return {
        HOLDS: ("True" if state in _HOLDS else "False", reason, message),
        SUSPENDED: ("True" if state is SlotState.SUSPENDED else "False", reason, message),
    }


def patch(
    state: SlotState, shown: Mapping[str, tuple[str, str]], now: str, memory_shortage: str = "", trouble: str = ""
) -> dict[str, Any] | None:
    """Return the patch that makes the pod show this state, or None if it does already."""
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


def disruption_patch(message: str, now: str) -> dict[str, Any]:
    """Return the patch that shows a disruption by the GPU driver, or none if `message` is empty."""
    status = "True" if message else "False"
    text = message or "the trial continued after the GPU driver had ended one of its processes"
    entry = {"type": DISRUPTION, "status": status, "reason": GPU_DRIVER_ERROR, "message": text}
    return {"status": {"conditions": [entry | {"lastTransitionTime": now}]}}

"""States of a GPU reservation, as a table.

A reservation is a GPU that Podium shares among trials while an ordinary low-priority pod, the reservation pod, holds it
by requesting `nvidia.com/gpu`. A pod of higher priority that needs the GPU preempts the reservation pod.

`planning.slots.gpu_reservations` decides when to request and release one. Operator and agent derive the state from
what they observe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class ReservationState(StrEnum):
    """State of a GPU reservation."""

    REQUESTED = (
        "Requested"  # the reservation pod has no node yet: it waits for a free GPU, for quota, or for a new node
    )
    STARTING = "Starting"  # the pod is bound; trials must not use the GPU before the kubelet reports its UUID
    HELD = "Held"  # trials share the GPU
    TERMINATING = "Terminating"  # the pod is terminating: trials are suspended or checkpoint within its grace period
    ENDED = "Ended"


_S = ReservationState

EDGES: Mapping[tuple[ReservationState, ReservationState], tuple[str, ...]] = MappingProxyType(
    {
        (_S.REQUESTED, _S.STARTING): ("Bound",),
        (_S.REQUESTED, _S.HELD): ("ObservedLate",),
        (_S.REQUESTED, _S.TERMINATING): ("ObservedLate",),
        (_S.REQUESTED, _S.ENDED): ("Withdrawn", "ObservedLate"),
        (_S.STARTING, _S.HELD): ("DeviceAssigned",),
        (_S.STARTING, _S.TERMINATING): ("Preempted", "Returned"),
        (_S.STARTING, _S.ENDED): ("Refused", "ObservedLate"),  # by the kubelet, as any pod may be
        (_S.HELD, _S.TERMINATING): ("Preempted", "Returned"),
        (_S.HELD, _S.ENDED): ("NodeLost", "ObservedLate"),
        (_S.TERMINATING, _S.ENDED): ("Evacuated", "GracePeriodExpired"),
    }
)


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """Observed facts about a reservation pod. `device_known`: the kubelet's PodResources names its GPU."""

    exists: bool
    bound: bool = False
    device_known: bool = False
    deleting: bool = False
    ended: bool = False  # its phase is Succeeded or Failed


def derive_state(facts: ReservationFacts) -> ReservationState:
    """Return the state. It follows from the facts alone.

    So a restarted component derives the same state.
    """
    if not facts.exists or facts.ended:
        return ReservationState.ENDED
    if facts.deleting:
        return ReservationState.TERMINATING
    if not facts.bound:
        return ReservationState.REQUESTED
    return ReservationState.HELD if facts.device_known else ReservationState.STARTING

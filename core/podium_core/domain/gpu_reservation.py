"""The life of a GPU lease as a table. A lease is a GPU that Podium shares among trials while an ordinary pod of low
priority, the placeholder, holds it by requesting `nvidia.com/gpu`; whoever needs the GPU more takes the lease.

`planning.gpu_leases` decides when one is wanted and given back; operator and agent derive the state from what they see
(docs/explanation/gpu-reservations.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class ReservationState(StrEnum):
    ASKED = "Asked"  # its placeholder has no node yet: it waits for a free GPU, for quota, or for a new node
    STARTING = "Starting"  # bound; nobody may use the GPU before the kubelet says which one it is
    HELD = "Held"  # trials share it
    LEAVING = "Leaving"  # its placeholder was told to end: trials are suspended or saved within its grace period
    ENDED = "Ended"


_S = ReservationState

EDGES: Mapping[tuple[ReservationState, ReservationState], tuple[str, ...]] = MappingProxyType(
    {
        (_S.ASKED, _S.STARTING): ("Bound",),
        (_S.ASKED, _S.HELD): ("ObservedLate",),
        (_S.ASKED, _S.LEAVING): ("ObservedLate",),
        (_S.ASKED, _S.ENDED): ("Withdrawn", "ObservedLate"),
        (_S.STARTING, _S.HELD): ("DeviceAssigned",),
        (_S.STARTING, _S.LEAVING): ("Preempted", "Returned"),
        (_S.STARTING, _S.ENDED): ("Refused", "ObservedLate"),  # by the kubelet, as any pod may be
        (_S.HELD, _S.LEAVING): ("Preempted", "Returned"),
        (_S.HELD, _S.ENDED): ("NodeLost", "ObservedLate"),
        (_S.LEAVING, _S.ENDED): ("Evacuated", "GracePeriodExpired"),
    }
)


@dataclass(frozen=True, slots=True)
class ReservationFacts:
    """One look at a placeholder. `device_known`: the kubelet's PodResources names its GPU."""

    exists: bool
    bound: bool = False
    device_known: bool = False
    deleting: bool = False
    ended: bool = False  # its phase is Succeeded or Failed


def derive_state(facts: ReservationFacts) -> ReservationState:
    """From facts alone, so that whoever starts anew arrives at the same state."""
    if not facts.exists or facts.ended:
        return ReservationState.ENDED
    if facts.deleting:
        return ReservationState.LEAVING
    if not facts.bound:
        return ReservationState.ASKED
    return ReservationState.HELD if facts.device_known else ReservationState.STARTING

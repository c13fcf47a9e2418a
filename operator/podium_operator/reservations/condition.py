"""Condition GPUsReserved of a job: the state of the GPUs that Podium reserves for it. Pure; used by `controller`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from podium_core.domain.gpu_reservation import ReservationState
from podium_core.planning.gpu_reservations import Demand, Reservation


@dataclass(frozen=True, slots=True)
class Leased:
    """Content of the condition. `complete`: as many GPUs are reserved as can be used and are allowed."""

    complete: bool
    reason: str
    message: str


def leased(
    demand: Demand, leases: Sequence[Reservation], refusal: str = "", evicted: str = "", unscheduled: str = ""
) -> Leased:
    """Return the condition of one pool.

    `refusal`: the API server's message about the last reservation pod; `evicted`: what preempted the last reservation;
    `unscheduled`: the scheduler's message about a pod that waits.
    """
    states = Counter(lease.state for lease in leases)
    wanted, held = min(demand.gpus, demand.max_gpus), states[ReservationState.HELD]
    text = f"{held} of {wanted} GPUs that the trials can use are reserved"
    if demand.gpus > demand.max_gpus:
        text += f" ({demand.gpus} could be used, {demand.max_gpus} are allowed)"
    if held >= wanted:
        return Leased(True, "Held" if wanted else "NoDemand", f"{text}.")
    more = f" The API server refuses another reservation pod for now: {refusal}" if refusal else ""
    if states[ReservationState.ASKED]:
        waits = f"{text}, {states[ReservationState.ASKED]} requested. {unscheduled}".strip()
        return Leased(False, "WaitingForGPU", f"{waits}{more}")
    if states[ReservationState.STARTING]:
        return Leased(False, "Starting", f"{text}, {states[ReservationState.STARTING]} starting.{more}")
    if refusal:
        return Leased(False, "QuotaExceeded" if "exceeded quota" in refusal else "ReservationRefused", f"{text}.{more}")
    if evicted:
        return Leased(
            False, "ReservationPreempted", f"{text}. One was preempted ({evicted}); Podium requests another soon."
        )
    return Leased(False, "Requesting", f"{text}.")

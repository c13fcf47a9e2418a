"""Condition GPUsReserved of a job: the state of the GPUs that Podium reserves for it. Pure; used by `controller`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from podium_core.domain.gpu_reservation import ReservationState
from podium_core.planning.slots.gpu_reservations import Demand, Reservation
from podium_operator.act.postponed_actions import exceeds_quota


@dataclass(frozen=True, slots=True)
class ReservationCondition:
    """Content of the condition. `complete`: as many GPUs are reserved as can be used and are allowed."""

    complete: bool
    reason: str
    message: str


def reservation_condition(
    demand: Demand,
    reservations: Sequence[Reservation],
    refusal: str = "",
    preempted_by: str = "",
    unscheduled: str = "",
    waits_for: str = "",
) -> ReservationCondition:
    """Return the condition of one pool.

    `refusal`: the API server's message about the last reservation pod; `preempted_by`: what preempted the last
    reservation; `unscheduled`: the scheduler's message about a pod that waits; `waits_for`: pods for which
    reservations were given up and that have no node yet.
    """
    states = Counter(reservation.state for reservation in reservations)
    wanted, held = min(demand.gpus, demand.max_gpus), states[ReservationState.HELD]
    text = f"{held} of {wanted} GPUs that the trials can use are reserved"
    if demand.gpus > demand.max_gpus:
        text += f" ({demand.gpus} could be used, {demand.max_gpus} are allowed)"
    if held >= wanted:
        return ReservationCondition(True, "Held" if wanted else "NoDemand", f"{text}.")
    if waits_for:
        return ReservationCondition(
            False, "ReservationYielded", f"{text}. Podium requests no GPU until {waits_for} has a node."
        )
    more = f" The API server refuses another reservation pod for now: {refusal}" if refusal else ""
    if states[ReservationState.REQUESTED]:
        waiting = f"{text}, {states[ReservationState.REQUESTED]} requested. {unscheduled}".strip()
        return ReservationCondition(False, "WaitingForGPU", f"{waiting}{more}")
    if states[ReservationState.STARTING]:
        return ReservationCondition(False, "Starting", f"{text}, {states[ReservationState.STARTING]} starting.{more}")
    if refusal:
        return ReservationCondition(
            False, "QuotaExceeded" if exceeds_quota(refusal) else "ReservationRefused", f"{text}.{more}"
        )
    if preempted_by:
        return ReservationCondition(
            False, "ReservationPreempted", f"{text}. One was preempted ({preempted_by}); Podium requests another soon."
        )
    return ReservationCondition(False, "Requesting", f"{text}.")

"""Decision when to request and release GPUs, where Podium uses GPU reservations.

Pure; the operator calls it after each plan.

A reservation is cheap to keep and expensive to lose: its end suspends its trials or makes them checkpoint. So an
unneeded GPU is kept for LINGER seconds before it is released. After a preemption the next request is delayed more and
more; otherwise the cluster's scheduler would preempt the same trials again and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from podium_core.domain.gpu_reservation import ReservationState
from podium_core.domain.observe import retry_delay

LINGER = 120.0  # seconds for which an unneeded GPU is kept, since a search may create trials at any moment


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """Reservations that can replace each other: the quota that they count against, and the GPU products."""

    namespace: str
    queue: str = ""
    products: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """`gpus`: GPUs that the pool's trials can use now. `max_gpus`: limit of reserved and requested GPUs."""

    gpus: int
    max_gpus: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A GPU reservation.

    `idle_since`: since when no trial has a slot on it; None: some have. `loss`: GPU-seconds that its end would cost its
    trials. `unneeded_since`: since when the pool has had more than it needs (kept on the reservation pod). `in_use`:
    trials of its namespace are on it, running or suspended, even if their search has ended.
    """

    name: str
    pool: Pool
    state: ReservationState
    since: float
    idle_since: float | None = None
    loss: float = 0.0
    unneeded_since: float | None = None
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class PoolPreemptions:
    """Consecutive preemptions of the pool's reservations without a step of its trials.

    `last` is the time of the newest one.
    """

    consecutive: int = 0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestReservation:
    """Request a GPU by creating the reservation pod `name`."""

    pool: Pool
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReleaseReservation:
    """Release a GPU by deleting its reservation pod."""

    reservation: Reservation
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class MarkUnneeded:
    """Note on the reservation pod since when it has not been needed; None: it is needed again."""

    reservation: Reservation
    unneeded_since: float | None


@dataclass(frozen=True, slots=True)
class ReservationPlan:
    """Requests and releases of one cycle."""

    actions: tuple[RequestReservation | ReleaseReservation | MarkUnneeded, ...] = ()
    wake_at: float | None = None  # when to plan again if nothing happens before


_COUNTS = (ReservationState.REQUESTED, ReservationState.STARTING, ReservationState.HELD)


def plan_reservations(
    demands: Mapping[Pool, Demand],
    reservations: Sequence[Reservation],
    preemptions: Mapping[Pool, PoolPreemptions],
    now: float,
    waits_for: str = "",
) -> ReservationPlan:
    """Plan requests and releases. O(reservations log reservations).

    Terminating reservations do not count: what they leave may go to another pod. `waits_for`: pods that are about to
    get GPUs. Until they have them, none is requested, and reservations without a node are released: one of them could
    get a GPU that was given up for such a pod.
    """
    actions: list[RequestReservation | ReleaseReservation | MarkUnneeded] = []
    wakes: list[float] = []
    for pool in sorted({*demands, *(reservation.pool for reservation in reservations)}):
        mine = [
            reservation for reservation in reservations if reservation.pool == pool and reservation.state in _COUNTS
        ]
        demand = demands.get(pool)
        if demand is None:
            # Pods of a search that has just ended checkpoint and end on the GPU, not beside its next user.
            over = [reservation for reservation in mine if not reservation.in_use]
            actions += [
                ReleaseReservation(reservation, "NoActiveJob", "No job uses it any more.") for reservation in over
            ]
            continue
        needed = min(demand.gpus, demand.max_gpus)
        if waits_for:
            unbound = [reservation for reservation in mine if reservation.state is ReservationState.REQUESTED]
            mine = [reservation for reservation in mine if reservation not in unbound]
            message = f"Podium requests no GPU until {waits_for} has a node."
            actions += [ReleaseReservation(reservation, "OtherPodWaits", message) for reservation in unbound]
        elif len(mine) < needed:
            lost = preemptions.get(pool, PoolPreemptions())
            retry_at = lost.last + retry_delay(lost.consecutive) if lost.consecutive else now
            if retry_at > now:
                wakes.append(retry_at)
            else:
                names = {reservation.name for reservation in reservations if reservation.pool == pool}
                actions += _requests(pool, needed - len(mine), needed, names)
        _release(mine, needed, demand.max_gpus, now, actions, wakes)
    return ReservationPlan(tuple(actions), min(wakes, default=None))


def _requests(pool: Pool, missing: int, needed: int, names: set[str]) -> Iterator[RequestReservation]:
    """Yield one request for each missing GPU. `names`: of the pool's reservations that exist."""
    free = (name for number in count() if (name := _name(pool, number)) not in names)
    for _ in range(missing):
        message = f"{needed} GPUs can be used now; {missing} of them are neither reserved nor requested."
        yield RequestReservation(pool, next(free), "TrialsWaiting", message)


def _name(pool: Pool, number: int) -> str:
    """Return the name of a reservation pod.

    It is deterministic, so that an operator that died meanwhile creates no pod twice. A queue's name may be as long as
    a pod's, so it is in the digest only.
    """
    digest = hashlib.sha256("\n".join((pool.queue, *pool.products)).encode()).hexdigest()[:8]
    return f"podium-reservation-{digest}-{number}"


def _release(
    mine: Sequence[Reservation],
    needed: int,
    most: int,
    now: float,
    actions: list[RequestReservation | ReleaseReservation | MarkUnneeded],
    wakes: list[float],
) -> None:
    """Release surplus reservations: first those without a GPU, at once.

    Then, after LINGER, idle and cheap ones.
    """
    order = sorted(
        mine, key=lambda one: (one.state is ReservationState.HELD, one.idle_since is None, one.loss, one.name)
    )
    surplus = max(0, len(mine) - needed)
    for position, reservation in enumerate(order):
        if position >= surplus:
            if reservation.unneeded_since is not None:
                actions.append(MarkUnneeded(reservation, None))
            continue
        over_limit = position < len(mine) - most
        since = now if reservation.unneeded_since is None else reservation.unneeded_since
        if over_limit:
            actions.append(
                ReleaseReservation(reservation, "LimitExceeded", f"{len(mine)} GPUs are reserved, {most} are allowed.")
            )
        elif reservation.state is not ReservationState.HELD:
            actions.append(
                ReleaseReservation(
                    reservation, "NotNeeded", f"{needed} GPUs are needed; this reservation has none yet."
                )
            )
        elif now - since >= LINGER:
            message = f"{needed} GPUs have been needed for {now - since:.0f} s, and no more."
            actions.append(ReleaseReservation(reservation, "NotNeeded", message))
        else:
            wakes.append(since + LINGER)
            if reservation.unneeded_since is None:
                actions.append(MarkUnneeded(reservation, now))

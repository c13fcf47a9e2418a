"""When GPU reservations are requested and released (docs/explanation/gpu-reservations.md).

Pure; called by the operator after each plan.

A lease is cheap to keep and dear to lose: its end suspends or saves the trials on it. So what is not needed is kept for
a while (LINGER) before it is given back, and after an eviction the next one is asked for ever more seldom, or the
cluster's scheduler would throw out the same trials again and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from podium_core.domain.gpu_reservation import ReservationState
from podium_core.domain.observe import retry_delay

LINGER = 120.0  # seconds for which a GPU that nobody needs is kept: a search asks for new trials at any moment


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """Leases that can stand in for one another: whose quota they count against, and which GPUs they are."""

    namespace: str
    queue: str = ""
    products: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """`gpus` that the pool's trials can use now; at most `most` are ever held or asked for."""

    gpus: int
    max_gpus: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """`idle_since`: no trial has a share of it since then, None: some have. `loss`: GPU-seconds that its end would cost
    the trials on it. `unneeded_since`: the pool has had more than it needs since then (kept on the placeholder).
    `in_use`: trials of its own namespace sit on it, at work or suspended, even if their search is over.
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
    """How often in a row the pool lost a lease to others before its trials had made a step, and when it last did."""

    consecutive: int = 0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestReservation:
    pool: Pool
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReleaseReservation:
    lease: Reservation
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class MarkUnneeded:
    """Note on the placeholder since when it is one too many; None: it is needed again."""

    lease: Reservation
    unneeded_since: float | None


@dataclass(frozen=True, slots=True)
class ReservationPlan:
    actions: tuple[RequestReservation | ReleaseReservation | MarkUnneeded, ...] = ()
    wake_at: float | None = None  # when to plan again if nothing happens before


_COUNTS = (ReservationState.ASKED, ReservationState.STARTING, ReservationState.HELD)


def plan_reservations(
    demands: Mapping[Pool, Demand], leases: Sequence[Reservation], evicted: Mapping[Pool, PoolPreemptions], now: float
) -> ReservationPlan:
    """O(leases log leases). Leases that end already count for nothing: what they leave may go to somebody else."""
    actions: list[RequestReservation | ReleaseReservation | MarkUnneeded] = []
    wakes: list[float] = []
    for pool in sorted({*demands, *(lease.pool for lease in leases)}):
        mine = [lease for lease in leases if lease.pool == pool and lease.state in _COUNTS]
        demand = demands.get(pool)
        if demand is None:
            # pods of a search that has just ended save and end on the GPU, not beside its next user
            over = [lease for lease in mine if not lease.in_use]
            actions += [ReleaseReservation(lease, "NoActiveJob", "No search is left that uses it.") for lease in over]
            continue
        wanted = min(demand.gpus, demand.max_gpus)
        if len(mine) < wanted:
            names = {lease.name for lease in leases if lease.pool == pool}
            _ask(pool, wanted - len(mine), wanted, names, evicted.get(pool, PoolPreemptions()), now, actions, wakes)
        _return(mine, wanted, demand.max_gpus, now, actions, wakes)
    return ReservationPlan(tuple(actions), min(wakes, default=None))


def _ask(
    pool: Pool,
    missing: int,
    wanted: int,
    names: set[str],
    evicted: PoolPreemptions,
    now: float,
    actions: list[RequestReservation | ReleaseReservation | MarkUnneeded],
    wakes: list[float],
) -> None:
    again = evicted.last + retry_delay(evicted.consecutive) if evicted.consecutive else now
    if again > now:
        wakes.append(again)
        return
    free = (name for number in count() if (name := _name(pool, number)) not in names)
    for _ in range(missing):
        message = f"{wanted} GPUs can be used now; {missing} of them are neither held nor asked for."
        actions.append(RequestReservation(pool, next(free), "TrialsWaiting", message))


def _name(pool: Pool, number: int) -> str:
    """Deterministic, so that an operator that died over it creates nothing twice; a queue's name may be as long as the
    pod's own may be, so it is in the digest only.
    """
    digest = hashlib.sha256("\n".join((pool.queue, *pool.products)).encode()).hexdigest()[:8]
    return f"podium-reservation-{digest}-{number}"


def _return(
    mine: Sequence[Reservation],
    wanted: int,
    most: int,
    now: float,
    actions: list[RequestReservation | ReleaseReservation | MarkUnneeded],
    wakes: list[float],
) -> None:
    """Who has not got a GPU yet goes first, at once; then the idle, then who would cost least; these after LINGER."""
    order = sorted(
        mine, key=lambda one: (one.state is ReservationState.HELD, one.idle_since is None, one.loss, one.name)
    )
    surplus = max(0, len(mine) - wanted)
    for place, lease in enumerate(order):
        if place >= surplus:
            if lease.unneeded_since is not None:
                actions.append(MarkUnneeded(lease, None))
            continue
        over_limit = place < len(mine) - most
        since = now if lease.unneeded_since is None else lease.unneeded_since
        if over_limit:
            actions.append(
                ReleaseReservation(lease, "LimitExceeded", f"{len(mine)} GPUs are held, {most} are allowed.")
            )
        elif lease.state is not ReservationState.HELD:
            actions.append(ReleaseReservation(lease, "NotNeeded", f"{wanted} GPUs are needed; it has not got one yet."))
        elif now - since >= LINGER:
            message = f"{wanted} GPUs are needed, and no more for {now - since:.0f} s."
            actions.append(ReleaseReservation(lease, "NotNeeded", message))
        else:
            wakes.append(since + LINGER)
            if lease.unneeded_since is None:
                actions.append(MarkUnneeded(lease, now))

"""GPU reservations: the table of states, when a GPU is requested and released, and that a steady demand settles."""

# ruff: noqa: E501 - a table is read by its rows

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.domain.gpu_reservation import EDGES, ReservationFacts, ReservationState, derive_state
from podium_core.planning.slots.gpu_reservations import (
    LINGER,
    Demand,
    MarkUnneeded,
    Pool,
    PoolPreemptions,
    ReleaseReservation,
    RequestReservation,
    Reservation,
    ReservationPlan,
    plan_reservations,
)

S = ReservationState
POOL = Pool("lab")
NOW = 1000.0


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (ReservationFacts(False), S.ENDED),
        (ReservationFacts(True), S.REQUESTED),
        (ReservationFacts(True, bound=True), S.STARTING),
        (ReservationFacts(True, bound=True, device_known=True), S.HELD),
        (ReservationFacts(True, bound=True, device_known=True, deleting=True), S.TERMINATING),
        (ReservationFacts(True, deleting=True), S.TERMINATING),
        (ReservationFacts(True, bound=True, ended=True), S.ENDED),
    ],
)
def test_states_from_facts(facts: ReservationFacts, state: ReservationState) -> None:
    assert derive_state(facts) is state


def test_the_rules_of_the_table() -> None:
    assert all(reason.isalnum() and reason[0].isupper() for reasons in EDGES.values() for reason in reasons)
    assert not any(start is S.ENDED for start, _ in EDGES), "a new pod is a new reservation"
    assert {end for start, end in EDGES if start is S.TERMINATING} == {S.ENDED}, (
        "a terminating reservation cannot be kept"
    )
    order = list(S)
    assert all(order.index(start) < order.index(end) for start, end in EDGES)


def test_every_jump_between_two_observations_is_in_the_table() -> None:
    seen = {derive_state(ReservationFacts(*bits)) for bits in product((False, True), repeat=5)}
    assert seen == set(S)
    assert {start for start, _ in EDGES} == set(S) - {S.ENDED}


def lease(number: int, state: ReservationState = S.HELD, **changes: object) -> Reservation:
    return replace(Reservation(f"l{number}", POOL, state, 0.0), **changes)  # type: ignore[arg-type]


def plan(
    gpus: int,
    leases: Sequence[Reservation],
    most: int = 9,
    evicted: PoolPreemptions | None = None,
    now: float = NOW,
    waits_for: str = "",
) -> ReservationPlan:
    return plan_reservations({POOL: Demand(gpus, most)}, leases, {POOL: evicted} if evicted else {}, now, waits_for)


def said(made: ReservationPlan) -> list[str]:
    words = []
    for action in made.actions:
        match action:
            case RequestReservation():
                words.append("ask")
            case ReleaseReservation():
                words.append(f"back {action.reservation.name} {action.reason}")
            case MarkUnneeded():
                words.append(
                    f"mark {action.reservation.name} {'-' if action.unneeded_since is None else action.unneeded_since:}"
                )
    return words


LONG_AGO = NOW - LINGER
CASES = {
    "as many as are needed": (plan(2, [lease(0)]), ["ask"]),
    "a requested reservation counts": (plan(2, [lease(0), lease(1, S.REQUESTED)]), []),
    "a terminating reservation does not count": (plan(1, [lease(0, S.TERMINATING)]), ["ask"]),
    "never over the limit": (plan(5, [lease(0)], most=2), ["ask"]),
    "no longer needed: kept for a while": (plan(0, [lease(0)]), [f"mark l0 {NOW}"]),
    "and then given back": (plan(0, [lease(0, unneeded_since=LONG_AGO)]), ["back l0 NotNeeded"]),
    "needed again": (plan(1, [lease(0, unneeded_since=NOW - 1.0)]), ["mark l0 -"]),
    "a reservation without a GPU is released first, at once": (plan(1, [lease(0), lease(1, S.REQUESTED)]), ["back l1 NotNeeded"]),
    "then the idle one": (plan(1, [lease(0, unneeded_since=LONG_AGO), lease(1, unneeded_since=LONG_AGO, idle_since=5.0)]), ["back l1 NotNeeded", "mark l0 -"]),
    "then the one that costs least": (plan(1, [lease(0, loss=9.0, unneeded_since=LONG_AGO), lease(1, loss=2.0, unneeded_since=LONG_AGO)]), ["back l1 NotNeeded", "mark l0 -"]),
    "the limit was lowered: at once": (plan(2, [lease(0, loss=1.0), lease(1)], most=1), ["back l1 LimitExceeded"]),
    "evicted a moment ago": (plan(1, [], evicted=PoolPreemptions(1, NOW - 1.0)), []),
    "evicted before that": (plan(1, [], evicted=PoolPreemptions(1, NOW - 2.0)), ["ask"]),
    "evicted again and again": (plan(1, [], evicted=PoolPreemptions(6, NOW - 30.0)), []),
    "none while another pod is about to get a GPU": (plan(2, [lease(0)], waits_for="a/b"), []),
    "and those without a node are withdrawn": (plan(3, [lease(0), lease(1, S.REQUESTED), lease(2, S.STARTING)], waits_for="a/b"), ["back l1 OtherPodWaits"]),
    "the last search of the pool has ended: at once": (plan_reservations({}, [lease(0)], {}, NOW), ["back l0 NoActiveJob"]),
    "but not under pods of it that are still there": (plan_reservations({}, [lease(0, in_use=True), lease(1, S.REQUESTED)], {}, NOW), ["back l1 NoActiveJob"]),
}  # fmt: skip


@pytest.mark.parametrize(("made", "expected"), CASES.values(), ids=CASES.keys())
def test_when_a_gpu_is_requested_and_released(made: ReservationPlan, expected: list[str]) -> None:
    assert said(made) == expected
    assert all(action.message for action in made.actions if not isinstance(action, MarkUnneeded))


def test_a_plan_gives_the_time_of_the_next_plan() -> None:
    assert plan(0, [lease(0, unneeded_since=NOW - 20.0)]).wake_at == NOW - 20.0 + LINGER
    assert plan(1, [], evicted=PoolPreemptions(1, NOW - 1.5)).wake_at == NOW + 0.5
    assert plan(1, [lease(0)]).wake_at is None


def test_names_are_deterministic_and_differ_by_pool() -> None:
    pools = [POOL, Pool("lab", "research"), Pool("lab", products=("NVIDIA-H100",))]
    made = plan_reservations({pool: Demand(2, 9) for pool in pools}, [], {}, NOW)
    names = [action.name for action in made.actions if isinstance(action, RequestReservation)]
    assert len(set(names)) == 6
    assert made == plan_reservations({pool: Demand(2, 9) for pool in pools}, [], {}, NOW)
    assert all(len(name) <= 63 and name == name.lower() for name in names)


class World:
    """Carries plans out: a GPU is had at once where one is free."""

    def __init__(self, free: int) -> None:
        self.leases: dict[str, Reservation] = {}
        self.now, self.free = NOW, free
        self.changes = 0

    def turn(self, gpus: int, most: int) -> None:
        made = plan_reservations({POOL: Demand(gpus, most)}, list(self.leases.values()), {}, self.now)
        kinds = {type(action) for action in made.actions}
        assert not {RequestReservation, ReleaseReservation} <= kinds, "what is given back was not to be asked for"
        for action in made.actions:
            if isinstance(action, RequestReservation):
                assert action.name not in self.leases
                self.leases[action.name] = Reservation(action.name, POOL, S.REQUESTED, self.now)
            elif isinstance(action, ReleaseReservation):
                self.free += self.leases.pop(action.reservation.name).state is S.HELD
            else:
                self.leases[action.reservation.name] = replace(action.reservation, unneeded_since=action.unneeded_since)
            self.changes += not isinstance(action, MarkUnneeded)
        for name, one in sorted(self.leases.items()):
            if one.state is S.REQUESTED and self.free:
                self.free -= 1
                self.leases[name] = replace(one, state=S.HELD, since=self.now)
        assert len(self.leases) <= max(most, 0)


@given(st.lists(st.tuples(st.integers(0, 8), st.floats(1.0, 300.0)), max_size=12), st.integers(0, 8), st.integers(0, 6))
def test_a_steady_demand_leads_to_a_steady_state(history: list[tuple[int, float]], most: int, free: int) -> None:
    world = World(free)
    for gpus, seconds in [*history, (3, 1.0), (3, LINGER), (3, 1.0)]:
        world.turn(gpus, most)
        world.now += seconds
    world.turn(3, most)
    assert len(world.leases) == min(3, most)
    before = world.changes
    for _ in range(3):
        world.now += 1000.0
        world.turn(3, most)
    assert world.changes == before


@given(st.lists(st.integers(2, 4), max_size=20))
def test_a_quickly_changing_demand_releases_no_gpu(demands: list[int]) -> None:
    world = World(8)
    world.turn(4, 8)
    for gpus in demands:
        world.now += LINGER / 3
        world.turn(gpus, 8)
        world.now += 1.0
        world.turn(4, 8)
    assert sum(one.state is S.HELD for one in world.leases.values()) == 4
    assert world.changes == 4

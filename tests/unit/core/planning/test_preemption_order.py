"""The order in which Kueue should preempt GPU reservations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.planning.slots.preemption_order import (
    NEGLIGIBLE,
    AdmittedReservation,
    cost_class,
    highest_boost,
    priority_boosts,
)

LOW = -10


def boosts(costs: list[float], priority: int = LOW, queue: str = "cq") -> list[int]:
    given = [AdmittedReservation(str(number), queue, priority, cost) for number, cost in enumerate(costs)]
    return list(priority_boosts(given).values())


@pytest.mark.parametrize(
    ("costs", "priority", "expected"),
    [
        ([], LOW, []),
        ([5000.0], LOW, [0]),
        ([300.0, 0.0, 5000.0], LOW, [1, 0, 2]),
        ([0.0, NEGLIGIBLE - 1, NEGLIGIBLE], LOW, [0, 0, 1]),
        ([300.0, 0.0, 5000.0], -2, [1, 0, 1]),
        ([300.0, 0.0, 5000.0], -1, [0, 0, 0]),
    ],
    ids=["none", "one alone", "three", "hardly different", "the default priority", "no room below the default"],
)
def test_the_cheapest_reservation_has_no_boost(costs: list[float], priority: int, expected: list[int]) -> None:
    assert boosts(costs, priority) == expected


def test_each_cluster_queue_has_an_order_of_its_own() -> None:
    reservations = [
        AdmittedReservation(f"{queue}{cost}", queue, LOW, cost) for queue in "ab" for cost in (100.0, 900.0)
    ]
    assert priority_boosts(reservations) == {"a100.0": 0, "a900.0": 1, "b100.0": 0, "b900.0": 1}


@given(st.lists(st.floats(0, 1e9), max_size=30), st.integers(-50, -1))
def test_no_boost_reaches_the_default_priority_and_the_order_is_that_of_the_costs(
    costs: list[float], priority: int
) -> None:
    found = boosts(costs, priority)
    assert all(boost >= 0 > priority + boost for boost in found)
    for cost, boost in zip(costs, found, strict=True):
        for other, higher in zip(costs, found, strict=True):
            assert boost <= higher or cost >= other or cost_class(cost) == cost_class(other)
    if costs:
        assert min(found) == 0, "one of them is preempted first"


@given(st.floats(NEGLIGIBLE, 1e9))
def test_a_cost_changes_its_class_when_it_has_doubled(cost: float) -> None:
    assert cost_class(2 * cost) == cost_class(cost) + 1


def test_only_a_priority_below_the_default_leaves_room() -> None:
    assert [highest_boost(priority) for priority in (-3, -2, -1, 0, 5)] == [2, 1, 0, 0, 0]

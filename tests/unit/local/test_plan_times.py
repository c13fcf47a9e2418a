"""When local mode plans: values wait a little, the end of a trial does not, and no change is forgotten."""

from __future__ import annotations

import pytest

from podium_local.runner import CYCLE_SECONDS, PLAN_SECONDS, SHORTEST_SECONDS, PlanTimes

NOW = 100.0


@pytest.fixture
def times() -> PlanTimes:
    made = PlanTimes()
    assert made.due(NOW, changed=False, urgent=False), "the first look plans"
    made.planned(NOW, wake_at=None)
    return made


def test_a_value_waits_until_half_a_second_after_the_last_plan(times: PlanTimes) -> None:
    assert not times.due(NOW + 0.1, changed=True, urgent=False)
    assert times.due(NOW + PLAN_SECONDS, changed=True, urgent=False)


def test_a_change_that_had_to_wait_is_not_forgotten(times: PlanTimes) -> None:
    assert not times.due(NOW + 0.1, changed=True, urgent=False)
    assert times.due(NOW + PLAN_SECONDS, changed=False, urgent=False)
    times.planned(NOW + PLAN_SECONDS, wake_at=None)
    assert not times.due(NOW + 2 * PLAN_SECONDS, changed=False, urgent=False), "that plan has seen the change"


def test_the_end_of_a_trial_does_not_wait(times: PlanTimes) -> None:
    assert times.due(NOW + 0.001, changed=True, urgent=True)


def test_without_a_change_the_next_plan_is_due_when_the_last_one_says(times: PlanTimes) -> None:
    times.planned(NOW, wake_at=NOW + 2.0)
    assert not times.due(NOW + 1.9, changed=False, urgent=False)
    assert times.seconds_left(NOW + 1.9) == pytest.approx(0.1)
    assert times.due(NOW + 2.0, changed=False, urgent=False)


def test_a_plan_that_wants_the_next_one_at_once_gets_it_after_a_pause(times: PlanTimes) -> None:
    times.planned(NOW, wake_at=NOW - 1.0)
    assert not times.due(NOW, changed=False, urgent=False)
    assert times.due(NOW + SHORTEST_SECONDS, changed=False, urgent=False)


def test_a_plan_is_made_at_least_every_few_seconds(times: PlanTimes) -> None:
    times.planned(NOW, wake_at=NOW + 1000.0)
    assert times.due(NOW + CYCLE_SECONDS, changed=False, urgent=False)
    times.planned(NOW, wake_at=NOW + 1000.0)
    times.wake(NOW)
    assert times.due(NOW, changed=False, urgent=False)

"""The demand test on cases known by hand, the door's numbers, and random sets whose promises must hold.

`PODIUM_REALTIME_SETS=10000 pytest tests/unit/realtime` is the long search.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import LONG, searching

from podium_realtime.admission.demand import Demand, examine
from podium_realtime.admission.door import Gpu, admit
from podium_realtime.model.network import chain, resnet18
from podium_realtime.model.refusal import RealtimeError
from podium_realtime.model.task import PeriodicTask
from podium_realtime.simulation.promises import check

PAIR = chain("pair", [("a", 1.0, 1.0), ("b", 1.0, 1.0)])


@pytest.mark.parametrize(
    ("demands", "fits", "code"),
    [
        ([], True, "Fits"),
        ([Demand(10, 10, 10, 1)], False, "Overloaded"),
        ([Demand(10, 10, 9.9, 1)], True, "Fits"),
        ([Demand(10, 4, 5, 1)], False, "DeadlinesNotMet"),
        ([Demand(10, 10, 5, 1), Demand(10, 10, 4.9, 1)], True, "Fits"),
        # EDF with preemption would do both; a stage of 3 that just began makes the short one late
        ([Demand(4, 4, 2, 0.5), Demand(100, 100, 6, 3)], False, "DeadlinesNotMet"),
        ([Demand(4, 4, 2, 0.5), Demand(100, 100, 6, 2)], True, "Fits"),
        # the second deadline of the short one, not its first
        ([Demand(4, 4, 2, 2), Demand(9, 9, 4, 0.5), Demand(50, 49, 1.1, 0.1)], True, "Fits"),
    ],
)
def test_demand(demands: list[Demand], fits: bool, code: str) -> None:
    found = examine(demands)
    assert (found.fits, found.code) == (fits, code)


def test_close_to_full_the_short_test_decides() -> None:
    # the demand test would have to look at millions of instants
    full = [Demand(1.0 + 0.001 * n, 1.0 + 0.001 * n, (1.0 + 0.001 * n) / 10.000001, 0.05) for n in range(10)]
    assert examine(full).code == "UtilisationTooHigh"


def gpu(contexts: int = 2) -> Gpu:
    return Gpu("gpu-0", contexts, {("pair", context): (0.001, 0.001) for context in range(contexts)})


def test_the_door_fills_the_least_used_context_and_says_its_numbers() -> None:
    state = gpu()
    where = []
    for number in range(5):
        decision = admit(PeriodicTask(f"t{number}", PAIR, 0.005, 0.005), state)
        state = decision.gpu
        where.append(decision.gpu.homes.get(f"t{number}", -1))
    assert where == [0, 1, 0, 1, -1]
    assert decision.code == "Overloaded"
    assert "t4" in decision.message
    assert "1.200" in decision.message  # the utilisation that it would be
    assert "a period of 10." in decision.message


def test_the_cure_that_the_door_names_works() -> None:
    state = gpu(1)
    state = admit(PeriodicTask("t0", PAIR, 0.004, 0.003), state).gpu
    refused = admit(PeriodicTask("t1", PAIR, 0.003, 0.003), state)
    assert not refused.accepted
    period = float(refused.message.split("a period of ")[1].split(" ms")[0]) * 1e-3
    deadline = float(refused.message.split("a deadline of ")[1].split(" ms")[0]) * 1e-3
    # the message rounds to 0.1 ms
    assert admit(PeriodicTask("t1", PAIR, period + 1e-4, min(period, deadline) + 1e-4), state).accepted


@pytest.mark.parametrize(
    ("task", "where"),
    [
        (PeriodicTask("t0", PAIR, 1.0, 1.0), "task t0: name"),
        (PeriodicTask("t9", resnet18(), 1.0, 1.0), "task t9: network"),
    ],
)
def test_the_door_refuses_by_task_and_field(task: PeriodicTask, where: str) -> None:
    state = admit(PeriodicTask("t0", PAIR, 1.0, 1.0), gpu()).gpu
    with pytest.raises(RealtimeError) as error:
        admit(task, state)
    assert error.value.where == where


@searching(100, LONG)
@given(seed=st.integers(0, 2**32 - 1))
def test_promises_hold_for_random_sets(seed: int) -> None:
    assert check(seed).missed == 0


def test_the_random_sets_are_worth_the_trouble() -> None:
    """Full contexts, many tasks, many releases; and a door that believes too short times breaks its promises."""
    seeds = range(60)
    found = [check(seed) for seed in seeds]
    assert sum(one.refused for one in found) > len(seeds)
    assert sum(one.releases for one in found) > 20 * len(seeds)
    assert sum(one.utilisation > 0.7 for one in found) > len(seeds) / 3
    assert sum(check(seed, belief=0.5).missed > 0 for seed in seeds) > 5

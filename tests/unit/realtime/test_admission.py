"""Admission control: the demand test on hand-computed cases, the controller's messages, guarantees of random task sets.

`PODIUM_REALTIME_SETS=10000 pytest tests/unit/realtime` runs the long search.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from realtime_builders import RANDOM_SETS, hypothesis_settings

from podium_realtime.admission.controller import GpuState, admit
from podium_realtime.admission.demand import TaskDemand, processor_demand_test
from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.network import chain, resnet18
from podium_realtime.model.task import PeriodicTask
from podium_realtime.simulation.guarantees import check_guarantees

PAIR = chain("pair", [("a", 1.0, 1.0), ("b", 1.0, 1.0)])


@pytest.mark.parametrize(
    ("demands", "schedulable", "code"),
    [
        ([], True, "Fits"),
        ([TaskDemand(10, 10, 10, 1)], False, "Overloaded"),
        ([TaskDemand(10, 10, 9.9, 1)], True, "Fits"),
        ([TaskDemand(10, 4, 5, 1)], False, "DeadlinesNotMet"),
        ([TaskDemand(10, 10, 5, 1), TaskDemand(10, 10, 4.9, 1)], True, "Fits"),
        # preemptive EDF could schedule both; a stage of 3 that has just started makes the short task late
        ([TaskDemand(4, 4, 2, 0.5), TaskDemand(100, 100, 6, 3)], False, "DeadlinesNotMet"),
        ([TaskDemand(4, 4, 2, 0.5), TaskDemand(100, 100, 6, 2)], True, "Fits"),
        # the tightest instant is the second deadline of the short task, not its first
        ([TaskDemand(4, 4, 2, 2), TaskDemand(9, 9, 4, 0.5), TaskDemand(50, 49, 1.1, 0.1)], True, "Fits"),
    ],
)
def test_processor_demand_on_hand_computed_cases(demands: list[TaskDemand], schedulable: bool, code: str) -> None:
    result = processor_demand_test(demands)
    assert (result.schedulable, result.code) == (schedulable, code)


def test_the_density_test_decides_near_full_utilisation() -> None:
    # the processor demand test would have to compute the demand at millions of instants
    full = [TaskDemand(1.0 + 0.001 * n, 1.0 + 0.001 * n, (1.0 + 0.001 * n) / 10.000001, 0.05) for n in range(10)]
    assert processor_demand_test(full).code == "UtilisationTooHigh"


def make_gpu(contexts: int = 2) -> GpuState:
    return GpuState("gpu-0", contexts, {("pair", context): (0.001, 0.001) for context in range(contexts)})


def test_the_controller_fills_the_least_used_context_and_reports_utilisation() -> None:
    gpu = make_gpu()
    contexts = []
    for number in range(5):
        decision = admit(PeriodicTask(f"t{number}", PAIR, 0.005, 0.005), gpu)
        gpu = decision.gpu
        contexts.append(decision.gpu.context_of.get(f"t{number}", -1))
    assert contexts == [0, 1, 0, 1, -1]
    assert decision.code == "Overloaded"
    assert "t4" in decision.message
    assert "1.200" in decision.message  # the utilisation with the rejected task
    assert "a period of 10." in decision.message


def test_the_period_that_the_controller_suggests_is_admitted() -> None:
    gpu = make_gpu(1)
    gpu = admit(PeriodicTask("t0", PAIR, 0.004, 0.003), gpu).gpu
    rejected = admit(PeriodicTask("t1", PAIR, 0.003, 0.003), gpu)
    assert not rejected.accepted
    period = float(rejected.message.split("a period of ")[1].split(" ms")[0]) * 1e-3
    deadline = float(rejected.message.split("a deadline of ")[1].split(" ms")[0]) * 1e-3
    # the message rounds to 0.1 ms
    assert admit(PeriodicTask("t1", PAIR, period + 1e-4, min(period, deadline) + 1e-4), gpu).accepted


@pytest.mark.parametrize(
    ("task", "where"),
    [
        (PeriodicTask("t0", PAIR, 1.0, 1.0), "task t0: name"),
        (PeriodicTask("t9", resnet18(), 1.0, 1.0), "task t9: network"),
    ],
)
def test_invalid_requests_are_rejected_with_task_and_field(task: PeriodicTask, where: str) -> None:
    gpu = admit(PeriodicTask("t0", PAIR, 1.0, 1.0), make_gpu()).gpu
    with pytest.raises(RealtimeError) as error:
        admit(task, gpu)
    assert error.value.where == where


@hypothesis_settings(100, RANDOM_SETS)
@given(seed=st.integers(0, 2**32 - 1))
def test_admitted_random_task_sets_meet_all_deadlines(seed: int) -> None:
    assert check_guarantees(seed).missed == 0


def test_random_task_sets_are_demanding_enough() -> None:
    """Contexts are full, with many tasks and releases, and worst-case times that are too short lead to misses."""
    seeds = range(60)
    checks = [check_guarantees(seed) for seed in seeds]
    assert sum(check.rejected for check in checks) > len(seeds)
    assert sum(check.releases for check in checks) > 20 * len(seeds)
    assert sum(check.utilisation > 0.7 for check in checks) > len(seeds) / 3
    assert sum(check_guarantees(seed, time_scale=0.5).missed > 0 for seed in seeds) > 5

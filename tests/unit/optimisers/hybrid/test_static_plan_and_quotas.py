"""Static plans with work stealing, quotas and the hierarchical policy: invariants and hand-made cases."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulation_checks import assert_deterministic, assert_feasible, assert_work_conserving, cases

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.engine.traces import synthetic_trace
from podium_optimisers.engine.workload import BatchJob, Workload, WorkloadError
from podium_optimisers.hybrid.hierarchical import HierarchicalPolicy
from podium_optimisers.hybrid.quotas import GroupDemand, forecast_arrivals, plan_quotas
from podium_optimisers.hybrid.static_plan import StaticPlanPolicy, lpt_node_plan


def batch(lengths: list[float], gpus: int = 1) -> Workload:
    return Workload.of([BatchJob(f"j{i}", 0.0, seconds, gpus) for i, seconds in enumerate(lengths)])


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e4), max_size=30), st.integers(1, 5))
def test_a_plan_contains_every_job_once_and_is_balanced(predicted: list[float], nodes: int) -> None:
    node_queues = lpt_node_plan(predicted, [1] * len(predicted), GpuCluster(nodes, 1))
    assert sorted(row for node_queue in node_queues for row in node_queue) == list(range(len(predicted)))
    work = [sum(predicted[row] for row in node_queue) for node_queue in node_queues]
    if predicted:
        assert max(work) <= sum(predicted) / nodes + max(predicted) * (1 - 1 / nodes) + 1e-6, "Graham's bound"
    for node_queue in node_queues:
        assert all(predicted[a] >= predicted[b] for a, b in pairwise(node_queue))


def test_work_stealing_corrects_a_wrong_prediction() -> None:
    predicted = np.array([5.0, 4.0, 3.0, 3.0])
    true = simulate(batch(predicted.tolist()), GpuCluster(2, 1), StaticPlanPolicy(predicted, work_stealing=False))
    assert true.makespan == 8.0
    # the first job is ten times shorter than predicted: without work stealing its node idles from 3.5 on
    real = batch([0.5, 4.0, 3.0, 3.0])
    assert simulate(real, GpuCluster(2, 1), StaticPlanPolicy(predicted, work_stealing=False)).finish.tolist() == [
        0.5,
        4.0,
        7.0,
        3.5,
    ]
    assert simulate(real, GpuCluster(2, 1), StaticPlanPolicy(predicted)).finish.tolist() == [0.5, 4.0, 6.5, 3.5]


@settings(deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_static_plans_give_feasible_schedules(case: tuple[Workload, GpuCluster, PreemptionCosts], seed: int) -> None:
    workload, drawn, costs = case
    cluster = GpuCluster(drawn.nodes, drawn.gpus)  # nodes wide enough for every gang
    guess = workload.duration * np.random.default_rng(seed).lognormal(0.0, 1.0, len(workload))
    for work_stealing in (False, True):
        result = assert_deterministic(workload, cluster, StaticPlanPolicy(guess, work_stealing), costs)
        assert_feasible(result, cluster, costs)
        assert result.preemptions.sum() == 0
        assert all(len(allocation.placement) == 1 for allocation in result.allocations), (
            "a planned gang runs on one node"
        )


@pytest.mark.parametrize(
    ("workload", "predicted", "job", "field"),
    [
        (batch([1.0, 2.0], gpus=3), [1.0, 2.0], "j0", "gpus"),
        (batch([1.0, 2.0]), [1.0], "(all)", "predicted"),
        (batch([1.0, 2.0]), [1.0, math.nan], "j1", "predicted"),
        (batch([1.0, 2.0]), [-1.0, 1.0], "j0", "predicted"),
    ],
)
def test_invalid_plans_name_job_and_field(workload: Workload, predicted: list[float], job: str, field: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        simulate(workload, GpuCluster(2, 2), StaticPlanPolicy(np.array(predicted)))
    assert (refused.value.job, refused.value.field) == (job, field)


demands = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(GroupDemand, st.floats(0.0, 1e6), st.integers(0, 12), st.floats(0.0, 100.0)),
    min_size=1,
)


@settings(deadline=None)
@given(demands, st.integers(1, 64))
@example(
    {
        "a": GroupDemand(1, 0, 0),
        "b": GroupDemand(167417, 0, 0),
        "c": GroupDemand(167417, 4, 0),
        "d": GroupDemand(422469.875, 0, 0),
    },
    43,
)
def test_quotas_are_whole_numbers_and_use_all_gpus(demands: dict[str, GroupDemand], gpus: int) -> None:
    quotas = plan_quotas(demands, gpus)
    assert quotas.keys() == demands.keys()
    assert sum(quotas.values()) == gpus
    assert all(quota >= 0 for quota in quotas.values())
    assert quotas == plan_quotas(dict(reversed(demands.items())), gpus)
    oldest = min(demands, key=lambda name: (demands[name].waiting_since, name))
    if demands[oldest].widest_gang <= gpus:
        assert quotas[oldest] >= demands[oldest].widest_gang, "the gang with the longest wait fits into its quota"


def test_quotas_follow_demand_and_the_widest_gang() -> None:
    assert plan_quotas({"a": GroupDemand(30, 1, 0), "b": GroupDemand(10, 1, 0)}, 8) == {"a": 6, "b": 2}
    assert plan_quotas({"a": GroupDemand(30, 1, 0), "b": GroupDemand(10, 4, 0)}, 8) == {"a": 4, "b": 4}
    assert plan_quotas({"a": GroupDemand(0, 0, math.inf), "b": GroupDemand(0, 0, math.inf)}, 3) == {"a": 2, "b": 1}
    assert plan_quotas({}, 3) == {}


def test_forecast_arrivals_use_the_season_once_it_is_known() -> None:
    night_and_day = np.tile([0.0] * 12 + [10.0] * 12, 4)
    assert forecast_arrivals(night_and_day[:20], 2) == pytest.approx(2 * 4.0)
    assert forecast_arrivals(night_and_day, 12) < 1.0
    assert forecast_arrivals(np.concatenate([night_and_day, [0.0] * 12]), 12) > 100.0
    assert forecast_arrivals(np.array([]), 5) == 0.0


@settings(deadline=None)
@given(cases(), st.booleans())
def test_the_hierarchical_policy_gives_feasible_schedules(
    case: tuple[Workload, GpuCluster, PreemptionCosts], lend: bool
) -> None:
    workload, cluster, costs = case
    result = assert_deterministic(workload, cluster, HierarchicalPolicy(lend=lend), costs)
    assert_feasible(result, cluster, costs)
    if lend:
        assert_work_conserving(result, cluster)


def test_a_group_reclaims_lent_gpus() -> None:
    """Group a borrows the GPUs of b while b is idle; a job of b reclaims two GPUs at once. The quotas are equal."""
    jobs = [BatchJob("seed-b", 0, 1, 2, group="b"), *(BatchJob(f"a{i}", 1, 20, 2, group="a") for i in range(2))]
    jobs.append(BatchJob("late-b", 7200, 10, 2, group="b"))
    seconds = [
        BatchJob(job.name, job.arrival, 30000.0 if job.group == "a" else job.duration, 2, group=job.group)
        for job in jobs
    ]
    lending = simulate(Workload.of(seconds), GpuCluster(1, 4), HierarchicalPolicy(period=1))
    assert lending.preemptions.tolist() == [0, 0, 1, 0]
    assert lending.finish[3] == 7210.0


def test_a_short_job_preempts_a_much_longer_one_of_its_full_group() -> None:
    known = [
        BatchJob(f"{user}{i}", 0, seconds, 1, user, "a")
        for user, seconds in (("quick", 10), ("slow", 1000))
        for i in range(9)
    ]
    asked = [BatchJob("left", 20000, 1000, 1, "slow", "a"), BatchJob("right", 20001, 1000, 1, "slow", "a")]
    asked.append(BatchJob("between", 20100, 10, 1, "quick", "a"))
    result = simulate(Workload.of([*known, *asked]), GpuCluster(1, 2), HierarchicalPolicy())
    assert result.start[-3:].tolist() == [20000.0, 20001.0, 20100.0]
    assert result.preemptions[-3:].tolist() == [0, 1, 0], "of two equally long jobs, the later one is preempted"
    assert result.finish[-3:].tolist() == [21000.0, 21011.0, 20110.0]


def test_an_invalid_period_is_refused() -> None:
    with pytest.raises(ValueError, match=r"period must be at least 1 hour \(got 0 hours\)"):
        simulate(batch([1.0]), GpuCluster(1, 1), HierarchicalPolicy(period=0))


def test_lending_beats_partitions() -> None:
    workload = synthetic_trace(1200, np.random.default_rng(4), load=0.8)
    cluster, costs = GpuCluster(8, 8), PreemptionCosts(30.0, 60.0)
    lent, partitions = (simulate(workload, cluster, HierarchicalPolicy(lend=lend), costs) for lend in (True, False))
    assert lent.mean_completion < partitions.mean_completion

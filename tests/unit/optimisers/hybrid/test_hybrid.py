"""Plans, their corrections, quotas and the hierarchy: rules of the engine, hand-made cases, and what they are for."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from engine_checks import cases, deterministic, feasible, work_conserving
from hypothesis import example, given, settings
from hypothesis import strategies as st

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.engine.traces import synthetic_trace
from podium_optimisers.engine.workload import Job, Workload, WorkloadError
from podium_optimisers.hybrid.hierarchical import Hierarchical
from podium_optimisers.hybrid.planned import Planned, plan_nodes
from podium_optimisers.hybrid.quotas import Demand, expected_jobs, plan_quotas


def batch(lengths: list[float], gpus: int = 1) -> Workload:
    return Workload.of([Job(f"j{i}", 0.0, long, gpus) for i, long in enumerate(lengths)])


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e4), max_size=30), st.integers(1, 5))
def test_a_plan_holds_every_job_once_and_is_balanced(predicted: list[float], nodes: int) -> None:
    lanes = plan_nodes(predicted, [1] * len(predicted), Cluster(nodes, 1))
    assert sorted(row for lane in lanes for row in lane) == list(range(len(predicted)))
    work = [sum(predicted[row] for row in lane) for lane in lanes]
    if predicted:
        assert max(work) <= sum(predicted) / nodes + max(predicted) * (1 - 1 / nodes) + 1e-6, "Graham's bound"
    for lane in lanes:
        assert all(predicted[a] >= predicted[b] for a, b in pairwise(lane))


def test_a_true_plan_needs_no_correction_and_a_false_one_gets_it() -> None:
    predicted = np.array([5.0, 4.0, 3.0, 3.0])
    true = simulate(batch(predicted.tolist()), Cluster(2, 1), Planned(predicted, corrected=False))
    assert true.makespan == 8.0
    # the first turns out ten times shorter: literally its node idles from 3.5 on, corrected it takes the last job
    real = batch([0.5, 4.0, 3.0, 3.0])
    assert simulate(real, Cluster(2, 1), Planned(predicted, corrected=False)).finish.tolist() == [0.5, 4.0, 7.0, 3.5]
    assert simulate(real, Cluster(2, 1), Planned(predicted)).finish.tolist() == [0.5, 4.0, 6.5, 3.5]


@settings(deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_plans_at_work_keep_the_rules(case: tuple[Workload, Cluster, Costs], seed: int) -> None:
    workload, drawn, charged = case
    cluster = Cluster(drawn.nodes, drawn.gpus)  # nodes wide enough for every gang
    guess = workload.duration * np.random.default_rng(seed).lognormal(0.0, 1.0, len(workload))
    for corrected in (False, True):
        outcome = deterministic(workload, cluster, Planned(guess, corrected), charged)
        feasible(outcome, cluster, charged)
        assert outcome.preemptions.sum() == 0
        assert all(len(span.place) == 1 for span in outcome.spans), "a planned gang stays on one node"


@pytest.mark.parametrize(
    ("workload", "predicted", "job", "field"),
    [
        (batch([1.0, 2.0], gpus=3), [1.0, 2.0], "j0", "gpus"),
        (batch([1.0, 2.0]), [1.0], "(all)", "predicted"),
        (batch([1.0, 2.0]), [1.0, math.nan], "j1", "predicted"),
        (batch([1.0, 2.0]), [-1.0, 1.0], "j0", "predicted"),
    ],
)
def test_bad_plans_name_job_and_field(workload: Workload, predicted: list[float], job: str, field: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        simulate(workload, Cluster(2, 2), Planned(np.array(predicted)))
    assert (refused.value.job, refused.value.field) == (job, field)


demands = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(Demand, st.floats(0.0, 1e6), st.integers(0, 12), st.floats(0.0, 100.0)),
    min_size=1,
)


@settings(deadline=None)
@given(demands, st.integers(1, 64))
@example(
    {"a": Demand(1, 0, 0), "b": Demand(167417, 0, 0), "c": Demand(167417, 4, 0), "d": Demand(422469.875, 0, 0)}, 43
)
def test_quotas_are_whole_and_use_the_cluster(demands: dict[str, Demand], gpus: int) -> None:
    quotas = plan_quotas(demands, gpus)
    assert quotas.keys() == demands.keys()
    assert sum(quotas.values()) == gpus
    assert all(quota >= 0 for quota in quotas.values())
    assert quotas == plan_quotas(dict(reversed(demands.items())), gpus)
    oldest = min(demands, key=lambda name: (demands[name].since, name))
    if demands[oldest].widest <= gpus:
        assert quotas[oldest] >= demands[oldest].widest, "the longest wait comes to its gang"


def test_quotas_follow_demand_and_the_widest_gang() -> None:
    assert plan_quotas({"a": Demand(30, 1, 0), "b": Demand(10, 1, 0)}, 8) == {"a": 6, "b": 2}
    assert plan_quotas({"a": Demand(30, 1, 0), "b": Demand(10, 4, 0)}, 8) == {"a": 4, "b": 4}
    assert plan_quotas({"a": Demand(0, 0, math.inf), "b": Demand(0, 0, math.inf)}, 3) == {"a": 2, "b": 1}
    assert plan_quotas({}, 3) == {}


def test_expected_jobs_use_the_season_once_it_is_known() -> None:
    night_and_day = np.tile([0.0] * 12 + [10.0] * 12, 4)
    assert expected_jobs(night_and_day[:20], 2) == pytest.approx(2 * 4.0)
    assert expected_jobs(night_and_day, 12) < 1.0
    assert expected_jobs(np.concatenate([night_and_day, [0.0] * 12]), 12) > 100.0
    assert expected_jobs(np.array([]), 5) == 0.0


@settings(deadline=None)
@given(cases(), st.booleans())
def test_the_hierarchy_keeps_the_rules(case: tuple[Workload, Cluster, Costs], lend: bool) -> None:
    workload, cluster, charged = case
    outcome = deterministic(workload, cluster, Hierarchical(lend=lend), charged)
    feasible(outcome, cluster, charged)
    if lend:
        work_conserving(outcome, cluster)


def test_lent_gpus_come_back() -> None:
    """a borrows b's half while b is away; b's job takes two GPUs back at once. Both groups ask for the same."""
    jobs = [Job("seed-b", 0, 1, 2, group="b"), *(Job(f"a{i}", 1, 20, 2, group="a") for i in range(2))]
    jobs.append(Job("late-b", 7200, 10, 2, group="b"))
    long = [
        Job(job.name, job.arrival, 30000.0 if job.group == "a" else job.duration, 2, group=job.group) for job in jobs
    ]
    lending = simulate(Workload.of(long), Cluster(1, 4), Hierarchical(period=1))
    assert lending.preemptions.tolist() == [0, 0, 1, 0]
    assert lending.finish[3] == 7210.0


def test_in_a_full_group_a_short_job_displaces_a_much_longer_one() -> None:
    known = [Job(f"{who}{i}", 0, long, 1, who, "a") for who, long in (("quick", 10), ("slow", 1000)) for i in range(9)]
    asked = [Job("left", 20000, 1000, 1, "slow", "a"), Job("right", 20001, 1000, 1, "slow", "a")]
    asked.append(Job("between", 20100, 10, 1, "quick", "a"))
    outcome = simulate(Workload.of([*known, *asked]), Cluster(1, 2), Hierarchical())
    assert outcome.start[-3:].tolist() == [20000.0, 20001.0, 20100.0]
    assert outcome.preemptions[-3:].tolist() == [0, 1, 0], "of two as long, the one that came last gives way"
    assert outcome.finish[-3:].tolist() == [21000.0, 21011.0, 20110.0]


def test_the_period_is_checked() -> None:
    with pytest.raises(ValueError, match="period is 0 hours"):
        simulate(batch([1.0]), Cluster(1, 1), Hierarchical(period=0))


def test_lending_beats_partitions() -> None:
    workload = synthetic_trace(1200, np.random.default_rng(4), load=0.8)
    cluster, charged = Cluster(8, 8), Costs(30.0, 60.0)
    lent, partitions = (simulate(workload, cluster, Hierarchical(lend=lend), charged) for lend in (True, False))
    assert lent.mean_completion < partitions.mean_completion

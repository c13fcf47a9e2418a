"""Every policy gives feasible schedules, SRPT is optimal where proven, LAS and Gittins are correct."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulation_checks import assert_deterministic, assert_feasible, assert_work_conserving, cases, eighths

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import SchedulingPolicy, simulate
from podium_optimisers.engine.traces import poisson_workload, synthetic_trace
from podium_optimisers.engine.workload import BatchJob, Workload
from podium_optimisers.preemptive.gittins import gittins_table
from podium_optimisers.preemptive.policies import FifoPolicy, GittinsPolicy, LasPolicy, SafPolicy, SjfPolicy, SrptPolicy
from podium_optimisers.queueing.srpt import simulate_srpt

ONE = GpuCluster(1, 1)


def all_policies(services: np.ndarray) -> list[SchedulingPolicy]:
    return [
        FifoPolicy(backfill=True),
        SjfPolicy(),
        SafPolicy(),
        SrptPolicy(),
        LasPolicy((3.0,)),
        LasPolicy((2.0, 6.0), 1.5),
        GittinsPolicy.fit(services, 5),
    ]


@settings(deadline=None)
@given(cases())
def test_every_policy_gives_feasible_schedules(case: tuple[Workload, GpuCluster, PreemptionCosts]) -> None:
    workload, cluster, costs = case
    for policy in all_policies(workload.duration * workload.gpus):
        result = assert_deterministic(workload, cluster, policy, costs)
        assert_feasible(result, cluster, costs)
        assert_work_conserving(result, cluster)


@settings(deadline=None)
@given(cases())
def test_strict_sjf_starts_no_job_before_a_shorter_waiting_job(
    case: tuple[Workload, GpuCluster, PreemptionCosts],
) -> None:
    workload, cluster, costs = case
    result = assert_deterministic(workload, cluster, SjfPolicy(backfill=False), costs)
    assert_feasible(result, cluster, costs)
    for row, start in enumerate(result.start.tolist()):
        kept_waiting = (workload.arrival <= start) & (result.start > start)
        assert np.all(workload.duration[kept_waiting] >= workload.duration[row])


@settings(deadline=None)
@given(st.lists(st.tuples(eighths, eighths), min_size=1, max_size=10))
def test_srpt_minimises_the_mean_on_one_gpu(drawn: list[tuple[float, float]]) -> None:
    """No policy has a lower mean on one machine without costs (Schrage 1968)."""
    workload = Workload.of([BatchJob(str(i), at, long) for i, (at, long) in enumerate(drawn)])
    best = simulate(workload, ONE, SrptPolicy()).mean_completion
    for policy in all_policies(workload.duration):
        assert best <= simulate(workload, ONE, policy).mean_completion * (1 + 1e-12)


@settings(deadline=None)
@given(st.lists(eighths, min_size=1, max_size=7), st.randoms(use_true_random=False))
def test_sjf_minimises_the_mean_of_jobs_that_are_all_present(lengths: list[float], shuffler: Random) -> None:
    """On one machine with all jobs at time 0, no other sequence has a lower mean (Smith 1956)."""
    workload = Workload.of([BatchJob(str(i), 0.0, long) for i, long in enumerate(lengths)])
    mean = simulate(workload, ONE, SjfPolicy()).mean_completion
    shuffler.shuffle(lengths)
    assert mean <= float(np.mean(np.cumsum(lengths))) * (1 + 1e-12)


def test_srpt_preempts_for_a_shorter_job_only_if_the_restart_pays() -> None:
    workload = Workload.of([BatchJob("long", 0, 10), BatchJob("short", 1, 5)])
    assert simulate(workload, ONE, SrptPolicy()).finish.tolist() == [15.0, 6.0]
    assert simulate(workload, ONE, SrptPolicy(), PreemptionCosts(restart=3)).finish.tolist() == [18.0, 6.0]
    assert simulate(workload, ONE, SrptPolicy(), PreemptionCosts(restart=4)).finish.tolist() == [10.0, 15.0]


def test_a_gang_preempts_only_what_it_needs() -> None:
    """At 1 the gang of 3 ranks first; of the two narrow jobs the longer is preempted and the other still fits."""
    jobs = [BatchJob("a", 0, 9, 2), BatchJob("b", 0, 8, 1), BatchJob("c", 0, 7, 1), BatchJob("gang", 1, 2, 3)]
    result = simulate(Workload.of(jobs), GpuCluster(1, 4), SrptPolicy(), record=True)
    assert result.finish.tolist() == [11.0, 10.0, 7.0, 3.0]
    assert result.preemptions.tolist() == [1, 1, 0, 0]


def test_las_demotes_at_the_threshold_and_promotes_after_waiting() -> None:
    """At a threshold of 4 GPU-seconds, a gang of 2 is demoted after 2 s and preempted by the new job."""
    jobs = [BatchJob("wide", 0, 6, 2), BatchJob("new", 1, 8, 2)]
    result = simulate(Workload.of(jobs), GpuCluster(1, 2), LasPolicy((4.0,)))
    # 0-2 wide, 2-4 new; both are demoted then, and FIFO does not preempt, so new continues to 10
    assert result.finish.tolist() == [14.0, 10.0]
    promoted = simulate(Workload.of(jobs), GpuCluster(1, 2), LasPolicy((4.0,), promote=1.5))
    # wide has worked 2 s: after waiting 3 s, at 5, it is promoted, works 2 s to 7 and is demoted again
    assert promoted.preemptions.tolist()[1] >= 1
    assert promoted.finish[0] < 14.0


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: simulate(Workload.of([]), ONE, LasPolicy(())), "thresholds"),
        (lambda: simulate(Workload.of([]), ONE, LasPolicy((3.0, 2.0))), "thresholds"),
        (lambda: simulate(Workload.of([]), ONE, LasPolicy((math.nan,))), "thresholds"),
        (lambda: simulate(Workload.of([]), ONE, LasPolicy((3.0,), promote=0.0)), "promote"),
        (lambda: gittins_table(np.array([])), "services"),
        (lambda: gittins_table(np.array([1.0, -1.0])), r"services\[1\] is -1"),
        (lambda: gittins_table(np.array([1.0]), steps=0), "steps"),
    ],
)
def test_invalid_settings_are_named(call: object, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        call()  # type: ignore[operator]


@settings(deadline=None)
@example([1.0, 1e6, 999999.9999999999], 2)
@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=60), st.integers(1, 20))
def test_a_gittins_table_has_ascending_ages_and_positive_indices(services: list[float], steps: int) -> None:
    table = gittins_table(np.array(services), steps)
    assert table.ages[0] == 0.0
    assert list(table.ages) == sorted(set(table.ages))
    assert table.ages[-1] == max(services)
    assert len(table.index) == len(table.ages)
    assert table.index[-1] == 0.0
    assert all(index > 0.0 for index in table.index[:-1])


def test_gittins_of_known_distributions() -> None:
    generator = np.random.default_rng(0)
    memoryless = gittins_table(generator.exponential(2.0, 200_000), 20)
    assert memoryless.index[:15] == pytest.approx([0.5] * 15, rel=0.03), (
        "memoryless: the index is the rate at every age"
    )
    mixture = np.where(generator.random(200_000) < 0.9, 1.0, 50.0) * generator.exponential(1.0, 200_000)
    mixed = gittins_table(mixture, 6)
    assert list(mixed.index) == sorted(mixed.index, reverse=True), "decreasing hazard rate: a falling index"
    even = gittins_table(generator.uniform(5.0, 6.0, 200_000), 6)
    assert list(even.index[:-1]) == sorted(even.index[:-1]), "increasing hazard rate: a rising index"


def test_gittins_beats_fifo_for_durations_of_high_variance() -> None:
    generator = np.random.default_rng(1)
    jobs = 5_000
    durations = np.where(generator.random(jobs) < 0.9, 1.0, 20.0) * generator.exponential(1.0, jobs)
    arrival = np.cumsum(generator.exponential(float(durations.mean()) / 0.8, jobs))
    workload = Workload(arrival, durations, np.ones(jobs, dtype=np.int64))
    fifo, gittins, srpt = (
        simulate(workload, ONE, policy).mean_completion
        for policy in (FifoPolicy(), GittinsPolicy.fit(durations), SrptPolicy())
    )
    assert srpt < gittins < 0.5 * fifo


def test_srpt_of_an_m_m_1_queue_agrees_with_the_formula() -> None:
    """The mean response of M/M/1 at load 0.5 is 1.4254 under SRPT (Schrage and Miller 1966) and 2 under FIFO."""
    workload = poisson_workload(40_000, 0.5, np.random.default_rng(2))
    assert simulate(workload, ONE, SrptPolicy()).mean_completion == pytest.approx(1.4254, rel=0.03)
    assert simulate(workload, ONE, FifoPolicy()).mean_completion == pytest.approx(2.0, rel=0.06)


def test_srpt_agrees_with_the_single_server_simulator() -> None:
    """The simulator in queueing.srpt has its own loop; both must give each job the same end."""
    workload = poisson_workload(5_000, 0.9, np.random.default_rng(7))
    ends = workload.arrival + simulate_srpt(workload.arrival, workload.duration)
    assert simulate(workload, ONE, SrptPolicy()).finish == pytest.approx(ends, rel=1e-9)


def test_srpt_beats_sjf_and_sjf_beats_fifo_on_a_trace_with_costs() -> None:
    workload = synthetic_trace(1500, np.random.default_rng(5))
    costs = PreemptionCosts(30.0, 60.0)
    means = [
        simulate(workload, GpuCluster(8, 8), policy, costs).mean_completion
        for policy in (SrptPolicy(), SjfPolicy(), FifoPolicy())
    ]
    assert means == sorted(means)
    assert means[2] > 1.5 * means[1]

"""Every policy keeps the engine's rules; SRPT is optimal where it is proven to be; LAS and Gittins do what they say."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from engine_checks import cases, deterministic, eighths, feasible, work_conserving
from hypothesis import example, given, settings
from hypothesis import strategies as st

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.simulation import Policy, simulate
from podium_optimisers.engine.traces import poisson, synthetic_trace
from podium_optimisers.engine.workload import Job, Workload
from podium_optimisers.preemptive.gittins import gittins_table
from podium_optimisers.preemptive.policies import Fifo, Gittins, Las, Saf, Sjf, Srpt
from podium_optimisers.queueing.srpt import simulate_srpt

ONE = Cluster(1, 1)


def everyone(services: np.ndarray) -> list[Policy]:
    return [Fifo(backfill=True), Sjf(), Saf(), Srpt(), Las((3.0,)), Las((2.0, 6.0), 1.5), Gittins.learned(services, 5)]


@settings(deadline=None)
@given(cases())
def test_every_policy_keeps_the_rules(case: tuple[Workload, Cluster, Costs]) -> None:
    workload, cluster, charged = case
    for policy in everyone(workload.duration * workload.gpus):
        outcome = deterministic(workload, cluster, policy, charged)
        feasible(outcome, cluster, charged)
        work_conserving(outcome, cluster)


@settings(deadline=None)
@given(cases())
def test_a_strict_sjf_starts_nobody_before_a_shorter_job(case: tuple[Workload, Cluster, Costs]) -> None:
    workload, cluster, charged = case
    outcome = deterministic(workload, cluster, Sjf(backfill=False), charged)
    feasible(outcome, cluster, charged)
    for row, start in enumerate(outcome.start.tolist()):
        kept_waiting = (workload.arrival <= start) & (outcome.start > start)
        assert np.all(workload.duration[kept_waiting] >= workload.duration[row])


@settings(deadline=None)
@given(st.lists(st.tuples(eighths, eighths), min_size=1, max_size=10))
def test_srpt_is_best_on_one_gpu(drawn: list[tuple[float, float]]) -> None:
    """Schrage 1968: no policy has a lower mean on one machine without costs."""
    workload = Workload.of([Job(str(i), at, long) for i, (at, long) in enumerate(drawn)])
    best = simulate(workload, ONE, Srpt()).mean_completion
    for policy in everyone(workload.duration):
        assert best <= simulate(workload, ONE, policy).mean_completion * (1 + 1e-12)


@settings(deadline=None)
@given(st.lists(eighths, min_size=1, max_size=7), st.randoms(use_true_random=False))
def test_sjf_is_best_without_preemption_when_all_are_there(lengths: list[float], shuffler: Random) -> None:
    """Smith 1956: on one machine with all jobs at time 0, any other sequence has at least SJF's mean."""
    workload = Workload.of([Job(str(i), 0.0, long) for i, long in enumerate(lengths)])
    mean = simulate(workload, ONE, Sjf()).mean_completion
    shuffler.shuffle(lengths)
    assert mean <= float(np.mean(np.cumsum(lengths))) * (1 + 1e-12)


def test_srpt_preempts_for_a_shorter_job_only_if_the_restart_pays() -> None:
    workload = Workload.of([Job("long", 0, 10), Job("short", 1, 5)])
    assert simulate(workload, ONE, Srpt()).finish.tolist() == [15.0, 6.0]
    assert simulate(workload, ONE, Srpt(), Costs(restart=3)).finish.tolist() == [18.0, 6.0]
    assert simulate(workload, ONE, Srpt(), Costs(restart=4)).finish.tolist() == [10.0, 15.0]


def test_a_gang_takes_what_it_needs_and_the_rest_is_filled() -> None:
    """At 1 the gang of 3 beats all; of the two ones the later goes, and the one that fits beside it stays."""
    jobs = [Job("a", 0, 9, 2), Job("b", 0, 8, 1), Job("c", 0, 7, 1), Job("gang", 1, 2, 3)]
    outcome = simulate(Workload.of(jobs), Cluster(1, 4), Srpt(), record=True)
    assert outcome.finish.tolist() == [11.0, 10.0, 7.0, 3.0]
    assert outcome.preemptions.tolist() == [1, 1, 0, 0]


def test_las_sinks_at_its_threshold_and_comes_back_when_promoted() -> None:
    """Threshold 4 GPU-seconds, a gang of 2: it sinks after 2 s of work and gives way to the newcomer."""
    jobs = [Job("wide", 0, 6, 2), Job("new", 1, 8, 2)]
    outcome = simulate(Workload.of(jobs), Cluster(1, 2), Las((4.0,)))
    # 0-2 wide, 2-4 new (both sunk now, first come goes first, nobody is pushed off): new runs on to 10
    assert outcome.finish.tolist() == [14.0, 10.0]
    promoted = simulate(Workload.of(jobs), Cluster(1, 2), Las((4.0,), promote=1.5))
    # wide has worked 2 s: after 3 s of waiting, at 5, it is in the first queue again, works 2 s to 7 and sinks
    assert promoted.preemptions.tolist()[1] >= 1
    assert promoted.finish[0] < 14.0


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: simulate(Workload.of([]), ONE, Las(())), "thresholds"),
        (lambda: simulate(Workload.of([]), ONE, Las((3.0, 2.0))), "thresholds"),
        (lambda: simulate(Workload.of([]), ONE, Las((math.nan,))), "thresholds"),
        (lambda: simulate(Workload.of([]), ONE, Las((3.0,), promote=0.0)), "promote"),
        (lambda: gittins_table(np.array([])), "services"),
        (lambda: gittins_table(np.array([1.0, -1.0])), r"services\[1\] is -1"),
        (lambda: gittins_table(np.array([1.0]), steps=0), "steps"),
    ],
)
def test_bad_settings_are_named(call: object, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        call()  # type: ignore[operator]


@settings(deadline=None)
@example([1.0, 1e6, 999999.9999999999], 2)
@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=60), st.integers(1, 20))
def test_a_gittins_table_is_a_table(services: list[float], steps: int) -> None:
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
    assert memoryless.index[:15] == pytest.approx([0.5] * 15, rel=0.03), "age says nothing: the rate, at every age"
    mixture = np.where(generator.random(200_000) < 0.9, 1.0, 50.0) * generator.exponential(1.0, 200_000)
    mixed = gittins_table(mixture, 6)
    assert list(mixed.index) == sorted(mixed.index, reverse=True), "who has worked long will work long: falling"
    even = gittins_table(generator.uniform(5.0, 6.0, 200_000), 6)
    assert list(even.index[:-1]) == sorted(even.index[:-1]), "who has worked long is nearly done: rising"


def test_gittins_beats_fifo_where_durations_spread() -> None:
    generator = np.random.default_rng(1)
    jobs = 5_000
    durations = np.where(generator.random(jobs) < 0.9, 1.0, 20.0) * generator.exponential(1.0, jobs)
    arrival = np.cumsum(generator.exponential(float(durations.mean()) / 0.8, jobs))
    workload = Workload(arrival, durations, np.ones(jobs, dtype=np.int64))
    fifo, gittins, srpt = (
        simulate(workload, ONE, policy).mean_completion for policy in (Fifo(), Gittins.learned(durations), Srpt())
    )
    assert srpt < gittins < 0.5 * fifo


def test_srpt_of_a_queue_is_near_its_formula() -> None:
    """Mean response of M/M/1 under SRPT at load 0.5: 1.4254 (Schrage and Miller 1966); FIFO: 2."""
    workload = poisson(40_000, 0.5, np.random.default_rng(2))
    assert simulate(workload, ONE, Srpt()).mean_completion == pytest.approx(1.4254, rel=0.03)
    assert simulate(workload, ONE, Fifo()).mean_completion == pytest.approx(2.0, rel=0.06)


def test_srpt_agrees_with_the_loop_that_knows_one_gpu_only() -> None:
    """The room's other SRPT (queueing.srpt) has its own loop: both give each job the same end."""
    workload = poisson(5_000, 0.9, np.random.default_rng(7))
    ends = workload.arrival + simulate_srpt(workload.arrival, workload.duration)
    assert simulate(workload, ONE, Srpt()).finish == pytest.approx(ends, rel=1e-9)


def test_the_order_of_the_classics_on_a_trace_with_costs() -> None:
    workload = synthetic_trace(1500, np.random.default_rng(5))
    charged = Costs(30.0, 60.0)
    means = [simulate(workload, Cluster(8, 8), policy, charged).mean_completion for policy in (Srpt(), Sjf(), Fifo())]
    assert means == sorted(means)
    assert means[2] > 1.5 * means[1]

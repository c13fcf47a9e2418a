"""Duration prediction: shrinkage, recency, and no use of future information."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation_checks import assert_deterministic, assert_feasible, assert_work_conserving, cases

from podium_optimisers.engine.cluster import GpuCluster, PreemptionCosts
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.engine.traces import synthetic_trace
from podium_optimisers.engine.workload import BatchJob, Workload
from podium_optimisers.prediction.history import DurationHistory, HistorySettings, burst_templates, job_classes
from podium_optimisers.prediction.predicted import PredictedSjfPolicy, PredictedSrptPolicy
from podium_optimisers.preemptive.policies import FifoPolicy, SjfPolicy

ALL, ANN = (), ("user", "ann")
PLAIN = HistorySettings(default_duration=100.0, half_life=1e9, shrink=2.0)


def test_a_prediction_shrinks_towards_the_wider_class() -> None:
    history = DurationHistory(PLAIN)
    assert history.predict((ALL, ANN)) == 100.0
    history.observe((ALL, ANN), 10.0)
    all_policies = (1 * 10.0 + 2 * 100.0) / 3
    assert history.predict((ALL,)) == pytest.approx(all_policies)
    assert history.predict((ALL, ANN)) == pytest.approx((1 * 10.0 + 2 * all_policies) / 3)
    for _ in range(2000):
        history.observe((ALL, ANN), 10.0)
    assert history.predict((ALL, ANN)) == pytest.approx(10.0, rel=0.01)


def test_recent_jobs_count_most() -> None:
    history = DurationHistory(HistorySettings(default_duration=1.0, half_life=1.0, shrink=1e-9))
    for duration in (1000.0, 8.0, 4.0):
        history.observe((ALL,), duration)
    assert history.predict((ALL,)) == pytest.approx((1000 / 4 + 8 / 2 + 4) / (1 / 4 + 1 / 2 + 1))


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=30), st.floats(0.5, 1e4), st.floats(0.01, 50.0))
def test_a_prediction_lies_between_the_observed_durations(seen: list[float], half_life: float, shrink: float) -> None:
    history = DurationHistory(HistorySettings(60.0, half_life, shrink))
    for duration in seen:
        history.observe((ALL, ANN), duration)
    assert min([60.0, *seen]) * (1 - 1e-9) <= history.predict((ALL, ANN)) <= max([60.0, *seen]) * (1 + 1e-9)


def test_classes_go_from_wide_to_narrow_and_skip_missing_labels() -> None:
    workload = Workload.of([BatchJob("a", 0, 1, 2, "ann", "vc", "train"), BatchJob("b", 0, 1, 2, "", "vc", "")])
    assert job_classes(workload, 0)[1:] == (
        ("group", "vc"),
        ("group", "vc", "user", "ann"),
        ("group", "vc", "user", "ann", "gpus", 2),
        ("group", "vc", "user", "ann", "gpus", 2, "template", "train"),
    )
    assert job_classes(workload, 1) == ((), ("group", "vc"), ("group", "vc", "gpus", 2))


def test_bursts_depend_only_on_earlier_arrivals() -> None:
    jobs = [
        BatchJob("a", 0, 1),
        BatchJob("b", 30, 1),
        BatchJob("wide", 31, 1, 2),
        BatchJob("c", 100, 1),
        BatchJob("d", 161, 1),
    ]
    templates = burst_templates(Workload.of(jobs), gap=60.0)
    assert templates == ("burst-0", "burst-0", "burst-0", "burst-1", "burst-2")
    assert burst_templates(Workload.of(jobs[:3]), gap=60.0) == templates[:3]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: HistorySettings(default_duration=-1.0), "default_duration"),
        (lambda: HistorySettings(half_life=math.nan), "half_life"),
        (lambda: HistorySettings(shrink=0.0), "shrink"),
        (lambda: DurationHistory().observe((ALL,), -3.0), "a job of class all has a duration of -3"),
        (lambda: DurationHistory().observe((ALL, ANN), -3.0), "a job of class user ann has a duration of -3"),
        (lambda: DurationHistory().observe((ALL,), math.nan), "nan"),
        (lambda: burst_templates(Workload.of([]), gap=-1.0), "gap"),
    ],
)
def test_invalid_input_is_named(call: object, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        call()  # type: ignore[operator]


@settings(deadline=None)
@given(cases())
def test_predicted_policies_give_feasible_schedules(case: tuple[Workload, GpuCluster, PreemptionCosts]) -> None:
    workload, cluster, costs = case
    for policy in (PredictedSjfPolicy(), PredictedSrptPolicy(), PredictedSjfPolicy(HistorySettings(5.0, 2.0, 0.5))):
        result = assert_deterministic(workload, cluster, policy, costs)
        assert_feasible(result, cluster, costs)
        assert_work_conserving(result, cluster)
    assert_feasible(assert_deterministic(workload, cluster, PredictedSjfPolicy(backfill=False), costs), cluster, costs)


@settings(deadline=None)
@given(cases(), st.floats(1.1, 50.0))
def test_durations_of_unfinished_jobs_are_not_read(
    case: tuple[Workload, GpuCluster, PreemptionCosts], factor: float
) -> None:
    """Until the first completion, no decision depends on the true durations."""
    workload, cluster, costs = case
    one = simulate(workload, cluster, PredictedSjfPolicy(), costs)
    end = float(one.finish.min())
    longer = replace(workload, duration=np.where(one.finish > end, workload.duration * factor, workload.duration))
    other = simulate(longer, cluster, PredictedSjfPolicy(), costs)
    early = one.start < end
    assert one.start[early].tolist() == other.start[early].tolist()


def test_predictions_keep_most_of_the_gain_of_true_durations() -> None:
    workload = synthetic_trace(2500, np.random.default_rng(8))
    cluster = GpuCluster(8, 8)
    fifo, oracle, predicted, doubling = (
        simulate(workload, cluster, policy).mean_completion
        for policy in (FifoPolicy(), SjfPolicy(), PredictedSjfPolicy(), PredictedSrptPolicy())
    )
    assert (fifo - predicted) / (fifo - oracle) > 0.85
    assert (fifo - doubling) / (fifo - oracle) > 0.85


def test_waiting_jobs_are_queued_again_when_the_prediction_of_their_class_changes() -> None:
    """All jobs are predicted to take 100 s. Ann's first takes 1 s, so her next passes Bob's earlier job."""
    jobs = [
        BatchJob("ann-0", 0, 1, user="ann"),
        BatchJob("bob", 0.1, 50, user="bob"),
        BatchJob("ann-1", 0.2, 1, user="ann"),
    ]
    policy = PredictedSjfPolicy(HistorySettings(default_duration=100.0, shrink=1.0))
    result = simulate(Workload.of(jobs), GpuCluster(1, 1), policy)
    assert result.finish.tolist() == [1.0, 52.0, 2.0]

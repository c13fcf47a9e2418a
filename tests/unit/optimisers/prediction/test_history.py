"""Duration prediction: shrinkage, recency, and that nothing is known before its time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from engine_checks import cases, deterministic, feasible, work_conserving
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.engine.cluster import Cluster, Costs
from podium_optimisers.engine.simulation import simulate
from podium_optimisers.engine.traces import synthetic_trace
from podium_optimisers.engine.workload import Job, Workload
from podium_optimisers.prediction.history import DurationHistory, HistorySettings, burst_templates, classes_of
from podium_optimisers.prediction.predicted import PredictedSjf, PredictedSrpt
from podium_optimisers.preemptive.policies import Fifo, Sjf

ALL, ANN = (), ("user", "ann")
PLAIN = HistorySettings(first_guess=100.0, half_life=1e9, shrink=2.0)


def test_a_prediction_leans_on_the_wider_class() -> None:
    history = DurationHistory(PLAIN)
    assert history.predict((ALL, ANN)) == 100.0
    history.observe((ALL, ANN), 10.0)
    everyone = (1 * 10.0 + 2 * 100.0) / 3
    assert history.predict((ALL,)) == pytest.approx(everyone)
    assert history.predict((ALL, ANN)) == pytest.approx((1 * 10.0 + 2 * everyone) / 3)
    for _ in range(2000):
        history.observe((ALL, ANN), 10.0)
    assert history.predict((ALL, ANN)) == pytest.approx(10.0, rel=0.01)


def test_the_newest_count_most() -> None:
    history = DurationHistory(HistorySettings(first_guess=1.0, half_life=1.0, shrink=1e-9))
    for duration in (1000.0, 8.0, 4.0):
        history.observe((ALL,), duration)
    assert history.predict((ALL,)) == pytest.approx((1000 / 4 + 8 / 2 + 4) / (1 / 4 + 1 / 2 + 1))


@settings(deadline=None)
@given(st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=30), st.floats(0.5, 1e4), st.floats(0.01, 50.0))
def test_a_prediction_lies_within_what_was_seen(seen: list[float], half_life: float, shrink: float) -> None:
    history = DurationHistory(HistorySettings(60.0, half_life, shrink))
    for duration in seen:
        history.observe((ALL, ANN), duration)
    assert min([60.0, *seen]) * (1 - 1e-9) <= history.predict((ALL, ANN)) <= max([60.0, *seen]) * (1 + 1e-9)


def test_classes_run_from_wide_to_narrow_and_skip_what_is_unknown() -> None:
    workload = Workload.of([Job("a", 0, 1, 2, "ann", "vc", "train"), Job("b", 0, 1, 2, "", "vc", "")])
    assert classes_of(workload, 0)[1:] == (
        ("group", "vc"),
        ("group", "vc", "user", "ann"),
        ("group", "vc", "user", "ann", "gpus", 2),
        ("group", "vc", "user", "ann", "gpus", 2, "template", "train"),
    )
    assert classes_of(workload, 1) == ((), ("group", "vc"), ("group", "vc", "gpus", 2))


def test_bursts_look_only_back() -> None:
    jobs = [Job("a", 0, 1), Job("b", 30, 1), Job("wide", 31, 1, 2), Job("c", 100, 1), Job("d", 161, 1)]
    found = burst_templates(Workload.of(jobs), gap=60.0)
    assert found == ("burst-0", "burst-0", "burst-0", "burst-1", "burst-2")
    assert burst_templates(Workload.of(jobs[:3]), gap=60.0) == found[:3]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: HistorySettings(first_guess=-1.0), "first_guess"),
        (lambda: HistorySettings(half_life=math.nan), "half_life"),
        (lambda: HistorySettings(shrink=0.0), "shrink"),
        (lambda: DurationHistory().observe((ALL,), -3.0), "a job of all: a duration of -3"),
        (lambda: DurationHistory().observe((ALL, ANN), -3.0), "a job of user ann: a duration of -3"),
        (lambda: DurationHistory().observe((ALL,), math.nan), "nan"),
        (lambda: burst_templates(Workload.of([]), gap=-1.0), "gap"),
    ],
)
def test_bad_input_is_named(call: object, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        call()  # type: ignore[operator]


@settings(deadline=None)
@given(cases())
def test_predicted_policies_keep_the_rules(case: tuple[Workload, Cluster, Costs]) -> None:
    workload, cluster, charged = case
    for policy in (PredictedSjf(), PredictedSrpt(), PredictedSjf(HistorySettings(5.0, 2.0, 0.5))):
        outcome = deterministic(workload, cluster, policy, charged)
        feasible(outcome, cluster, charged)
        work_conserving(outcome, cluster)
    feasible(deterministic(workload, cluster, PredictedSjf(backfill=False), charged), cluster, charged)


@settings(deadline=None)
@given(cases(), st.floats(1.1, 50.0))
def test_the_future_is_not_read(case: tuple[Workload, Cluster, Costs], factor: float) -> None:
    """Until the first job ends, nothing depends on how long jobs will turn out to be."""
    workload, cluster, charged = case
    one = simulate(workload, cluster, PredictedSjf(), charged)
    end = float(one.finish.min())
    longer = replace(workload, duration=np.where(one.finish > end, workload.duration * factor, workload.duration))
    other = simulate(longer, cluster, PredictedSjf(), charged)
    early = one.start < end
    assert one.start[early].tolist() == other.start[early].tolist()


def test_history_recovers_most_of_the_oracles_gain() -> None:
    workload = synthetic_trace(2500, np.random.default_rng(8))
    cluster = Cluster(8, 8)
    fifo, oracle, predicted, doubling = (
        simulate(workload, cluster, policy).mean_completion
        for policy in (Fifo(), Sjf(), PredictedSjf(), PredictedSrpt())
    )
    assert (fifo - predicted) / (fifo - oracle) > 0.85
    assert (fifo - doubling) / (fifo - oracle) > 0.85


def test_waiting_jobs_are_queued_anew_when_their_class_turns_out_short() -> None:
    """Ann's jobs are thought to take 100 s like all; the first takes 1 s, so hers then pass bob's that came before."""
    jobs = [Job("ann-0", 0, 1, user="ann"), Job("bob", 0.1, 50, user="bob"), Job("ann-1", 0.2, 1, user="ann")]
    policy = PredictedSjf(HistorySettings(first_guess=100.0, shrink=1.0))
    outcome = simulate(Workload.of(jobs), Cluster(1, 1), policy)
    assert outcome.finish.tolist() == [1.0, 52.0, 2.0]

"""Halving where values arrive faster than the planner runs, and where too few trials exist for a promotion."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.curve_table import empty_cache
from podium_core.curves.thinning import Grid, thin
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import Point, Scalar, TrialView
from podium_core.policies.base import Admission, Policy
from podium_core.policies.registry import create
from podium_core.policies.rungs import UNSEEN_SECONDS, top_fraction
from podium_core.testing.builders import change_trial, make_job, make_snapshot, make_trial

STEP = 0.25  # seconds
GPUS = 8
Settings = dict[str, Scalar]
FAST: list[tuple[str, Settings, float]] = [
    # policy, settings, the most of all trials that may come to the second rung; of hyperband's a third begin there
    ("asha", {}, 0.4),
    ("asha", {"onCut": "stop"}, 0.4),
    ("hyperband", {"mode": "async"}, 0.6),
    ("hyperband", {"mode": "async", "onCut": "stop"}, 0.6),
    ("hyperband", {}, 0.6),
    ("hyperband", {"onCut": "stop"}, 0.6),
]
STOPS: list[tuple[str, Settings]] = [
    ("asha", {}),
    ("asha", {"onCut": "stop"}),
    ("hyperband", {"mode": "async"}),
    ("hyperband", {"mode": "async", "onCut": "stop"}),
]
FEW: list[tuple[str, Settings]] = [
    ("asha", {"eta": 3, "rungs": 4}),
    ("hyperband", {"mode": "async", "eta": 3, "rungs": 4}),
]


def train(policy: Policy, trials: list[TrialView], steps: int, a_look: int, now: float) -> Iterator[TrialView]:
    """Return the next snapshot: the best-ranked trials that may continue have trained since; stopped trials have ended.

    A plan does not depend on earlier snapshots.
    """
    job = make_job(policy=policy.name, max_trials=len(trials), max_steps=float(steps))
    snapshot = make_snapshot(now=now, jobs=[job], trials=trials)
    live = [t for t in trials if t.phase not in FINAL]
    ranked = policy.rank(job, live, snapshot)
    with empty_cache():
        assert ranked == policy.rank(job, live, snapshot)
    said = {r.trial: r.admission for r in ranked}
    works = [r.trial for r in ranked if r.admission is Admission.GO][:GPUS]
    for trial in trials:
        if said.get(trial.key) is Admission.STOP:
            yield replace(trial, phase=TrialPhase.EARLY_STOPPED)
        elif trial.key in works:
            done = len(trial.curve)
            fresh = range(done, min(steps, done + a_look))
            level = (trial.number * 37 % len(trials)) / len(trials)  # the better ones are not the first
            points = tuple(Point(i + 1.0, level - 1.0 / (i + 1), now + STEP * (i + 1 - done)) for i in fresh)
            phase = TrialPhase.SUCCEEDED if done + len(points) == steps else TrialPhase.RUNNING
            yield change_trial(trial, curve=trial.curve + points, phase=phase, gpu_seconds=STEP * (done + len(points)))
        else:
            yield trial


def searched(policy: Policy, count: int, steps: int, a_look: int) -> list[TrialView]:
    """Run until nothing changes any more."""
    trials, now = [make_trial(i) for i in range(count)], 0.0
    while (after := list(train(policy, trials, steps, a_look, now))) != trials:
        trials, now = after, now + STEP * a_look
    return trials


@pytest.mark.parametrize(("name", "settings", "most"), FAST, ids=str)
def test_values_that_arrive_faster_than_plans_promote_no_trial(name: str, settings: Settings, most: float) -> None:
    """Rungs at 16, 64 and 256 of 1024 steps, 20 steps per plan: a trial seen on a rung is already past it."""
    trials = searched(create(name, settings), 64, 1024, a_look=20)
    assert all(trial.curve for trial in trials), "each has had its look"
    assert sum(len(trial.curve) >= 64 for trial in trials) <= most * len(trials)
    assert any(trial.phase is TrialPhase.SUCCEEDED for trial in trials)


@pytest.mark.parametrize(("name", "settings"), FEW, ids=str)
@pytest.mark.parametrize(("count", "a_look"), [(1, 1), (2, 1), (8, 1), (8, 20)])
def test_a_search_of_few_trials_ends_with_a_whole_trial(name: str, settings: Settings, count: int, a_look: int) -> None:
    trials = searched(create(name, settings), count, 162, a_look)
    assert [trial.phase for trial in trials].count(TrialPhase.SUCCEEDED) == 1


@pytest.mark.parametrize(("name", "settings"), [("asha", {}), ("asha", {"onCut": "stop"}), ("hyperband", {})], ids=str)
@pytest.mark.parametrize(("seconds", "expected"), [(UNSEEN_SECONDS - 1.0, False), (UNSEEN_SECONDS + 1.0, True)])
def test_a_trial_that_trained_on_for_long_was_promoted_whatever_points_remain(
    name: str, settings: Settings, seconds: float, expected: bool
) -> None:
    """One rung at step 4 of 16. The value with which trial 0 was promoted there was thinned away; it has got worse. Or
    the trial that made up the number is gone: what is left says the same.
    """
    worse = (Point(4.0, 0.1, 20.0), Point(6.0, 0.1, 20.0 + seconds))
    paused = [(Point(4.0, 0.2 + i / 10.0, 10.0 + i),) for i in range(3)]
    trials = [make_trial(i, curve=curve, gpu_seconds=9.0) for i, curve in enumerate([worse, *paused])]
    trials += [make_trial(i, phase=TrialPhase.FAILED) for i in range(4, 16)]
    job = make_job(policy=name, max_trials=16, max_steps=16.0)
    live = trials[:4]
    policy = create(name, {"eta": 4, "rungs": 1, **settings})
    ranked = {r.trial: r for r in policy.rank(job, live, make_snapshot(jobs=[job], trials=trials))}
    assert (ranked[trials[0].key].reason == "AdvancingToRung") is expected
    assert ranked[trials[3].key].admission is Admission.GO, "the best"


@pytest.mark.parametrize(("name", "settings"), STOPS, ids=str)
@pytest.mark.parametrize("steps", range(250, 260))
def test_thinning_takes_no_promotion_back(name: str, settings: Settings, steps: int) -> None:
    """A rung at step 250 of 1000, 20 s a step: its cell has 11 steps, and the point on it goes with the next one. Trial
    0 was the best of four there; a better one comes 30 s later.
    """

    def curve(level: float, at_rung: float, upto: int) -> tuple[Point, ...]:
        points = (Point(float(s), level * (1 - 1 / (s + 1)), at_rung + (s - 250) * 20.0) for s in range(1, upto + 1))
        return thin(points, Grid(maximize=True))

    now = 10_000.0 + (steps - 250) * 20.0
    trials = [make_trial(0, curve=curve(0.5, 10_000.0, steps), gpu_seconds=9.0, phase=TrialPhase.RUNNING)]
    weak = TrialPhase.EARLY_STOPPED if "onCut" in settings else TrialPhase.SUSPENDED
    trials += [make_trial(i, curve=curve(0.1, 7_000.0 + i, 250), gpu_seconds=9.0, phase=weak) for i in (1, 2, 3)]
    if now >= 10_030.0:
        trials.append(make_trial(4, curve=curve(0.9, 10_030.0, 250), gpu_seconds=9.0, phase=TrialPhase.SUSPENDED))
    job = make_job(policy=name, max_trials=64, max_steps=1000.0)
    live = [trial for trial in trials if trial.phase not in FINAL]
    policy = create(name, {"eta": 4, "rungs": 1, **settings})
    ranked = {r.trial: r for r in policy.rank(job, live, make_snapshot(now=now, jobs=[job], trials=trials))}
    assert ranked[trials[0].key].reason == ("Promoted" if steps == 250 else "AdvancingToRung")


@pytest.mark.parametrize(("name", "settings"), [row for row in STOPS if "onCut" in row[1]], ids=str)
def test_with_stop_promotion_is_decided_on_arrival(name: str, settings: Settings) -> None:
    """Ray Tune's rule. Each arrival is better than all before: no trial is judged again before its next value."""
    job, policy = make_job(policy=name, max_trials=8, max_steps=16.0), create(name, {"eta": 4, "rungs": 1, **settings})
    trials: list[TrialView] = []
    for number in range(6):
        came = (Point(4.0, 0.1 * number, 100.0 + 10.0 * number),)
        trials.append(make_trial(number, curve=came, gpu_seconds=9.0, phase=TrialPhase.RUNNING))
        ranked = policy.rank(job, trials, make_snapshot(now=100.0 + 10.0 * number, jobs=[job], trials=trials))
        assert all(r.admission is Admission.GO for r in ranked)


def test_where_the_best_of_each_bracket_failed_another_trial_completes() -> None:
    """Brackets of 5, 2 and 1, whose best trials reached their first rung and failed after it."""

    def came(number: int, *steps: float) -> tuple[Point, ...]:
        return tuple(Point(step, 1.0 - number / 10.0, 10.0 + number + step) for step in steps)

    rungs = [(16.0,)] * 5 + [(16.0, 64.0)] * 2 + [(16.0, 64.0, 256.0)]
    phases = [TrialPhase.FAILED if i in (0, 5, 7) else TrialPhase.SUSPENDED for i in range(8)]
    trials = [make_trial(i, curve=came(i, *rungs[i]), gpu_seconds=9.0, phase=phases[i]) for i in range(8)]
    job, live = make_job(policy="hyperband", max_trials=8, max_steps=1024.0), [trials[i] for i in (1, 2, 3, 4, 6)]
    ranked = create("hyperband", {}).rank(job, live, make_snapshot(jobs=[job], trials=trials))
    assert [r.trial for r in ranked if r.admission is Admission.GO] == [trials[6].key], "the best of the highest rung"


def test_a_trial_that_cannot_be_suspended_trains_on_without_promotion() -> None:
    points = tuple(Point(step, 0.5, 40.0 * step) for step in (4.0, 5.0, 6.0))
    trials = [make_trial(0, curve=points, gpu_seconds=9.0), *(make_trial(i) for i in range(1, 16))]
    for freezes, reason in ((True, "AdvancingToRung"), (False, "RungIncomplete")):
        job = make_job(policy="hyperband", max_trials=16, max_steps=16.0, suspendable=freezes)
        policy = create("hyperband", {"eta": 4, "rungs": 1})
        ranked = {r.trial: r for r in policy.rank(job, trials, make_snapshot(jobs=[job], trials=trials))}
        assert ranked[trials[0].key].reason == reason


@given(st.lists(st.sampled_from([math.nan, -math.inf, 0.1, 0.2, 0.3, 0.4])), st.sampled_from([1.5, 2.0, 4.0]))
def test_the_best_part_of_a_rung(values: list[float], eta: float) -> None:
    came = [row for row, value in enumerate(values) if not math.isnan(value)]
    finite = sorted((-values[row], row) for row in came if values[row] > -math.inf)
    for least in (0, 1):
        count = max(least, math.floor(len(came) / eta))
        assert np.flatnonzero(top_fraction(np.array(values), eta, least)).tolist() == sorted(
            r for _, r in finite[:count]
        )

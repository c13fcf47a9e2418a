"""Halving where values come faster than anybody looks, and where there are too few trials for a promotion."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.curves.board import forgotten
from podium.domain.phase import FINAL, TrialPhase
from podium.domain.snapshot import Point, Scalar, TrialView
from podium.policies.base import Admission, Policy
from podium.policies.registry import create
from podium.policies.rungs import UNSEEN, top
from podium.testing.builders import make_job, make_snapshot, make_trial

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
FEW: list[tuple[str, Settings]] = [
    ("asha", {"eta": 3, "rungs": 4}),
    ("hyperband", {"mode": "async", "eta": 3, "rungs": 4}),
]


def train(policy: Policy, trials: list[TrialView], steps: int, a_look: int, now: float) -> Iterator[TrialView]:
    """What the next look sees: who goes, the best ranks first, has trained since; who is stopped is over. A plan does
    not depend on what was seen before.
    """
    job = make_job(policy=policy.name, max_trials=len(trials), max_steps=float(steps))
    snapshot = make_snapshot(now=now, jobs=[job], trials=trials)
    live = [t for t in trials if t.phase not in FINAL]
    ranked = policy.rank(job, live, snapshot)
    with forgotten():
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
            yield replace(trial, curve=trial.curve + points, phase=phase, gpu_seconds=STEP * (done + len(points)))
        else:
            yield trial


def searched(policy: Policy, count: int, steps: int, a_look: int) -> list[TrialView]:
    """Until nothing changes any more."""
    trials, now = [make_trial(i) for i in range(count)], 0.0
    while (after := list(train(policy, trials, steps, a_look, now))) != trials:
        trials, now = after, now + STEP * a_look
    return trials


@pytest.mark.parametrize(("name", "settings", "most"), FAST, ids=str)
def test_values_that_come_faster_than_anybody_looks_let_nobody_past_a_rung(
    name: str, settings: Settings, most: float
) -> None:
    """Rungs at 16, 64 and 256 of 1024 steps, 20 steps a look: whoever is seen on a rung is beyond it already."""
    trials = searched(create(name, settings), 64, 1024, a_look=20)
    assert all(trial.curve for trial in trials), "each has had its look"
    assert sum(len(trial.curve) >= 64 for trial in trials) <= most * len(trials)
    assert any(trial.phase is TrialPhase.SUCCEEDED for trial in trials)


@pytest.mark.parametrize(("name", "settings"), FEW, ids=str)
@pytest.mark.parametrize(("count", "a_look"), [(1, 1), (2, 1), (8, 1), (8, 20)])
def test_a_search_of_few_trials_ends_with_a_whole_one(name: str, settings: Settings, count: int, a_look: int) -> None:
    trials = searched(create(name, settings), count, 162, a_look)
    assert [trial.phase for trial in trials].count(TrialPhase.SUCCEEDED) == 1


@pytest.mark.parametrize(("name", "settings"), [("asha", {}), ("asha", {"onCut": "stop"}), ("hyperband", {})], ids=str)
@pytest.mark.parametrize(("seconds", "expected"), [(UNSEEN - 1.0, False), (UNSEEN + 1.0, True)])
def test_who_has_trained_on_for_long_was_let_whatever_is_left_of_its_curve(
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
    assert (ranked[trials[0].key].reason == "OnItsWay") is expected
    assert ranked[trials[3].key].admission is Admission.GO, "the best"


@given(st.lists(st.sampled_from([math.nan, -math.inf, 0.1, 0.2, 0.3, 0.4])), st.sampled_from([1.5, 2.0, 4.0]))
def test_the_best_part_of_a_rung(values: list[float], eta: float) -> None:
    came = [row for row, value in enumerate(values) if not math.isnan(value)]
    finite = sorted((-values[row], row) for row in came if values[row] > -math.inf)
    for least in (0, 1):
        count = max(least, math.floor(len(came) / eta))
        assert np.flatnonzero(top(np.array(values), eta, least)).tolist() == sorted(r for _, r in finite[:count])

"""The cost of a new value does not grow with the number of trials: policies read only the curve that has changed.

`benchmarks/hpo/speed.py` measures seconds; these tests count the points that a policy reads, by trial. The remaining
cost for each trial is arithmetic on arrays with one row for each trial.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import pytest
from policy_variants import VARIANTS, Settings

from podium_core.curves.curve_table import empty_cache
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import Point, TrialView
from podium_core.policies.registry import create
from podium_core.testing.builders import change_trial, make_gpu, make_job, make_snapshot, make_trial

FEW, MANY = 20, 1000  # trials
STEPS = 32  # of a complete trial
GROWN = 6  # the trial with a new value, its 8th, which is a rung of `asha`
PHASES = (TrialPhase.SUSPENDED, TrialPhase.RUNNING, TrialPhase.SUCCEEDED, TrialPhase.FAILED, TrialPhase.GATED)


@dataclass(frozen=True, slots=True)
class CountedPoint(Point):
    """A point that counts reads of its fields, by trial."""

    trial: int
    reads: ClassVar[Counter[int]] = Counter()

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name in ("step", "value", "time"):
            CountedPoint.reads[object.__getattribute__(self, "trial")] += 1
        return value


@cache
def search(count: int) -> tuple[TrialView, ...]:
    """Return `count` trials in the middle of a search: a fifth each is complete, failed and not started."""
    trials = []
    for i in range(count):
        phase = PHASES[i % 5]
        shown = {TrialPhase.SUCCEEDED: STEPS, TrialPhase.GATED: 0}.get(phase, 1 + i % 25)
        level, speed = 0.4 + 0.37 * i % 0.5, 2 + i % 3
        curve = tuple(CountedPoint(s, level * s / (speed + s), s, i) for s in map(float, range(1, shown + 1)))
        tries = {"lr": 10.0 ** -(i % 4), "depth": i // 4}
        trials.append(make_trial(i, curve=curve, phase=phase, gpus=["gpu-0"], gpu_seconds=shown, parameters=tries))
    return tuple(trials)


def points_read(name: str, settings: Settings, count: int) -> Counter[int]:
    """Count the points read after one trial has a new value, by trial.

    The trial's status is read again, so all its points are new objects.
    """
    policy, job = create(name, settings), make_job(policy=name, max_trials=count, max_steps=float(STEPS))
    before = search(count)
    old = before[GROWN]
    step = old.curve[-1].step + 1.0
    curve = (*map(replace, old.curve), CountedPoint(step, 2.0, step, GROWN))
    after = (*before[:GROWN], change_trial(old, curve=curve, gpu_seconds=step), *before[GROWN + 1 :])
    with empty_cache():
        for trials in (before, after):
            CountedPoint.reads.clear()
            live = [trial for trial in trials if trial.phase not in FINAL]
            assert list(policy.rank(job, live, make_snapshot(jobs=[job], trials=trials, gpus=[make_gpu()])))
    return CountedPoint.reads.copy()


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_a_new_value_causes_reads_of_its_own_trial_only(name: str, settings: Settings) -> None:
    """The new value is the best of all, so that every comparison with the best changes."""
    few, many = (points_read(name, settings, count) for count in (FEW, MANY))
    assert set(many) == {GROWN}
    assert many == few

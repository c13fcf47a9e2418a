"""What a new value costs a policy does not grow with the number of trials: only the curve that has changed is read.

Seconds are measured in benchmarks (`hpo_speed.py`); here the points that are read are counted, with their owner. What
is left for each trial is arithmetic on arrays with a row a trial.
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
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial

FEW, MANY = 20, 1000  # trials
STEPS = 32  # of a whole trial
GROWN = 6  # the trial that has a new value, its 8th: a rung of `asha`
PHASES = (TrialPhase.SUSPENDED, TrialPhase.RUNNING, TrialPhase.SUCCEEDED, TrialPhase.FAILED, TrialPhase.GATED)


@dataclass(frozen=True, slots=True)
class Watched(Point):
    """A point that counts, by its trial, how often anything of it is read."""

    trial: int
    reads: ClassVar[Counter[int]] = Counter()

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name in ("step", "value", "time"):
            Watched.reads[object.__getattribute__(self, "trial")] += 1
        return found


@cache
def search(count: int) -> tuple[TrialView, ...]:
    """So many trials halfway: a fifth is complete, a fifth has failed, a fifth was never opened."""
    trials = []
    for i in range(count):
        phase = PHASES[i % 5]
        shown = {TrialPhase.SUCCEEDED: STEPS, TrialPhase.GATED: 0}.get(phase, 1 + i % 25)
        level, speed = 0.4 + 0.37 * i % 0.5, 2 + i % 3
        curve = tuple(Watched(s, level * s / (speed + s), s, i) for s in map(float, range(1, shown + 1)))
        tries = {"lr": 10.0 ** -(i % 4), "depth": i // 4}
        trials.append(make_trial(i, curve=curve, phase=phase, gpus=["gpu-0"], gpu_seconds=shown, parameters=tries))
    return tuple(trials)


def points_read(name: str, settings: Settings, count: int) -> Counter[int]:
    """By trial, after one new value of one of so many. Its status was read again: all its points are other objects."""
    policy, job = create(name, settings), make_job(policy=name, max_trials=count, max_steps=float(STEPS))
    before = search(count)
    old = before[GROWN]
    step = old.curve[-1].step + 1.0
    curve = (*map(replace, old.curve), Watched(step, 2.0, step, GROWN))
    after = (*before[:GROWN], replace(old, curve=curve, gpu_seconds=step), *before[GROWN + 1 :])
    with empty_cache():
        for trials in (before, after):
            Watched.reads.clear()
            live = [trial for trial in trials if trial.phase not in FINAL]
            assert list(policy.rank(job, live, make_snapshot(jobs=[job], trials=trials, gpus=[make_gpu()])))
    return Watched.reads.copy()


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_after_a_new_value_no_other_trial_is_read_however_many_there_are(name: str, settings: Settings) -> None:
    """It is the best of all, so that whatever is held against the best changes for everybody."""
    few, many = (points_read(name, settings, count) for count in (FEW, MANY))
    assert set(many) == {GROWN}
    assert many == few

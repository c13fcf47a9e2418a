"""Population-based training: the values by which trials are compared, and which trials can be parents."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from podium_core.curves.packed_curve import PackedCurve
from podium_core.curves.thinning import Grid, thin
from podium_core.domain.phase import TrialPhase
from podium_core.domain.population import Population
from podium_core.domain.snapshot import Point, TrialView
from podium_core.planning.exploitation import Exploit, exploit
from podium_core.testing.builders import change_trial, make_job, make_trial

Pack = Callable[[Sequence[Point]], Sequence[Point]]


def packed(curve: Sequence[Point]) -> PackedCurve:
    return PackedCurve(np.array([(p.step, p.value, p.time) for p in curve]))


def decide(population: Population, max_steps: float, trials: Sequence[TrialView]) -> list[Exploit]:
    job = make_job(max_steps=max_steps, max_trials=20, population=population)
    return exploit(job, trials, {t.key for t in trials})


def running(number: int, curve: Sequence[Point], checkpoint: float) -> TrialView:
    trial = make_trial(number, phase=TrialPhase.RUNNING, gpus=["gpu-0"], checkpoint_step=checkpoint)
    return change_trial(trial, curve=curve)  # type: ignore[arg-type]


@pytest.mark.parametrize("pack", [tuple, packed])
def test_a_trial_that_is_ahead_is_compared_by_its_value_at_the_boundary(pack: Pack) -> None:
    """The best trial has no stored point at the boundary, and its last one before is older than those of the others."""

    def trial(number: int, best: float, last: int) -> TrialView:
        curve = [Point(float(s), best * s / 9000.0, float(s)) for s in range(1, last + 1)]
        return running(number, pack(thin(curve, Grid(maximize=True))), 9000.0)

    trials = [trial(0, 0.75, 9499), *(trial(n, 0.7499 - n / 1e6, 9000) for n in (1, 2, 3))]
    assert all(point.step != 9000.0 for point in trials[0].curve), "thinning must drop it here"
    (made,) = decide(Population(4, 100.0, 0.25), 10_000.0, trials)
    assert (made.lineage.replaces, made.lineage.parent, made.lineage.step) == ("job-3", "job-0", 9000.0)


@pytest.mark.parametrize("pack", [tuple, packed])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, sys.float_info.max])
def test_a_value_that_is_not_finite_is_not_interpolated(pack: Pack, wrong: float) -> None:
    """The last value before the boundary counts: 0.2 is the worst, 0.9 is not."""

    def trial(number: int, before: float, after: float) -> TrialView:
        return running(number, pack([Point(1.0, before, 1.0), Point(3.0, after, 3.0)]), 3.0)

    trials = [trial(0, 0.9, wrong), trial(1, 0.5, 0.5), trial(2, 0.2, wrong), trial(3, 0.8, 0.8)]
    half = decide(Population(4, 2.0, 0.5), 10.0, trials)
    assert [(one.lineage.replaces, one.lineage.parent) for one in half] == [("job-2", "job-3"), ("job-1", "job-3")]


@pytest.mark.parametrize("wrong", [math.nan, -math.inf, -sys.float_info.max])
def test_a_trial_that_has_diverged_since_is_no_parent(wrong: float) -> None:
    """A child gets the newest checkpoint, whose weights are NaN by then."""
    curves = [[0.1, 0.4], [0.1, 0.9], [0.1, 0.2], [0.1, 0.6]]
    trials = [make_trial(n, values=c, phase=TrialPhase.RUNNING, checkpoint_step=3.0) for n, c in enumerate(curves)]
    assert [one.lineage.parent for one in decide(Population(4, 2.0, 0.25), 10.0, trials)] == ["job-1"]
    trials[1] = change_trial(trials[1], values=[0.1, 0.9, wrong])
    assert decide(Population(4, 2.0, 0.25), 10.0, trials) == []


def test_a_checkpoint_at_a_multiple_of_a_fraction_counts() -> None:
    """3 * 0.1 is above 0.3."""
    values = (0.4, 0.9, 0.2, 0.6)
    trials = [running(n, (Point(0.1, 0.1, 1.0), Point(0.3, v, 3.0)), 0.3) for n, v in enumerate(values)]
    (made,) = decide(Population(4, 0.1, 0.25), 1.0, trials)
    assert made.lineage.parent == "job-1"


def test_boundaries_at_which_no_trial_can_be_replaced_change_nothing() -> None:
    """An ended trial stands at step 8; the slowest living one is compared at step 2 with all others."""
    curves = [
        [0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9],
        [0.1, 0.5, 0.5, 0.5, 0.5],
        [0.1, 0.6, 0.6, 0.6, 0.6],
        [0.1, 0.2],
    ]
    trials = [make_trial(n, values=c, phase=TrialPhase.RUNNING, checkpoint_step=8.0) for n, c in enumerate(curves)]
    trials[0] = change_trial(trials[0], phase=TrialPhase.EARLY_STOPPED)
    job = make_job(max_steps=10.0, max_trials=20, population=Population(4, 2.0, 0.25))
    made = exploit(job, trials, {t.key for t in trials[1:]})
    assert [(one.lineage.replaces, one.lineage.parent, one.lineage.step) for one in made] == [("job-3", "job-0", 2.0)]


class CountedCurve(Sequence[Point]):
    """A curve that counts how often a point of it is read."""

    def __init__(self, steps: int) -> None:
        self.points, self.reads = [Point(float(s), 0.1, float(s)) for s in range(1, steps + 1)], 0

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return self.points[index]


def test_boundaries_that_only_ended_trials_have_reached_cost_nothing() -> None:
    """The last living trial stands at step 2, and each of 60 ended ones at another boundary."""
    curves = [CountedCurve(2 * n) for n in range(1, 62)]
    trials = [running(n, curve, 2.0) for n, curve in enumerate(curves)]
    trials = [trials[0], *(change_trial(t, phase=TrialPhase.EARLY_STOPPED) for t in trials[1:])]
    job = make_job(max_steps=1000.0, max_trials=200, population=Population(61, 2.0, 0.25))
    assert exploit(job, trials, {trials[0].key}) == []
    assert sum(curve.reads for curve in curves) < 20 * len(curves)

"""Reading a curve as it grows gives the same bits as reading it at once: thinned, cut back or replaced."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.curves import alignment, curve_table
from podium_core.curves.aligned_curves import AlignedCurves
from podium_core.curves.curve_table import CurveTable
from podium_core.curves.non_finite import diverged
from podium_core.curves.thinning import Grid, common_prefix, thin
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Point, TrialView
from podium_core.testing.builders import make_job, make_snapshot, make_trial

HORIZON = 64.0
ARRAYS = ("points", "first", "best", "worst", "last", "step")
VALUES = st.one_of(st.integers(0, 3).map(float), st.floats(-1, 1), st.sampled_from([math.inf, 1e308, -1e308]))
CHANGES = st.sampled_from([*["grow"] * 6, "shorter", "other value", "same length", "restarted"])
Curve = tuple[Point, ...]


def grown(draw: st.DrawFn, curve: Curve) -> Curve:
    every = draw(st.sampled_from([1.0, 1.0, 0.3, 7.0]))
    start = curve[-1].step if curve else draw(st.sampled_from([-2.0, -1.0, 0.0]))
    values = draw(st.lists(VALUES, max_size=draw(st.sampled_from([1, 3, 20]))))
    return (*curve, *(Point(start + every * (k + 1), value, float(k)) for k, value in enumerate(values)))


@st.composite
def changed(draw: st.DrawFn, curve: Curve) -> Curve:
    change, place = draw(CHANGES), draw(st.integers(0, len(curve)))
    before, after = curve[:place], curve[place:]
    if change == "shorter":
        return before
    if change == "other value" and after:
        return (*before, replace(after[0], value=draw(VALUES)), *after[1:])
    if change == "same length":
        return (*before, *(replace(point, step=point.step + 1e-3, value=draw(VALUES)) for point in after))
    return grown(draw, () if change == "restarted" else curve)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Curve]]:
    """Three trials' curves by tick. With few kept points the grid is coarse from the start and gets coarser."""
    grid = Grid(draw(st.booleans()), draw(st.sampled_from([16, 16, 24, 256])))
    now: list[Curve] = [()] * 3
    found = []
    for _ in range(draw(st.integers(1, 10))):
        now = [thin(draw(changed(curve)), grid) for curve in now]
        again = draw(st.booleans())  # as statuses that were read again: equal points, not the same
        found.append([tuple(map(replace, curve)) if again else curve for curve in now])
    return found


def read(curves: CurveTable, trials: list[TrialView], maximize: bool) -> AlignedCurves:
    job = make_job(maximize=maximize, max_steps=HORIZON)
    curves.update(job, trials, make_snapshot(jobs=[job], trials=trials))
    table = curves.cached("table", partial(AlignedCurves, len(curves), HORIZON))
    table.refresh(curves)
    return table


@given(histories(), st.booleans(), st.integers(0, 15))
@settings(max_examples=120, deadline=None)
def test_reading_a_curve_as_it_grows_equals_reading_it_at_once(
    history: list[list[Curve]], maximize: bool, ends: int
) -> None:
    """The last trial completes at the tick `ends`, and its curve may be another one afterwards."""
    kept = CurveTable(maximize)
    for tick, curves in enumerate(history):
        phases = [TrialPhase.RUNNING] * 2 + [TrialPhase.SUCCEEDED if tick >= ends else TrialPhase.RUNNING]
        trials = [
            replace(make_trial(number, phase=phase), curve=curve)
            for number, (curve, phase) in enumerate(zip(curves, phases, strict=True))
        ]
        new = CurveTable(maximize)
        table, fresh = read(kept, trials, maximize), read(new, trials, maximize)
        assert [curve or () for curve in kept.curves] == curves
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(kept, name), getattr(new, name), err_msg=name)
        for name in ("best", "gain", "column"):
            np.testing.assert_array_equal(getattr(table, name), getattr(fresh, name), err_msg=name)
        for column in set(fresh.column.tolist()) - {-1}:
            for name in ("leader_value", "leader_gain", "typical_gain", "gain_ratio"):
                kept_scale, new_scale = (getattr(one.columns, name)[column] for one in (table, fresh))
                np.testing.assert_equal(kept_scale, new_scale, err_msg=name)


def test_a_value_before_the_first_step_does_not_count_as_training() -> None:
    """A script may validate before it trains: no later column has that value, whether read then or at once."""
    whole = tuple(Point(step, value, 0.0) for step, value in ((0.0, 0.9), (4.0, 0.1), (6.0, 0.2), (8.0, 0.3)))
    kept = CurveTable(True)
    for upto in (2, 3, 4):
        table = read(kept, [replace(make_trial(0), curve=whole[:upto])], maximize=True)
    fresh = read(CurveTable(True), [replace(make_trial(0), curve=whole)], maximize=True)
    assert table.best[0].max(where=table.best[0] > -np.inf, initial=-np.inf) == 0.3
    np.testing.assert_array_equal(table.best, fresh.best)


@given(histories())
def test_the_common_prefix_ends_at_the_first_different_point(history: list[list[Curve]]) -> None:
    curves = [curve for tick in history for curve in tick]
    for before, now in pairwise(curves):
        place = common_prefix(before, now)
        assert before[:place] == now[:place]
        assert place == min(len(before), len(now)) or before[place] != now[place]


def test_a_new_point_of_a_thinned_curve_costs_few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by both tables together; the whole curve is read again only where a coarser grid thins all of it."""
    count = 0

    def counted(value: float) -> bool:
        nonlocal count
        count += 1
        return diverged(value)

    for module in (curve_table, alignment):
        monkeypatch.setattr(module, "diverged", counted)
    curves, curve, grid, costs = CurveTable(True), (), Grid(True), []
    for step in range(1, 1000):
        curve = thin((*curve, Point(float(step), 1.0 - 1.0 / step, float(step))), grid)
        count = 0
        read(curves, [replace(make_trial(0), curve=tuple(map(replace, curve)))], maximize=True)
        costs.append(count)
    assert len(curve) > 100
    assert mean(costs) < 10

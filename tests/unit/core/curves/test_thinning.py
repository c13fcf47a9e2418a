"""Thinning keeps what matters, and values that are not finite never count as good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.best_value import best_point, better, reached
from podium_core.curves.non_finite import diverged, to_wire
from podium_core.curves.thinning import Grid, reached_at, thin
from podium_core.domain.snapshot import Point
from podium_core.testing.builders import make_curve

steps = st.one_of(
    st.floats(-5, 1e6, allow_nan=False),
    st.integers(0, 3000).map(float),
    st.floats(1e-300, 1e300),
    st.sampled_from([math.nan, math.inf, 0.0, -1.0]),
)
values = st.one_of(st.floats(-2, 2), st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308]))
points = st.lists(st.builds(Point, step=steps, value=values, time=st.just(0.0)), max_size=60)
rising = st.tuples(st.integers(1, 400), st.floats(0.01, 7.0), st.randoms(use_true_random=False)).map(
    lambda t: [Point(t[1] * (i + 1), t[2].random(), float(i)) for i in range(t[0])]
)
grids = st.builds(Grid, maximize=st.booleans(), limit=st.sampled_from([16, 20, 64, 256]))


def same(a: tuple[Point, ...], b: tuple[Point, ...]) -> bool:
    return repr(a) == repr(b)  # NaN is not equal to itself


@given(st.one_of(points, rising), st.one_of(points, rising), grids)
def test_thinning_again_changes_nothing(curve: list[Point], more: list[Point], grid: Grid) -> None:
    assert same(thin((*thin(curve, grid), *more), grid), thin((*curve, *more), grid))
    assert same(thin(thin(curve, grid), grid), thin(curve, grid))


@given(st.one_of(points, rising), grids)
def test_thinned_curve_is_small_and_keeps_its_ends_and_its_best(curve: list[Point], grid: Grid) -> None:
    kept = thin(curve, grid)
    assert len(kept) <= grid.limit
    assert all(a.step < b.step for a, b in pairwise(kept))
    finite = [p for p in curve if math.isfinite(p.step)]
    whole = [p for i, p in enumerate(finite) if all(q.step < p.step for q in finite[:i])]
    if whole:
        assert same((kept[0], kept[-1]), (whole[0], whole[-1]))
        assert repr(best_point(kept, grid.maximize)) == repr(best_point(whole, grid.maximize))


def test_a_long_curve_one_point_at_a_time_ends_as_if_read_at_once() -> None:
    grid = Grid(maximize=True)
    curve = [Point(float(i), math.sin(i / 50), float(i)) for i in range(1, 5001)]
    kept: tuple[Point, ...] = ()
    for point in curve:
        kept = thin((*kept, point), grid)
    assert kept == thin(curve, grid)
    assert 100 < len(kept) <= 256


def test_the_first_positive_step_is_kept_because_the_grid_depends_on_it() -> None:
    curve = [Point(0.0, 0.0, 0.0), *(Point(1.0 + i / 1000, 0.5, 0.0) for i in range(5000))]
    assert [p.step for p in thin(curve, Grid(maximize=True))][:2] == [0.0, 1.0]


def test_a_short_curve_is_kept_whole_and_a_repeated_step_is_dropped() -> None:
    grid = Grid(maximize=True)
    curve = make_curve([0.1, 0.4, 0.3, 0.5], start=0.0)
    assert thin(curve, grid) == curve
    assert thin((*curve, Point(2.0, 0.9, 99.0)), grid) == curve


def arrival(curve: Sequence[Point], level: float) -> tuple[float, float]:
    return reached_at(curve, next(i for i, point in enumerate(curve) if point.step >= level), level)


@pytest.mark.parametrize("level", [250.0, 249.5, 3.0, 1.0])
@pytest.mark.parametrize("pause", [0.0, 1000.0])
def test_the_arrival_at_a_step_is_estimated_where_its_point_was_dropped(level: float, pause: float) -> None:
    """Cells of 11 steps at 250, 20 s per step; the trial paused at 240."""
    whole = [Point(float(s), 0.5, 20.0 * s + (pause if s > 240 else 0.0)) for s in range(1, 1001)]
    first = next(point for point in whole if point.step >= level)
    for upto in range(int(first.step), 1000):
        kept = thin(whole[:upto], Grid(maximize=True))
        assert arrival(kept, level) == (first.step, first.time)


@pytest.mark.parametrize("gaps", [(1.0, 1.3, 0.8, 1.4), (10.0, 14.9), (1.0, 2.0, 4.0, 8.0)])
def test_uneven_evaluations_hide_no_point(gaps: tuple[float, ...]) -> None:
    steps = np.cumsum([gaps[i % len(gaps)] for i in range(150)])
    curve = tuple(Point(float(step), 0.5, 600.0 * float(step)) for step in steps)
    for level in np.linspace(1.0, float(steps[-1]), 97):
        point = next(point for point in curve if point.step >= level)
        assert arrival(curve, float(level)) == (point.step, point.time)


def test_a_limit_that_is_too_small_is_rejected() -> None:
    with pytest.raises(ValueError, match="limit: 3 points"):
        Grid(maximize=True, limit=3)


@pytest.mark.parametrize(
    ("value", "maximize", "expected"),
    [
        (0.5, True, 0.5),
        (math.nan, True, -1.7976931348623157e308),
        (math.nan, False, 1.7976931348623157e308),
        (math.inf, True, -1.7976931348623157e308),
        (-math.inf, False, 1.7976931348623157e308),
    ],
)
def test_values_that_json_cannot_represent(value: float, maximize: bool, expected: float) -> None:
    assert to_wire(value, maximize) == expected
    assert diverged(to_wire(value, maximize)) is not math.isfinite(value)


@pytest.mark.parametrize(
    ("curve", "maximize", "best"),
    [
        ([], True, None),
        ([math.nan], True, None),
        ([0.1, 0.9, 0.9, 0.2], True, 2.0),
        ([0.1, 0.9, 0.1, 0.2], False, 1.0),
        ([math.inf, 0.1], True, 2.0),
        ([-math.inf, 0.1], False, 2.0),
    ],
)
def test_best_point_is_the_earliest_of_the_best(curve: list[float], maximize: bool, best: float | None) -> None:
    found = best_point(make_curve(curve), maximize)
    assert (found.step if found else None) == best


def test_target() -> None:
    assert reached(0.9, 0.9, True)
    assert reached(0.1, 0.2, False)
    assert not reached(math.inf, 0.9, True)
    assert not better(0.5, 0.5, True)

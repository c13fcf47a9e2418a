"""Formulas of equal training: their definitions, and fast paths that give the same, to the last bit."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.alignment import (
    PER_DOUBLING,
    ColumnScales,
    column_scales,
    gains,
    interpolate_best,
    last_gain,
    running_best,
)
from podium_core.domain.snapshot import Point

VALUES = st.one_of(st.floats(-10.0, 10.0), st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308]))
STEPS = st.floats(1e-3, 1e6)


@given(VALUES, VALUES, st.one_of(st.just(-math.inf), st.floats(-10.0, 10.0)), STEPS, STEPS, st.floats(0.0, 1.0))
def test_the_best_between_two_points_is_the_running_best(
    first: float, second: float, top: float, start: float, wide: float, part: float
) -> None:
    before, after = Point(start, first, 0.0), Point(start + wide, second, 1.0)
    step = start + part * wide
    for sign in (1.0, -1.0):
        (expected,) = running_best([before, after], sign, np.array([step]), top)
        assert interpolate_best(before, after, sign, step, top) == expected


@given(st.integers(0, PER_DOUBLING), st.lists(VALUES, min_size=1, max_size=PER_DOUBLING + 1))
def test_the_last_gain_is_the_last_of_all_gains(unknown: int, values: list[float]) -> None:
    rising = np.fmax.accumulate([-math.inf, *(value if math.isfinite(value) else -math.inf for value in values)])[1:]
    best = np.array([*[math.nan] * min(unknown, PER_DOUBLING + 1 - len(values)), *rising])
    assert last_gain(best.tolist()) == gains(best)[-1]


@given(st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(0.0, 0.5)), min_size=1, max_size=9))
def test_the_scales_of_a_column_are_those_of_their_definition(trials: list[tuple[float, float]]) -> None:
    """Trials without a finite value do not count."""
    best = np.array([*(value for value, _ in trials), -math.inf, math.nan])
    gain = np.array([*(own for _, own in trials), 9.0, 9.0])
    ordered = sorted(trials, key=lambda trial: -trial[0])
    half = min(len(trials), max(2, len(trials) // 2))
    typical = median(own for _, own in ordered[:half])
    deficit = median(ordered[0][0] - value for value, _ in ordered[: half + 1])
    found = column_scales(best, gain)
    assert found.leader_value == ordered[0][0]
    assert found.leader_gain == ordered[0][1]
    assert math.isclose(found.typical_gain, typical, abs_tol=1e-15)
    ratio = (typical + 1e-12) / (deficit + 1e-12)
    assert math.isclose(found.gain_ratio, min(1e3, max(1e-3, ratio)), rel_tol=1e-6)


def test_a_column_without_values_has_no_leader() -> None:
    found = column_scales(np.array([math.nan, -math.inf]), np.zeros(2))
    assert math.isnan(found.leader_value)
    assert found[1:] == ColumnScales()[1:]

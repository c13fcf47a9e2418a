"""The fast paths of the aligned curves give what the general functions give, to the last bit."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.aligned_curves import PER_DOUBLING, gains, interpolate_best, last_gain, running_best
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

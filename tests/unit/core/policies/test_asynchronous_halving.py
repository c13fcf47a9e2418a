"""The kept replay of promotions equals its computation from the beginning, and the words of the rule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from podium_core.curves.curve_table import curves_of_job, empty_cache
from podium_core.domain.snapshot import Point
from podium_core.policies.asynchronous_halving import ever_promotable
from podium_core.policies.rungs import RungArrivals, rung_arrivals
from podium_core.testing.builders import make_job, make_snapshot, make_trial

STEPS = (1.0, 2.0, 4.0)
Look = dict[int, tuple[Point, ...]]  # number -> its curve as it is seen


@dataclass(frozen=True)
class Rule:
    eta: float
    least: int
    brackets: bool


def ever(look: Look, rule: Rule) -> tuple[NDArray[np.bool_], RungArrivals, NDArray[np.intp]]:
    trials = [make_trial(number, curve=curve) for number, curve in look.items()]
    job = make_job(maximize=False, max_trials=9)
    seen = curves_of_job(job, trials, make_snapshot(jobs=[job], trials=trials))
    bracket = np.array(seen.numbers, dtype=np.intp) // (3 if rule.brackets else 99)
    found = rung_arrivals(seen, STEPS, suspendable=True)
    return ever_promotable(seen, found, STEPS, rule.eta, rule.least, bracket).copy(), found, bracket


def by_the_words(found: RungArrivals, bracket: NDArray[np.intp], rule: Rule) -> NDArray[np.bool_]:
    """Check every moment of an arrival with all arrivals so far, sorted again."""
    promoted = np.arange(len(STEPS)) < bracket[:, None]
    for k in range(len(STEPS)):
        for first in range(k + 1):
            came = np.flatnonzero((bracket == first) & ~np.isnan(found.value[:, k])).tolist()
            came.sort(key=lambda row: (found.time[row, k], row))
            for count in range(1, len(came) + 1):
                places = max(rule.least, math.floor(count / rule.eta))
                finite = [row for row in came[:count] if found.value[row, k] > -math.inf]
                promoted[sorted(finite, key=lambda row: (-found.value[row, k], row))[:places], k] = True
    return promoted


times = st.sampled_from([1.0, 2.0, 3.0, 4.0])  # few: many are alike
values = st.sampled_from([0.1, 0.2, 0.3, 0.4, math.nan])
curves = st.lists(st.tuples(values, times, st.booleans()), max_size=6).map(
    # a point that is left out was thinned away; a curve may begin above some rungs
    lambda points: tuple(Point(0.5 + i, value, time) for i, (value, time, kept) in enumerate(points) if kept or i == 4)
)
looks = st.lists(st.dictionaries(st.integers(0, 8), curves, max_size=9), min_size=1, max_size=5)
rules = st.builds(Rule, st.sampled_from([1.5, 2.0, 3.0, 4.0]), st.integers(0, 1), st.booleans())


@given(looks, rules)
def test_the_result_is_that_of_the_rule_whatever_was_seen_before(seen: list[Look], rule: Rule) -> None:
    """Trials come and go, curves grow, lose points and restart, and values arrive in any order of time."""
    with empty_cache():
        for look in seen:
            kept, found, bracket = ever(look, rule)
            np.testing.assert_array_equal(kept, by_the_words(found, bracket, rule))
            with empty_cache():
                np.testing.assert_array_equal(kept, ever(look, rule)[0])


@given(st.dictionaries(st.integers(0, 8), curves, min_size=4, max_size=9), rules, st.data())
def test_a_growing_search(whole: Look, rule: Rule, data: st.DataObject) -> None:
    """As searches do: trials are added with the next number, and curves get longer."""
    shown = dict.fromkeys(whole, 0)
    with empty_cache():
        for _ in range(8):
            number = data.draw(st.sampled_from(sorted(whole)))
            shown[number] = min(len(whole[number]), shown[number] + data.draw(st.integers(1, 3)))
            latest = max(n for n in whole if shown[n] or n == min(whole))
            kept, found, bracket = ever({n: whole[n][: shown[n]] for n in whole if n <= latest}, rule)
            np.testing.assert_array_equal(kept, by_the_words(found, bracket, rule))


def test_a_promotion_sticks_and_a_displaced_one_that_came_too_late_has_none() -> None:
    """At the rung of step 1, one in two: 0.2 alone is too few, with 0.3 it is the best; 0.1 displaces it; the fourth
    is the best of four with it; 0.25 comes as the fifth and never had a place.
    """
    rule = Rule(2.0, 0, brackets=False)
    came = [0.2, 0.3, 0.1, 0.05, 0.25]
    look = {n: (Point(1.0, value, float(n)),) for n, value in enumerate(came)}
    with empty_cache():
        assert ever(look, rule)[0][:, 0].tolist() == [True, False, True, True, False]
        # 0.2 is found to have come last: with 0.1, 0.3 was in no best half, and 0.2 itself comes after two better ones
        late = {**look, 0: (replace(look[0][0], time=9.0),)}
        assert ever(late, rule)[0][:, 0].tolist() == [False, False, True, True, False]

"""`finish`: a lower bound that a schedule contradicts is refused, not hidden."""

from __future__ import annotations

import numpy as np
import pytest

from podium_optimisers.makespan.instance import Instance
from podium_optimisers.makespan.schedule import BoundViolatedError, Plan, Schedule, finish

ENDS = 3.0  # two tasks of 3 s on two CPUs


def finished(own: float, known: float) -> Schedule:
    return finish("dual", Instance.of([ENDS, ENDS], [9.0, 9.0], 2, 1), Plan(np.array([0, 1]), bound=own), known)


@pytest.mark.parametrize("factor", [1 + 1e-8, 1.5, float("inf")])
@pytest.mark.parametrize("whose", ["the method's", "from elsewhere"])
def test_a_bound_above_a_schedule_is_refused(factor: float, whose: str) -> None:
    bounds = (ENDS * factor, 1.0) if whose == "the method's" else (1.0, ENDS * factor)
    with pytest.raises(BoundViolatedError, match=r"bound: .* s is above the 3\.0 s .* the proof of dual is wrong"):
        finished(*bounds)


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-12])
def test_the_last_bits_of_a_float_are_no_contradiction(factor: float) -> None:
    schedule = finished(ENDS * factor, 1.0)
    assert (schedule.lower_bound, schedule.ratio) == (ENDS, 1.0)


def test_the_higher_bound_counts() -> None:
    assert finished(2.0, 1.0).lower_bound == finished(1.0, 2.0).lower_bound == 2.0

"""`build_schedule` refuses a lower bound that a schedule contradicts."""

from __future__ import annotations

import numpy as np
import pytest

from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.schedule import BoundViolatedError, MakespanPlan, MakespanSchedule, build_schedule

ENDS = 3.0  # two tasks of 3 s on two CPUs


def finished(own: float, known: float) -> MakespanSchedule:
    return build_schedule(
        "dual", MakespanInstance.of([ENDS, ENDS], [9.0, 9.0], 2, 1), MakespanPlan(np.array([0, 1]), bound=own), known
    )


@pytest.mark.parametrize("factor", [1 + 1e-8, 1.5, float("inf")])
@pytest.mark.parametrize("source", ["the method's", "from elsewhere"])
def test_a_bound_above_the_makespan_is_refused(factor: float, source: str) -> None:
    bounds = (ENDS * factor, 1.0) if source == "the method's" else (1.0, ENDS * factor)
    with pytest.raises(BoundViolatedError, match=r"bound: .* s is above the 3\.0 s .* the proof of dual is wrong"):
        finished(*bounds)


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-12])
def test_rounding_is_not_a_contradiction(factor: float) -> None:
    schedule = finished(ENDS * factor, 1.0)
    assert (schedule.lower_bound, schedule.ratio) == (ENDS, 1.0)


def test_the_higher_bound_is_used() -> None:
    assert finished(2.0, 1.0).lower_bound == finished(1.0, 2.0).lower_bound == 2.0

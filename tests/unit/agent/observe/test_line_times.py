"""Times of log lines where the clock of the node is wrong or is set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.sources.batch import TOLERANCE, LogLine, bounded_times

TIMES = st.floats(0.0, 4e9)


def lines(times: list[float]) -> list[LogLine]:
    return [LogLine(time, "stdout", str(number), number, number + 1) for number, time in enumerate(times)]


@given(st.lists(TIMES), TIMES, TIMES, st.floats(-1e9, 1e9))
def test_times_never_decrease_and_are_never_in_the_future(
    times: list[float], previous: float, now: float, ahead: float
) -> None:
    answer = [line.time for line in bounded_times(lines(times), previous, now, ahead)]
    assert answer == sorted(answer)
    assert all(min(previous, now) <= time <= now for time in answer)
    made = bounded_times(lines(times), previous, now, ahead)
    assert [line.text for line in made] == [line.text for line in lines(times)]


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 60.0, 3600.0])
def test_a_clock_that_differs_is_corrected(ahead: float) -> None:
    written = lines([100.0 + ahead, 101.5 + ahead])
    assert [line.time for line in bounded_times(written, 99.0, 102.0, ahead)] == [100.0, 101.5]


def test_exact_times_are_kept_where_the_clocks_agree() -> None:
    written = lines([100.123456, 100.2])
    assert list(bounded_times(written, 99.0, 102.0, 0.9 * TOLERANCE)) == written

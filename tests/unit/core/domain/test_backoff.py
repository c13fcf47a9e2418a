"""Pauses double from the first to the longest one, for any number of failures."""

from __future__ import annotations

import pytest

from podium_core.domain.backoff import backoff_pause


def test_pauses_double_and_are_bounded() -> None:
    assert [backoff_pause(failures, 0.5, 3.0) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("failures", [0, 1])
def test_the_first_pause_is_the_shortest(failures: int) -> None:
    assert backoff_pause(failures, 2.0, 60.0) == 2.0


def test_any_number_of_failures_has_a_pause() -> None:
    assert backoff_pause(10**9, 0.0005, 60.0) == 60.0


def test_the_longest_pause_limits_the_first_one() -> None:
    assert backoff_pause(1, 5.0, 1.0) == 1.0

"""Holt-Winters: a season is detected, bands have their coverage, invalid counts are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.prediction.arrivals import count_arrivals, fit_holt_winters, seasonal_naive

PERIOD = 24


def daily(days: int, seed: int) -> np.ndarray:
    """Return Poisson counts with a daily season and a growth of 1 % a day."""
    hours = np.arange(days * 24)
    rate = 40.0 * (1.0 + 0.6 * np.sin(hours * 2 * np.pi / 24)) * 1.01 ** (hours / 24)
    return np.random.default_rng(seed).poisson(rate).astype(np.float64)


def test_a_daily_season_is_forecast_better_than_by_the_naive_baseline() -> None:
    errors, naive, covered = [], [], []
    for seed in range(5):
        counts = daily(30, seed)
        past, ahead = counts[:-48], counts[-48:]
        forecast = fit_holt_winters(past, PERIOD).forecast(48)
        errors.append(np.abs(forecast.median - ahead).mean())
        naive.append(np.abs(seasonal_naive(past, PERIOD, 48) - ahead).mean())
        covered.append(np.mean((forecast.low <= ahead) & (ahead <= forecast.high)))
    assert np.mean(errors) < 0.9 * np.mean(naive)
    assert 0.8 <= np.mean(covered) <= 0.98


def test_an_expected_count_does_not_change_the_forecast() -> None:
    model = fit_holt_winters(daily(10, 1), PERIOD)
    ahead = model.forecast(3)
    moved = model.updated(float(ahead.median[0]))
    assert moved.forecast(2).median == pytest.approx(ahead.median[1:])
    surprised = model.updated(float(3.0 * ahead.median[0]))
    assert np.all(surprised.forecast(2).median > ahead.median[1:])
    assert np.all(np.diff((1.0 + ahead.high) / (1.0 + ahead.median)) >= -1e-12), (
        "the uncertainty grows with the horizon"
    )


def test_exact_seasons_are_forecast_exactly() -> None:
    counts = np.tile([3.0, 9.0, 27.0, 9.0], 12)
    forecast = fit_holt_winters(counts, 4).forecast(6)
    assert forecast.median == pytest.approx([3.0, 9.0, 27.0, 9.0, 3.0, 9.0], rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 10_000), min_size=8, max_size=40), st.integers(2, 4), st.integers(1, 12))
def test_forecasts_are_nonnegative_and_within_their_bands(counts: list[int], period: int, steps: int) -> None:
    history = np.array(counts, dtype=np.float64)
    first, again = (fit_holt_winters(history, period).forecast(steps) for _ in range(2))
    assert first.median.tobytes() == again.median.tobytes()
    assert len(first.median) == steps
    assert np.all(np.isfinite(first.median))
    assert np.all((first.low >= 0.0) & (first.low <= first.median) & (first.median <= first.high))


def test_arrivals_are_counted_by_whole_steps() -> None:
    arrival = np.array([0.0, 5.0, 59.9, 60.0, 185.0])
    assert count_arrivals(arrival, 60.0).tolist() == [3.0, 1.0, 0.0]
    assert seasonal_naive(np.array([1.0, 2.0, 3.0]), 2, 3).tolist() == [2.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: fit_holt_winters(np.ones(7), 4), "TooShort"),
        (lambda: fit_holt_winters(np.ones(9), 1), "TooShort"),
        (lambda: fit_holt_winters(np.array([1.0, -1.0, 1.0, 1.0]), 2), r"counts\[1\] is -1"),
        (lambda: fit_holt_winters(np.array([1.0, math.nan, 1.0, 1.0]), 2), r"counts\[1\] is nan"),
        (lambda: fit_holt_winters(np.ones(8), 4).forecast(0), "steps must be at least 1"),
        (lambda: fit_holt_winters(np.ones(8), 4).updated(math.inf), "inf"),
        (lambda: count_arrivals(np.ones(8), 0.0), "seconds"),
    ],
)
def test_invalid_input_is_named(call: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        call()  # type: ignore[operator]

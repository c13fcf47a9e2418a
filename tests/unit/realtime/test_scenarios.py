"""Short simulations of the papers' scenarios; `make bench-realtime` runs the long ones with every value."""

from __future__ import annotations

import pytest

from podium_realtime.model import published
from podium_realtime.scheduling.daris import Daris
from podium_realtime.scheduling.launch_ahead import LaunchAhead
from podium_realtime.simulation import figures, scenarios
from podium_realtime.simulation.calibration import CALIBRATED
from podium_realtime.simulation.scenarios import BATCHED_LAUNCH_AHEAD, DARIS_POOL, LAUNCH_AHEAD_POOL, SimulationSettings
from podium_realtime.simulation.validation import FigureSeries, Quantity, ValidationPoint, median_error

QUICK = SimulationSettings(seconds=1.5)


def test_sgprs_meets_all_deadlines_up_to_24_tasks_only() -> None:
    assert scenarios.sgprs(CALIBRATED, 3, 1.5, 23, QUICK).missed == 0.0
    assert scenarios.sgprs(CALIBRATED, 3, 1.5, 26, QUICK).missed > 0.05


def test_under_overload_sgprs_keeps_its_rate_and_naive_does_not() -> None:
    managed = scenarios.sgprs(CALIBRATED, 3, 1.5, 30, QUICK)
    assert managed.fps == pytest.approx(770.0, rel=0.05)
    assert managed.missed == pytest.approx(0.574, abs=0.15)
    assert scenarios.naive(CALIBRATED, 3, 30, QUICK).fps < 550.0


def test_launch_ahead_meets_more_deadlines_than_sgprs_in_one_process() -> None:
    summary = scenarios.launch_ahead(CALIBRATED, 34, QUICK)
    assert summary.missed == 0.0
    assert summary.fps == pytest.approx(1020.0, rel=0.01)


def test_single_stream_and_batching_reach_their_published_rates() -> None:
    assert scenarios.single_stream(CALIBRATED, 1, QUICK) == pytest.approx(492.0, rel=0.02)
    assert scenarios.single_stream(CALIBRATED, 2, QUICK) == pytest.approx(published.SINGLE_STREAM_FPS, rel=0.02)
    assert scenarios.batched(CALIBRATED, 4, QUICK) == pytest.approx(published.BEST_BATCHED_FPS, rel=0.02)


def test_daris_reaches_its_published_rate_and_launch_ahead_exceeds_it() -> None:
    daris = scenarios.daris(CALIBRATED, 48, QUICK)
    assert daris.overall.fps / published.SINGLE_STREAM_FPS >= 1.5
    assert daris.high.missed == 0.0
    assert daris.low.accepted_missed < 0.02
    ahead = scenarios.mixed_priorities(CALIBRATED, LaunchAhead(), LAUNCH_AHEAD_POOL, 48, QUICK)
    assert ahead.overall.fps_in_time > 1.005 * daris.overall.fps
    assert ahead.overall.fps < CALIBRATED.gpu().max_throughput()
    assert ahead.high.missed == 0.0
    assert ahead.high.p99_response < 1.1 * daris.high.p99_response


def test_launch_ahead_meets_more_deadlines_than_daris_in_one_process() -> None:
    daris = scenarios.mixed_priorities(CALIBRATED, Daris(), DARIS_POOL, 48, QUICK, shared_process=True)
    ahead = scenarios.mixed_priorities(CALIBRATED, BATCHED_LAUNCH_AHEAD, DARIS_POOL, 48, QUICK, shared_process=True)
    assert ahead.overall.fps_in_time > 1.4 * daris.overall.fps_in_time
    assert ahead.high.missed == 0.0
    assert ahead.low.accepted_missed < 0.05


def test_a_figure_has_all_series() -> None:
    figure = figures.simulate_figure(CALIBRATED, 3, (1.5,), (20, 21), SimulationSettings(seconds=1.0))
    assert [series.label for series in figure.series] == [
        "SGPRS 3 contexts x 1.5",
        "naive 3 contexts",
        "launch-ahead (Podium)",
    ]
    assert figure.series[0].max_tasks_without_miss == 21
    assert len(figures.table(figure)) == 4


def test_rate_errors_are_relative_and_miss_errors_absolute() -> None:
    points = [
        ValidationPoint("a", Quantity.RATE, 100.0, 110.0, False),
        ValidationPoint("b", Quantity.MISSED, 0.10, 0.12, False),
        ValidationPoint("c", Quantity.COUNT, 24.0, 18.0, False),
        ValidationPoint("d", Quantity.RATE, 100.0, 900.0, True),
    ]
    assert [point.error for point in points] == pytest.approx([0.1, 0.02, 0.25, 8.0])
    assert median_error(points) == pytest.approx(0.1)


def test_tasks_without_a_miss_are_counted_up_to_the_first_miss() -> None:
    runs = {count: scenarios.sgprs(CALIBRATED, 3, 1.5, count, SimulationSettings(seconds=1.0)) for count in (10, 28)}
    assert FigureSeries("x", runs).max_tasks_without_miss == 10
    assert FigureSeries("x", {28: runs[28]}).max_tasks_without_miss == 0

"""The bars of the issue on short simulated runs; `benchmarks/bench_realtime.py` has the long ones and every cell."""

from __future__ import annotations

import pytest

from podium_realtime.model import published
from podium_realtime.scheduling.ahead import LaunchAhead
from podium_realtime.scheduling.daris import Daris
from podium_realtime.simulation import figures, scenarios
from podium_realtime.simulation.cells import Cell, Kind, Series, median_error
from podium_realtime.simulation.fitted import FITTED
from podium_realtime.simulation.scenarios import AHEAD_BATCHED, AHEAD_PROCESSES, DARIS_POOL, Setting

QUICK = Setting(seconds=1.5)


def test_sgprs_meets_all_deadlines_up_to_its_pivot_and_no_further() -> None:
    assert scenarios.sgprs(FITTED, 3, 1.5, 23, QUICK).missed == 0.0
    assert scenarios.sgprs(FITTED, 3, 1.5, 26, QUICK).missed > 0.05


def test_past_the_pivot_sgprs_keeps_its_rate_and_naive_does_not() -> None:
    managed = scenarios.sgprs(FITTED, 3, 1.5, 30, QUICK)
    assert managed.fps == pytest.approx(770.0, rel=0.05)
    assert managed.missed == pytest.approx(0.574, abs=0.15)
    assert scenarios.naive(FITTED, 3, 30, QUICK).fps < 550.0


def test_ours_keeps_more_deadlines_than_sgprs_in_the_same_process() -> None:
    ours = scenarios.ahead(FITTED, 34, QUICK)
    assert ours.missed == 0.0
    assert ours.fps == pytest.approx(1020.0, rel=0.01)


def test_one_stream_and_batches_are_as_published() -> None:
    assert scenarios.single_stream(FITTED, 1, QUICK) == pytest.approx(492.0, rel=0.02)
    assert scenarios.single_stream(FITTED, 2, QUICK) == pytest.approx(published.SINGLE_STREAM_FPS, rel=0.02)
    assert scenarios.batched(FITTED, 4, QUICK) == pytest.approx(published.BEST_BATCHED_FPS, rel=0.02)


def test_daris_is_as_published_and_ours_is_above_it() -> None:
    daris = scenarios.daris(FITTED, 48, QUICK)
    assert daris.all.fps / published.SINGLE_STREAM_FPS >= 1.5
    assert daris.high.missed == 0.0
    assert daris.low.accepted_missed < 0.02
    ours = scenarios.two_classes(FITTED, LaunchAhead(), AHEAD_PROCESSES, 48, QUICK)
    assert ours.all.fps_in_time > 1.005 * daris.all.fps
    assert ours.all.fps < FITTED.gpu().limit()
    assert ours.high.missed == 0.0
    assert ours.high.p99_response < 1.1 * daris.high.p99_response


def test_in_one_process_ours_keeps_far_more_deadlines_than_daris() -> None:
    daris = scenarios.two_classes(FITTED, Daris(), DARIS_POOL, 48, QUICK, shared_process=True)
    ours = scenarios.two_classes(FITTED, AHEAD_BATCHED, DARIS_POOL, 48, QUICK, shared_process=True)
    assert ours.all.fps_in_time > 1.4 * daris.all.fps_in_time
    assert ours.high.missed == 0.0
    assert ours.low.accepted_missed < 0.05


def test_a_figure_has_every_series() -> None:
    found = figures.sweep(FITTED, 3, (1.5,), (20, 21), Setting(seconds=1.0))
    assert [series.label for series in found.series] == [
        "SGPRS 3 contexts x 1.5",
        "naive 3 contexts",
        "launch-ahead (ours)",
    ]
    assert found.series[0].last_zero == 21
    assert len(figures.table(found)) == 4


def test_errors_of_cells() -> None:
    cells = [
        Cell("a", Kind.RATE, 100.0, 110.0, False),
        Cell("b", Kind.MISSED, 0.10, 0.12, False),
        Cell("c", Kind.COUNT, 24.0, 18.0, False),
        Cell("d", Kind.RATE, 100.0, 900.0, True),
    ]
    assert [cell.error for cell in cells] == pytest.approx([0.1, 0.02, 0.25, 8.0])
    assert median_error(cells) == pytest.approx(0.1)


def test_last_zero_ends_at_the_first_miss() -> None:
    runs = {count: scenarios.sgprs(FITTED, 3, 1.5, count, Setting(seconds=1.0)) for count in (10, 28)}
    assert Series("x", runs).last_zero == 10
    assert Series("x", {28: runs[28]}).last_zero == 0

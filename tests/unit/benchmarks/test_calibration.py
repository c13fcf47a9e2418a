"""Calibration of the forecasts: CRPS has its known values, and the report leaves no task out."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from benchmarks.hpo import calibration
from benchmarks.hpo.questions import questions

from podium_core.curves.prediction.multiples import LEVELS, TABLE
from podium_simulator.traces.trace import bundled_trace

NORMAL = NormalDist()


def of_normal(value: float) -> float:
    """Return the CRPS of a standard normal in closed form (Gneiting and Raftery 2007, equation 21)."""
    return value * (2 * NORMAL.cdf(value) - 1) + 2 * NORMAL.pdf(value) - np.pi**-0.5


def test_crps_is_that_of_the_normal() -> None:
    """Within 0.02 with the LEVELS in use: the tails beyond them count as the outermost level's."""
    quantiles = np.array([NORMAL.inv_cdf(level) for level in LEVELS])
    for value in (-2.0, -0.5, 0.0, 0.3, 1.0, 2.5):
        assert calibration.crps(quantiles, value) == pytest.approx(of_normal(value), abs=0.02)
    drawn = [NORMAL.inv_cdf((i + 0.5) / 2000) for i in range(2000)]
    assert np.mean([calibration.crps(quantiles, value) for value in drawn]) == pytest.approx(np.pi**-0.5, abs=0.01)


def test_crps_of_a_point_is_the_absolute_error_and_scales_with_the_unit() -> None:
    assert calibration.crps(np.full(len(LEVELS), 2.0), 5.0) == pytest.approx(3.0)
    quantiles = np.linspace(0.0, 1.0, len(LEVELS))
    assert calibration.crps(7.0 * quantiles, 7.0 * 0.3) == pytest.approx(7.0 * calibration.crps(quantiles, 0.3))


def test_an_answer_is_within_the_values_of_completed_trials() -> None:
    asked = questions(bundled_trace(), shares=(0.25,))
    assert {a.share for a in asked} == {0.25}
    early = [a for a in asked if a.ceiling > 0 and np.max(a.reached) > 0]
    assert early
    for one in early:
        found = calibration.answer(one, TABLE[4] * 100.0, len(one.reached))
        assert found.max() <= max(one.ceiling, one.reached.max(), 0.0) + 1e-12
        assert np.all(np.diff(found) >= 0.0)
    one = replace(early[0], ceiling=np.inf)
    assert calibration.answer(one, TABLE[4], 0) == pytest.approx(TABLE[4])


def test_the_report_has_every_task_its_range_and_the_example() -> None:
    outcome: dict[str, dict[str, dict[str, object]]] = {}
    tasks = [replace(bundled_trace(), task=name, family=name) for name in ("one", "two", "three")]
    report = calibration.calibration_report(tasks, outcome)
    for name in ("one", "two", "three", "digits_example", "mean of the tasks (range)"):
        assert sum(line.startswith(f"| {name} |") for line in report.splitlines()) == 1
    for share in ("5 %", "10 %", "25 %", "50 %"):
        assert sum(line.startswith(f"| {share} | ") for line in report.splitlines()) == 2, (
            "once without and once with completed trials"
        )
    assert "Worse than 'stays as it is'" in report
    assert "median over the questions" in report
    assert "0.8_range" in outcome["calibration"]["none"]
    assert {"0.5", "0.8", "0.95", "crps", "crps_mean"} <= set(outcome["calibration"]["16"])
    assert "digits_example" in outcome["calibration"]["16"]


def test_without_recordings_the_example_is_measured_with_the_shipped_table() -> None:
    outcome: dict[str, dict[str, dict[str, object]]] = {}
    report = calibration.calibration_report([bundled_trace()], outcome)
    assert "| digits_example |" in report
    assert "mean" not in "".join(line for line in report.splitlines() if line.startswith("| mean"))
    assert set(outcome["calibration"]["none"]) == {"digits_example"}


def test_a_task_on_which_the_forecast_loses_is_named() -> None:
    figures = {"crps": 0.03, "crps_stays": 0.02, "crps_mean": 0.1, "crps_stays_mean": 0.2}
    one = calibration.Calibration("IRNN", {0: figures, calibration.KNOWN: figures}, {})
    text = calibration.losers([one])
    assert text.startswith("none completed, median: IRNN; none completed, mean: nowhere")

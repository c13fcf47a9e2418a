"""The benchmark of the forecasts: the score is the CRPS, and the report lists every task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from types import ModuleType

import numpy as np
import pytest

from podium_core.curves.final_value import LEVELS, TABLE
from podium_simulator.traces.trace import bundled_trace

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
NORMAL = NormalDist()


@pytest.fixture
def questions(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(BENCHMARKS / "hpo_questions.py")


@pytest.fixture
def scores(load_script: Callable[[Path], ModuleType], questions: ModuleType) -> ModuleType:
    return load_script(BENCHMARKS / "hpo_scores.py")


@pytest.fixture
def calibration(load_script: Callable[[Path], ModuleType], scores: ModuleType) -> ModuleType:
    return load_script(BENCHMARKS / "hpo_calibration.py")


def crps_of_normal(value: float) -> float:
    """Return the CRPS of a standard normal distribution (Gneiting and Raftery 2007, equation 21)."""
    return value * (2 * NORMAL.cdf(value) - 1) + 2 * NORMAL.pdf(value) - np.pi**-0.5


def test_crps_agrees_with_the_closed_form_for_a_normal_distribution(scores: ModuleType) -> None:
    """With the LEVELS in use it agrees within 0.02, because the tails beyond them count as the outermost level."""
    quantiles = np.array([NORMAL.inv_cdf(level) for level in LEVELS])
    for value in (-2.0, -0.5, 0.0, 0.3, 1.0, 2.5):
        assert scores.crps(quantiles, value) == pytest.approx(crps_of_normal(value), abs=0.02)
    drawn = [NORMAL.inv_cdf((i + 0.5) / 2000) for i in range(2000)]
    assert np.mean([scores.crps(quantiles, value) for value in drawn]) == pytest.approx(np.pi**-0.5, abs=0.01)


def test_crps_of_a_point_forecast_is_the_absolute_error(scores: ModuleType) -> None:
    assert scores.crps(np.full(len(LEVELS), 2.0), 5.0) == pytest.approx(3.0)
    quantiles = np.linspace(0.0, 1.0, len(LEVELS))
    assert scores.crps(7.0 * quantiles, 7.0 * 0.3) == pytest.approx(7.0 * scores.crps(quantiles, 0.3))


def test_forecasts_stay_within_the_range_of_completed_trials(questions: ModuleType, scores: ModuleType) -> None:
    asked = questions.questions(bundled_trace(), shares=(0.25,))
    assert {question.share for question in asked} == {0.25}
    early = [question for question in asked if question.room > 0 and np.max(question.reached) > 0]
    assert early
    for question in early:
        forecast = scores.answer(question, TABLE[4] * 100.0, len(question.reached))
        assert forecast.max() <= max(question.room, question.reached.max(), 0.0) + 1e-12
        assert np.all(np.diff(forecast) >= 0.0)
    unbounded = replace(early[0], room=np.inf)
    assert scores.answer(unbounded, TABLE[4], 0) == pytest.approx(TABLE[4])


def test_the_report_has_every_task_its_range_and_the_bundled_example(calibration: ModuleType) -> None:
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


def test_without_recordings_the_bundled_example_is_measured(calibration: ModuleType) -> None:
    outcome: dict[str, dict[str, dict[str, object]]] = {}
    report = calibration.calibration_report([bundled_trace()], outcome)
    assert "| digits_example |" in report
    assert "mean" not in "".join(line for line in report.splitlines() if line.startswith("| mean"))
    assert set(outcome["calibration"]["none"]) == {"digits_example"}


def test_a_task_that_loses_to_the_constant_forecast_is_listed(calibration: ModuleType) -> None:
    figures = {"crps": 0.03, "crps_stays": 0.02, "crps_mean": 0.1, "crps_stays_mean": 0.2}
    result = calibration.Calibration("IRNN", {0: figures, calibration.KNOWN: figures}, {})
    losers = calibration.losers([result])
    assert losers.startswith("none completed, median: IRNN; none completed, mean: nowhere")

"""Recorded metrics: from the output of `promtool tsdb dump` to OpenMetrics, and whether an alert fires on them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration"))

from metrics_recording import FOLDER, SAMPLES, Run, facts, openmetrics, samples, save
from prometheus_server import fires

DUMP = (
    '{__name__="up", instance="10.89.2.4:8080", job="podium"} 1 1795807200123\n',
    '{__name__="podium_jobs_shown"} 2 1795807210123\n',
    '{__name__="podium_jobs_shown"} 1.5e+06 1795807200123\n',
    '{__name__="podium_jobs_shown"} 3 1795807205123\n',  # too close to the earlier one
    '{__name__="podium_jobs_shown"} NaN 1795807220123\n',  # the series ended
    '{__name__="podium_trials", phase="a\\"}, b", x="\\\\"} -0.5 1795807200000\n',
)


def test_samples_are_sorted_by_series_and_time_and_ends_of_series_are_left_out() -> None:
    assert list(openmetrics(DUMP)) == [
        "podium_jobs_shown{} 1.5e+06 1795807200.123\n",
        "podium_jobs_shown{} 2 1795807210.123\n",
        'podium_trials{phase="a\\"}, b",x="\\\\"} -0.5 1795807200.000\n',
        'up{instance="10.89.2.4:8080",job="podium"} 1 1795807200.123\n',
        "# EOF\n",
    ]


@pytest.mark.parametrize("line", ["", "up 1 2", '{__name__="up"} 1', '{job="podium"} 1 1795807200123'])
def test_another_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="is not from `promtool tsdb dump`"):
        list(openmetrics([line]))


def test_a_recording_is_read_as_it_was_saved(tmp_path: Path) -> None:
    run = Run(1.0, 2.0, 3.0, nodes=2, succeeded=12, suspensions=9, best_value=0.97, losses=1)
    save(DUMP, run, tmp_path)
    assert facts(tmp_path) == run
    assert samples(tmp_path) == "".join(openmetrics(DUMP))


def test_the_stored_recording_is_small() -> None:
    assert (FOLDER / SAMPLES).stat().st_size < 300_000


@pytest.mark.parametrize(
    ("moments", "duration", "expected"),
    [
        ([], "0m", False),
        ([100], "0m", True),
        ([100, 110, 120, 130, 140, 150], "1m", False),
        ([100, 110, 120, 130, 140, 150, 160], "1m", True),
        ([100, 110, 120, 130, 150, 160, 170, 180], "1m", False),  # it did not hold at 140
    ],
)
def test_an_alert_fires_once_its_expression_has_held_without_a_gap(
    moments: list[float], duration: str, expected: bool
) -> None:
    assert fires([{"metric": {}, "values": [(moment, "1") for moment in moments]}], duration, 10.0) == expected

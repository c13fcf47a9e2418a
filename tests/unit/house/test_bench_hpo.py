"""How bench_hpo compares results with its targets, and the contents of its tables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from podium_core.policies.registry import _TABLE, NAMES, create
from podium_simulator.replay.samples import Machine

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def bars(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(BENCHMARKS / "hpo_bars.py")


@pytest.fixture
def runs(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(BENCHMARKS / "hpo_runs.py")


@pytest.fixture
def report(load_script: Callable[[Path], ModuleType], runs: ModuleType) -> ModuleType:
    return load_script(BENCHMARKS / "hpo_report.py")  # imports hpo_runs by name


def line_of(report: str, text: str) -> str:
    [line] = [line for line in report.splitlines() if text in line]
    return line


@pytest.mark.parametrize(
    ("value", "shown", "verdict"),
    [
        (0.00984, "0.00984", "ambition"),
        (0.01, "0.01", "ambition"),
        (0.01049, "0.0105", "**no**"),  # rounded to three decimals it would meet the target
        (0.010004, "0.010004", "**no**"),  # rounded to three digits it would equal the target
    ],
)
def test_a_target_is_compared_with_the_unrounded_value(
    bars: ModuleType, value: float, shown: str, verdict: str
) -> None:
    outcome: dict[str, object] = {}
    report = bars.bars_report({"taskset": {"envelope": {"switch_share": value}}}, {}, outcome)
    assert line_of(report, "share of switches").split(" | ")[2:] == [shown, "at most 0.01 (0.01)", f"{verdict} |"]
    assert outcome["bars"] == {"held": int(verdict != "**no**"), "of": 1}


def test_the_worst_wait_is_reported_but_not_counted(bars: ModuleType) -> None:
    outcome: dict[str, object] = {}
    report = bars.bars_report({"algoperf": {"envelope": {"wait": 5.0, "wait_worst": 12.34}}}, {}, outcome)
    assert "| 5 | at most 8 (4) | yes |" in line_of(report, "mean of runs")
    assert "| 12.3 | no bar | information |" in line_of(report, "worst single run")
    assert outcome["bars"] == {"held": 1, "of": 1}


def test_results_with_more_gpus_are_for_information(bars: ModuleType) -> None:
    measured = {"taskset": {"envelope": {"b": 3.0}, "fifo": {}}}
    report = bars.bars_beside(measured, {"taskset": {"lost_by_floor": 0.02}}, 8)
    assert report.startswith("## For information: the same with 8 GPUs")
    assert "set for 4 GPUs" in report
    assert "bars hold" not in report
    assert "| 3 | at least 3.2 (4.04) | **no** |" in line_of(report, "(b) against fifo |")
    assert "| 0.02 | at most 0.05 (0.05) | ambition |" in line_of(report, "lost by the floor")
    assert bars.bars_beside({"digits": {"envelope": {"b": 3.0}}}, {}, 8) == ""


@pytest.mark.parametrize("name", NAMES)
def test_each_word_of_each_setting_is_benchmarked(runs: ModuleType, name: str) -> None:
    words = {key: setting.kind for key, setting in _TABLE[name].settings.items() if isinstance(setting.kind, tuple)}
    run = [entrant.make(None) for entered, entrant in runs.ENTRANTS.items() if entered != "oracle"]
    for chosen in product(*words.values()):
        assert create(name, dict(zip(words, chosen, strict=True))) in run


def test_every_other_entrant_is_a_rival_of_the_envelope(bars: ModuleType, runs: ModuleType) -> None:
    """`hermes_cluster` is not a rival: it is hermes by the planner's rule instead of its own."""
    others = {"envelope", "envelope_no_floor", "envelope_turns", "hermes_cluster", "oracle"}
    assert set(runs.ENTRANTS) == others | set(bars.RIVALS)


@pytest.mark.parametrize(
    ("bases", "column"), [(["round_robin", "slaq"], "b against rr, slaq"), (["slaq"], "b against slaq"), ([], None)]
)
def test_a_table_has_columns_only_for_benchmarked_policies(
    runs: ModuleType, report: ModuleType, bases: list[str], column: str | None
) -> None:
    results = runs.run_all(runs.jobs_of((), "own", 1, 6, ["fifo", *bases], Machine(2, runs.SHORT)), 1)
    lines = [line.strip("| ").split(" | ") for line in report.table(results, "digits").splitlines()]
    head, rows = lines[0], lines[2:]
    assert [title for title in head if title.startswith("b against")] == ([column] if column else [])
    assert [len(row) for row in rows] == [len(head)] * (1 + len(bases))

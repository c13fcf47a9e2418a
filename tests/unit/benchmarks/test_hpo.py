"""Bars and tables of bench_hpo."""

from __future__ import annotations

from itertools import product

import pytest
from benchmarks.hpo import bars, report, runs

from podium_core.policies.registry import _TABLE, NAMES, create
from podium_simulator.replay.samples import Machine


def line_of(page: str, text: str) -> str:
    [line] = [line for line in page.splitlines() if text in line]
    return line


@pytest.mark.parametrize(
    ("value", "shown", "verdict"),
    [
        (0.00984, "0.00984", "ambition"),
        (0.01, "0.01", "ambition"),
        (0.01049, "0.0105", "**no**"),  # three decimals would hold
        (0.010004, "0.010004", "**no**"),  # three digits would be the bar itself
    ],
)
def test_a_bar_is_judged_by_the_unrounded_figure(value: float, shown: str, verdict: str) -> None:
    outcome: dict[str, object] = {}
    page = bars.bars_report({"taskset": {"envelope": {"switch_share": value}}}, {}, outcome)
    assert line_of(page, "share of switches").split(" | ")[2:] == [shown, "at most 0.01 (0.01)", f"{verdict} |"]
    assert outcome["bars"] == {"held": int(verdict != "**no**"), "of": 1}


def test_the_worst_wait_is_shown_beside_the_mean_and_not_counted() -> None:
    outcome: dict[str, object] = {}
    page = bars.bars_report({"algoperf": {"envelope": {"wait": 5.0, "wait_worst": 12.34}}}, {}, outcome)
    assert "| 5 | at most 8 (4) | yes |" in line_of(page, "mean of runs")
    assert "| 12.3 | no bar | information |" in line_of(page, "worst single run")
    assert outcome["bars"] == {"held": 1, "of": 1}


def test_bars_of_further_gpus_are_information() -> None:
    measured = {"taskset": {"envelope": {"time_to_best": 3.0}, "fifo": {}}}
    page = bars.bars_beside(measured, {"taskset": {"lost_by_guard": 0.02}}, 8)
    assert page.startswith("## For information: the same with 8 GPUs")
    assert "set for 4 GPUs" in page
    assert "bars hold" not in page
    assert "| 3 | at least 3.2 (4.04) | **no** |" in line_of(page, "time_to_best against fifo |")
    assert "| 0.02 | at most 0.05 (0.05) | ambition |" in line_of(page, "lost by the starvation guard")
    assert bars.bars_beside({"digits": {"envelope": {"time_to_best": 3.0}}}, {}, 8) == ""


def test_the_best_rival_is_that_of_the_same_metric() -> None:
    table = {
        "envelope": {"time_to_best": 3.0, "mean_regret": 3.0},
        "asha": {"time_to_best": 1.5, "mean_regret": 0.5},
        "fifo": {},
    }
    page = bars.bars_report({"taskset": table}, {}, {})
    assert "| 2 | at least 0.95 (1.1) | ambition |" in line_of(page, "time_to_best against the best rival")
    assert "| 3 | at least 0.95 (1.1) | ambition |" in line_of(page, "mean_regret against the best rival")


@pytest.mark.parametrize("name", [one for one in NAMES if one != "pareto"])  # recorded curves have one objective
def test_each_choice_of_each_setting_is_run(name: str) -> None:
    words = {key: one.kind for key, one in _TABLE[name].settings.items() if isinstance(one.kind, tuple)}
    run = [entrant.make(None) for entered, entrant in runs.ENTRANTS.items() if entered != "oracle"]  # type: ignore[arg-type]
    for chosen in product(*words.values()):
        assert create(name, dict(zip(words, chosen, strict=True))) in run


def test_every_other_policy_is_a_rival_of_the_envelope() -> None:
    """Except `hermes_cluster`, which is hermes by the planner's rule and not by the rule of its own definition."""
    others = {"envelope", "envelope_no_guard", "envelope_min_time_slice", "hermes_cluster", "oracle"}
    assert set(runs.ENTRANTS) == others | set(bars.RIVALS)


@pytest.mark.parametrize(
    ("bases", "heading"),
    [
        (["round_robin", "slaq"], "time_to_best against round_robin, slaq"),
        (["slaq"], "time_to_best against slaq"),
        ([], None),
    ],
)
def test_a_table_has_the_bases_that_were_run(bases: list[str], heading: str | None) -> None:
    source = runs.Source((), "random", 6)
    found = runs.run_all(runs.replays_of(source, 1, ["fifo", *bases], Machine(2, runs.SHORT)), 1)
    lines = [line.strip("| ").split(" | ") for line in report.table(found, "digits").splitlines()]
    head, rows = lines[0], lines[2:]
    assert [column for column in head if column.startswith("time_to_best against")] == ([heading] if heading else [])
    assert [len(row) for row in rows] == [len(head)] * (1 + len(bases))


def test_the_result_names_metrics_in_words() -> None:
    source = runs.Source((), "random", 6)
    names = ["fifo", "round_robin", "slaq", "envelope"]
    found = runs.run_all(runs.replays_of(source, 1, names, Machine(2, runs.SHORT)), 1)
    figures = report.measured(found)["digits"]["envelope"]
    for metric in ("time_to_target", "time_to_near_best", "time_to_best", "mean_regret"):
        assert {f"{metric}{end}" for end in ("", "_worst", "_vs_round_robin", "_vs_slaq")} <= figures.keys()


def test_entrants_reach_the_worker_processes() -> None:
    replays = runs.replays_of(runs.Source((), "random", 4), 1, ["first"], Machine(2, runs.SHORT))
    found = runs.run_all(replays, 2, {"first": runs.ENTRANTS["fifo"]})
    assert [run.entrant for run in found] == ["first"]

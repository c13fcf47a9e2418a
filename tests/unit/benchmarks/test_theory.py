"""`make bench-theory` reports missed bars, bars that were not measured, and failed parts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.theory import bars, bench_learning, bench_makespan, bench_theory

from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.schedule import MakespanSchedule

BETTER = {"<": 0.5, "<=": 1.0, ">": 2.0, ">=": 1.0}  # times the bar's value: a figure that keeps it


def good() -> dict[str, dict[str, Any]]:
    """Return figures that keep every bar."""
    figures: dict[str, dict[str, Any]] = {part: {} for part in bench_theory.PARTS}
    for bar in bars.BARS:
        figures[bar.part][bar.key] = bar.value if bar.sign == "=" else bar.value * BETTER[bar.sign]
    return figures


def test_each_bar_can_be_held_and_missed() -> None:
    worse = {"<": 1.0, "<=": 1.1, ">": 1.0, ">=": 0.9}
    figures = good()
    for bar in bars.BARS:
        assert bar.holds(figures), bar
        missed = not bar.value if bar.sign == "=" else bar.value * worse[bar.sign]
        assert not bar.holds({bar.part: {bar.key: missed}}), bar
        assert not bar.holds({bar.part: {}}), "a figure that was not measured does not keep its bar"


def test_a_part_run_alone_names_the_bars_that_it_misses() -> None:
    found = good()["preemption"]
    assert bars.missed("preemption", found) == []
    [line] = bars.missed("preemption", found | {"predicted_sjf_share": 0.9})
    assert line.startswith("missed: share of SJF's gain over FIFO")
    assert line.endswith(": 0.9, asked >= 0.95")


def test_a_failed_part_is_reported() -> None:
    figures = good()
    del figures["learning"]
    page = bench_theory.page_text(figures, {"makespan": 12.0}, {"learning": "AssertionError: ppo loses to fifo"}, 60.0)
    assert "**learning failed:** AssertionError: ppo loses to fifo" in page
    assert page.count("**missed**") == sum(bar.part == "learning" for bar in bars.BARS)
    assert bench_theory.result(figures)["rl_beats_fifo"] is None


def test_every_part_runs_and_is_named_in_the_tables() -> None:
    modules = {path.stem.removeprefix("bench_") for path in Path(bench_theory.__file__).parent.glob("bench_*.py")}
    assert set(bench_theory.PARTS) == set(bench_theory.ORDER) == modules - {"theory"}


def test_a_trace_in_another_format_ends_the_benchmark_before_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr(sys, "argv", ["bench_theory", "--trace", str(tmp_path / "jobs.csv"), "--out", str(tmp_path)])
    monkeypatch.setattr(bench_theory, "measure", lambda *_: pytest.fail("the parts were started"))
    with pytest.raises(SystemExit, match=r"jobs\.csv is not in the format of the Philly trace"):
        bench_theory.main()


def test_the_result_has_the_share_over_both_kinds_of_fifo() -> None:
    shares = {"predicted_sjf_share": 0.98, "predicted_sjf_share_over_backfilled": 0.94}
    found = bench_theory.result({"preemption": shares})
    assert {key: found[key] for key in shares} == shares


@pytest.mark.parametrize(("backfilled", "beaten"), [(430.0, True), (390.0, False)])
def test_learned_policies_beat_fifo_only_if_they_beat_it_backfilled(backfilled: float, beaten: bool) -> None:
    noise = np.random.default_rng(0).normal(0.0, 1.0, 50)
    means = dict.fromkeys(bench_learning.METHODS, 400.0 + noise)
    rivals = {"random": 900.0, "fifo": 1200.0, "fifo, backfilled": backfilled, "sjf": 380.0}
    report = bench_learning.Report(means=means | {name: np.full(50, mean) for name, mean in rivals.items()})
    found = bench_learning.summary(report)
    assert (found["rl_beats_fifo"], found["rl_beats_random"]) == (beaten, True)


@pytest.mark.parametrize("method", ["lp", "heteroprio", "dual"])
def test_a_makespan_above_a_proven_ratio_ends_the_benchmark(method: str) -> None:
    instance = MakespanInstance.of([4.0, 4.0], [4.0, 4.0], 1, 1)  # the optimum is 4 s
    assert bench_makespan._within_proof(instance, MakespanSchedule(method, (0, 1), (0.0, 0.0), 4.0, 4.0), 4.0) == 1.0
    with pytest.raises(AssertionError, match=f"{method}: 16"):
        bench_makespan._within_proof(instance, MakespanSchedule(method, (0, 0), (0.0, 4.0), 16.0, 16.0), 4.0)

"""`make bench-theory` reports every missed or unmeasured target, and every part that fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from podium_optimisers.makespan.instance import MakespanInstance
from podium_optimisers.makespan.schedule import MakespanSchedule

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
BETTER = {"<": 0.5, "<=": 1.0, ">": 2.0, ">=": 1.0}  # factor on the target value that meets the target


sys.path.insert(0, str(BENCHMARKS))  # the scripts import each other by name


@pytest.fixture(scope="module")
def bench(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(BENCHMARKS / "bench_theory.py")


def good(bench: ModuleType) -> dict[str, dict[str, Any]]:
    """Return figures that meet all targets."""
    figures: dict[str, dict[str, Any]] = {part: {} for part in bench.PARTS}
    for bar in bench.BARS:
        figures[bar.part][bar.key] = bar.value if bar.sign == "=" else bar.value * BETTER[bar.sign]
    return figures


def test_each_target_can_be_met_and_missed(bench: ModuleType) -> None:
    worse = {"<": 1.0, "<=": 1.1, ">": 1.0, ">=": 0.9}
    figures = good(bench)
    for bar in bench.BARS:
        assert bar.holds(figures), bar
        missed = not bar.value if bar.sign == "=" else bar.value * worse[bar.sign]
        assert not bar.holds({bar.part: {bar.key: missed}}), bar
        assert not bar.holds({bar.part: {}}), "an unmeasured target is not met"


def test_a_part_run_alone_lists_the_targets_that_it_misses(bench: ModuleType) -> None:
    bars = sys.modules["theory_bars"]
    figures = good(bench)["preemption"]
    assert bars.missed("preemption", figures) == []
    [line] = bars.missed("preemption", figures | {"predicted_sjf_share": 0.9})
    assert line.startswith("missed: share of SJF's gain over FIFO")
    assert line.endswith(": 0.9, asked >= 0.95")


def test_a_part_that_failed_is_reported(bench: ModuleType) -> None:
    figures = good(bench)
    del figures["learning"]
    page = bench.text(figures, {"makespan": 12.0}, {"learning": "AssertionError: ppo does not beat fifo"}, 60.0)
    assert "**learning broke off:** AssertionError: ppo does not beat fifo" in page
    assert page.count("**missed**") == sum(bar.part == "learning" for bar in bench.BARS)
    assert bench.result(figures)["rl_beats_fifo"] is None


def test_every_part_is_run_and_listed_in_the_tables(bench: ModuleType) -> None:
    scripts = {path.stem.removeprefix("bench_theory_") for path in BENCHMARKS.glob("bench_theory_*.py")}
    assert set(bench.PARTS) == set(bench.ORDER) == scripts


def test_the_result_has_the_gain_over_both_variants_of_fifo(bench: ModuleType) -> None:
    shares = {"predicted_sjf_share": 0.98, "predicted_sjf_share_over_backfilled": 0.94}
    result = bench.result({"preemption": shares})
    assert {key: result[key] for key in shares} == shares


@pytest.mark.parametrize(("backfilled", "beaten"), [(430.0, True), (390.0, False)])
def test_learned_policies_beat_fifo_only_if_they_beat_it_with_backfilling(
    load_script: Callable[[Path], ModuleType], backfilled: float, beaten: bool
) -> None:
    learning = load_script(BENCHMARKS / "bench_theory_learning.py")
    noise = np.random.default_rng(0).normal(0.0, 1.0, 50)
    means = dict.fromkeys(learning.METHODS, 400.0 + noise)
    rivals = {"random": 900.0, "fifo": 1200.0, "fifo, backfilled": backfilled, "sjf": 380.0}
    report = learning.Report(means=means | {name: np.full(50, mean) for name, mean in rivals.items()})
    summary = learning.summary(report)
    assert (summary["rl_beats_fifo"], summary["rl_beats_random"]) == (beaten, True)


@pytest.mark.parametrize("method", ["lp", "heteroprio", "dual"])
def test_a_makespan_above_a_proven_ratio_fails_the_benchmark(
    load_script: Callable[[Path], ModuleType], method: str
) -> None:
    makespan = load_script(BENCHMARKS / "bench_theory_makespan.py")
    instance = MakespanInstance.of([4.0, 4.0], [4.0, 4.0], 1, 1)  # the optimum is 4 s
    assert makespan._within_proof(instance, MakespanSchedule(method, (0, 1), (0.0, 0.0), 4.0, 4.0), 4.0) == 1.0
    with pytest.raises(AssertionError, match=f"{method}: 16"):
        makespan._within_proof(instance, MakespanSchedule(method, (0, 0), (0.0, 4.0), 16.0, 16.0), 4.0)

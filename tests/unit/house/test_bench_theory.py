"""`make bench-theory` hides nothing: a bar that is missed or not measured is told, and a part that breaks off too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
BETTER = {"<": 0.5, "<=": 1.0, ">": 2.0, ">=": 1.0}  # times the bar's value: a figure that holds it


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_theory", BENCHMARKS / "bench_theory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_theory"] = module
    spec.loader.exec_module(module)
    return module


def good(bench: ModuleType) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {part: {} for part in bench.PARTS}
    for bar in bench.BARS:
        figures[bar.part][bar.key] = bar.value if bar.sign == "=" else bar.value * BETTER[bar.sign]
    return figures


def test_each_bar_can_be_held_and_missed(bench: ModuleType) -> None:
    worse = {"<": 1.0, "<=": 1.1, ">": 1.0, ">=": 0.9}
    figures = good(bench)
    for bar in bench.BARS:
        assert bar.holds(figures), bar
        missed = not bar.value if bar.sign == "=" else bar.value * worse[bar.sign]
        assert not bar.holds({bar.part: {bar.key: missed}}), bar
        assert not bar.holds({bar.part: {}}), "what was not measured is not held"


def test_a_part_that_broke_off_is_told(bench: ModuleType) -> None:
    figures = good(bench)
    del figures["learning"]
    page = bench.text(figures, {"makespan": 12.0}, {"learning": "AssertionError: ppo does not beat fifo"}, 60.0)
    assert "**learning broke off:** AssertionError: ppo does not beat fifo" in page
    assert page.count("**missed**") == sum(bar.part == "learning" for bar in bench.BARS)
    assert bench.result(figures)["rl_beats_fifo"] is None


def test_the_parts_are_all_there_are_and_named_in_the_tables(bench: ModuleType) -> None:
    scripts = {path.stem.removeprefix("bench_theory_") for path in BENCHMARKS.glob("bench_theory_*.py")}
    assert set(bench.PARTS) == set(bench.ORDER) == scripts

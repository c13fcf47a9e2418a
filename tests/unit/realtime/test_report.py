"""Result file of `bench_realtime.py`: a repeated part replaces its own section and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CPU = {"zero_miss_ratio": 1.4, "fps_ratio": 0.9, "others_share": 0.01}


@pytest.fixture(scope="module")
def report(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    load_script(BENCHMARKS / "result_sections.py")  # realtime_report imports it
    return load_script(BENCHMARKS / "realtime_report.py")


def test_a_repeated_part_replaces_its_own_section(report: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert report.result_sections.read(path) == {}
    sections = {
        "promises": report.Section({"sets": 2, "missed": 0}, "first {x} --> y"),
        "cpu": report.Section(CPU, "quiet"),
        "gpu": report.Section({"run": False}, "not run"),
    }
    report.write(path, sections)
    assert report.result_sections.read(path) == sections
    updated = report.result_sections.read(path) | {"promises": report.Section({"sets": 3, "missed": 1}, "second")}
    last = report.write(path, updated)
    assert report.result_sections.read(path) == updated
    assert last.startswith('RESULT {"promises": {"sets": 3, "missed": 1}, "cpu":')
    assert "| promises kept in 3 sets | 1 broken | DOES NOT HOLD |" in path.read_text()


def test_a_file_without_sections_is_not_overwritten(report: ModuleType) -> None:
    """The results of the H100 were written by hand."""
    with pytest.raises(ValueError, match="no sections of parts; move it away"):
        report.result_sections.read(BENCHMARKS / "results" / "bench-gpu-nvidia-h100-80gb-hbm3.md")


def test_results_of_a_busy_machine_are_not_judged(report: ModuleType) -> None:
    holds, fails = report.bars({"cpu": CPU})[-2:]
    assert holds.endswith("| holds |")
    assert fails.endswith("| DOES NOT HOLD |")
    assert all("NOT JUDGED: others used 90 %" in row for row in report.bars({"cpu": CPU | {"others_share": 0.9}})[-2:])

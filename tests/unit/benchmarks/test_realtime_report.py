"""The page of bench_realtime: a repeated part replaces its own section and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import result_sections
from benchmarks.realtime import report

RESULTS = Path(result_sections.__file__).parent / "results"
CPU = {"zero_miss_ratio": 1.4, "fps_ratio": 0.9, "others_share": 0.01}


def test_a_repeated_part_replaces_its_own_section(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert result_sections.read(path) == {}
    first = {
        "promises": report.Section({"sets": 2, "missed": 0}, "first {x} --> y"),
        "cpu": report.Section(CPU, "quiet"),
        "gpu": report.Section({"run": False}, "not run"),
    }
    report.write(path, first)
    assert result_sections.read(path) == first
    again = result_sections.read(path) | {"promises": report.Section({"sets": 3, "missed": 1}, "second")}
    last = report.write(path, again)
    assert result_sections.read(path) == again
    assert last.startswith('RESULT {"promises": {"sets": 3, "missed": 1}, "cpu":')
    assert "| promises kept in 3 sets | 1 broken | DOES NOT HOLD |" in path.read_text()


def test_a_file_without_sections_is_not_overwritten() -> None:
    """The page of the H100 was written by hand."""
    with pytest.raises(ValueError, match="no sections of parts; move the file away"):
        result_sections.read(RESULTS / "bench-gpu-nvidia-h100-80gb-hbm3.md")


def test_a_busy_machine_is_not_judged() -> None:
    held, failed = report.bars({"cpu": CPU})[-2:]
    assert held.endswith("| holds |")
    assert failed.endswith("| DOES NOT HOLD |")
    assert all(
        "NOT JUDGED: other programs used 90 %" in row for row in report.bars({"cpu": CPU | {"others_share": 0.9}})[-2:]
    )

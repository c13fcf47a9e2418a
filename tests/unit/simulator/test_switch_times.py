"""Assumed durations of a switch, against those that were measured on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium_core.planning.slots.rebalancing import MIGRATION_SECONDS, MIGRATION_SECONDS_PER_GIB
from podium_simulator.system.inputs.scenario import Method
from podium_simulator.system.inputs.switch_times import MIN_SECONDS, switch_method

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "bench-gpu-nvidia-h100-80gb-hbm3.md"


def test_the_rates_are_the_measured_ones() -> None:
    """| trial, GB | first out, s | out, s | GB/s | in, s | GB/s | ..., one row a size."""
    cell = r" ([\d.]+) \|"
    rows = re.findall(rf"^\|{cell * 8}$", MEASURED.read_text(), re.MULTILINE)
    assert len(rows) == 4
    for size, _, out, _, back, *_ in rows:
        found = switch_method("cuda-checkpoint", int(float(size) * 1e9), None, None, 0.2)
        assert found.suspend == pytest.approx(float(out), rel=1 / 6)
        assert found.resume == pytest.approx(float(back), rel=1 / 6)


def test_defaults_and_given_durations() -> None:
    assert switch_method("freeze", 10**9, None, 3.0, 0.2) == Method("freeze", 0.2, 3.0)
    assert switch_method("cuda-checkpoint", None, None, None, 4.0) == Method(
        "cuda-checkpoint", 4.0, 4.0, keeps_memory=False
    )
    assert switch_method("cuda-checkpoint", 10**12, 1.0, 2.0, 4.0) == Method(
        "cuda-checkpoint", 1.0, 2.0, keeps_memory=False
    )
    small = switch_method("cuda-checkpoint", 1000, None, None, 4.0)
    assert (small.suspend, small.resume) == (MIN_SECONDS, MIN_SECONDS)


def test_live_migration_suspends_with_cuda_checkpoint_and_takes_the_planners_estimate() -> None:
    found, suspended = (
        switch_method(name, 3 * 2**30, None, None, 0.2) for name in ("container-checkpoint", "cuda-checkpoint")
    )
    assert (found.suspend, found.resume, found.keeps_memory) == (suspended.suspend, suspended.resume, False)
    assert (found.migrates, found.migration_seconds) == (True, MIGRATION_SECONDS + 3 * MIGRATION_SECONDS_PER_GIB)
    assert (suspended.migrates, suspended.migration_seconds) == (False, 0.0)

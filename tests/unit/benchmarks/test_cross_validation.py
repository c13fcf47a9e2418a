"""The settings of the envelope that the cross-validation compares."""

from __future__ import annotations

from benchmarks.hpo.cross_validation import FACTORS, GRID, HYSTERESES, SHIPPED


def test_each_setting_differs_from_the_shipped_one_in_one_constant() -> None:
    assert GRID[0] == SHIPPED
    assert len(GRID) == len(set(GRID)) == len(HYSTERESES) + sum(map(len, FACTORS.values()))

"""The benchmark's envelope policy with refitted widths instead of the shipped ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from podium_core.curves.final_value import TABLE, interval_widths
from podium_core.policies.envelope import undecided

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SHARES = np.array([0.03, 0.1, 0.4, 0.8])


@pytest.fixture
def refitted(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    load_script(BENCHMARKS / "hpo_wrapped.py")  # hpo_refitted imports it by name
    return load_script(BENCHMARKS / "hpo_refitted.py")


def test_refitted_widths_apply_only_within_the_context(refitted: ModuleType) -> None:
    shipped = undecided(SHARES, 0.1)
    other = TABLE * np.linspace(1.0, 3.0, len(TABLE))[:, None]
    with refitted.reading(interval_widths(other)):
        inside = undecided(SHARES, 0.1)
    assert inside[0] == shipped[0] == 1.0
    assert np.all(inside[2:] < shipped[2:]), "wider forecasts leave less undecided after the warm-up"
    assert undecided(SHARES, 0.1).tolist() == shipped.tolist()


def test_the_shipped_widths_change_nothing(refitted: ModuleType) -> None:
    shipped = undecided(SHARES, 0.03)
    with refitted.reading(interval_widths(TABLE)):
        assert undecided(SHARES, 0.03).tolist() == shipped.tolist()

"""The benchmark's envelope with other widths than the shipped ones."""

from __future__ import annotations

import numpy as np
from benchmarks.hpo import envelope_variants

from podium_core.curves.prediction.multiples import TABLE, interval_widths, undecided

SHARES = np.array([0.03, 0.1, 0.4, 0.8])


def test_other_widths_are_read_within_the_block_and_not_after_it() -> None:
    shipped = undecided(SHARES, 0.1)
    other = TABLE * np.linspace(1.0, 3.0, len(TABLE))[:, None]
    with envelope_variants.reading(interval_widths(other)):
        inside = undecided(SHARES, 0.1)
    assert inside[0] == shipped[0] == 1.0
    assert np.all(inside[2:] < shipped[2:]), "the remaining range was wider after the warm-up"
    assert undecided(SHARES, 0.1).tolist() == shipped.tolist()


def test_shipped_widths_change_nothing() -> None:
    shipped = undecided(SHARES, 0.03)
    with envelope_variants.reading(interval_widths(TABLE)):
        assert undecided(SHARES, 0.03).tolist() == shipped.tolist()

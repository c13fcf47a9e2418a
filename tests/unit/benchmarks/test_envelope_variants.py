"""The benchmark's envelope with other widths than the shipped ones."""

from __future__ import annotations

import numpy as np
from benchmarks.hpo import envelope_variants, report, runs, until_best

from podium_core.curves.prediction.multiples import TABLE, interval_widths, undecided
from podium_core.policies import envelope

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


def test_until_best_measures_the_envelope_with_and_without_similar_configurations() -> None:
    shipped = getattr(envelope, envelope_variants.RELATIVE_VALUE)
    outcome: dict[str, object] = {}
    page = until_best.until_best(runs.Source((), "random", 8), 2, 1, 1, outcome)
    figures = outcome["digits"]
    assert isinstance(figures, dict)
    assert set(figures) == {until_best.NAME, until_best.ALIKE}
    assert f"**{report.FAMILIES['digits']}**, without similar configurations" in page
    assert getattr(envelope, envelope_variants.RELATIVE_VALUE) is shipped

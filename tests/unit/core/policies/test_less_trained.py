"""The kept lags behind less trained trials equal their definition, to the last bit."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from podium_core.curves.aligned_curves import AlignedCurves, align
from podium_core.curves.curve_table import CurveTable, curves_of_job, empty_cache
from podium_core.domain.snapshot import JobView, TrialView
from podium_core.policies.envelope_constants import Constants
from podium_core.policies.less_trained import LagsBehindLessTrained
from podium_core.testing.builders import make_job, make_snapshot, make_trial

CONSTANTS = Constants()
HORIZON = 16.0
TRIALS = 6
VALUES = st.one_of(st.floats(-2.0, 2.0), st.sampled_from([0.5, 0.5, math.nan, 1e308, -1e308]))


def by_definition(table: AlignedCurves, lost: NDArray[np.bool_]) -> list[float]:
    found = [-math.inf] * len(table.column)
    for column in range(len(table.grid) - 1):  # no trial is above the last column
        standing = [row for row in range(len(table.column)) if table.column[row] == column and not lost[row]]
        if not standing:
            continue
        leader = max(standing, key=lambda row: (table.best[row, column], -row))
        ahead, its_gain = table.best[leader, column], table.gain[leader, column]
        for row in range(len(table.column)):
            own, gain = table.best[row, column], table.gain[row, column]
            if table.column[row] <= column or not own > -np.inf:
                continue
            with np.errstate(all="ignore"):
                largest = max(gain, its_gain, table.columns.leader_gain[column])
                unit = (largest + 1e-12) * table.columns.gain_ratio[column] ** CONSTANTS.spread
                lag = ((ahead - own) + (its_gain - gain) * CONSTANTS.slope) / unit
            if lag > 0.0:
                found[row] = max(found[row], lag)
    return found


@given(st.lists(st.tuples(st.integers(0, TRIALS - 1), VALUES, st.integers(1, 3)), min_size=1, max_size=25))
def test_kept_and_new_lags_equal_their_definition(reports: list[tuple[int, float, int]]) -> None:
    """One report per tick. numpy's power may differ in the last bit between one number and an array."""
    job = make_job(max_steps=HORIZON, max_trials=TRIALS)
    shown: list[list[float]] = [[] for _ in range(TRIALS)]
    with empty_cache():
        for number, value, evaluations in reports:
            shown[number] = (shown[number] + [value] * evaluations)[: int(HORIZON)]
            seen, table = _table([make_trial(n, values=values) for n, values in enumerate(shown)], job)
            kept = table.cached("lags", lambda table=table: LagsBehindLessTrained(table, CONSTANTS))
            with np.errstate(all="ignore"):
                found = kept.largest_lag(table.standings(), seen.diverged)
                fresh = LagsBehindLessTrained(table, CONSTANTS).largest_lag(table.standings(), seen.diverged)
            assert found.tolist() == fresh.tolist()
            np.testing.assert_allclose(found, by_definition(table, seen.diverged), rtol=1e-12)


def _table(trials: list[TrialView], job: JobView) -> tuple[CurveTable, AlignedCurves]:
    seen = curves_of_job(job, trials, make_snapshot(jobs=[job], trials=trials))
    return seen, align(seen, HORIZON)

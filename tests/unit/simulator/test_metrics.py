"""Metrics of replays whose values are not finite, or as large as numbers can be."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import pytest

from podium_cli.views import simulate as simulate_view
from podium_cli.views import system as system_view
from podium_simulator.replay.comparison import compare
from podium_simulator.replay.history import Evaluation
from podium_simulator.replay.metrics import near_best_value, regret, start_value
from podium_simulator.replay.samples import Machine, Sample
from podium_simulator.system.inputs.searches import even_nodes
from podium_simulator.system.results import comparison as system_comparison
from podium_simulator.traces.trace import RecordedTrial, Trace

WORST = -sys.float_info.max  # what stands for NaN in a curve
LATE = [(WORST, 0.5, 0.9), (WORST, 0.5, 0.6), (WORST, 0.5, 0.7)]
HUGE = [(-1.7e308, -1.6e308, 1.7e308), (-1.7e308, 0.0, 0.0), (-1.7e308, 0.0, 0.0)]


def recording(*rows: Sequence[float]) -> Trace:
    """Return a trace with an evaluation every 10 s."""
    times = (10.0, 20.0, 30.0)
    trials = tuple(RecordedTrial(f"t{i}", {}, times[: len(row)], tuple(row)) for i, row in enumerate(rows))
    return Trace("own", "own", "m", True, None, trials)


def pool(*rows: Sequence[float]) -> Sample:
    return Sample("own", "own", 0, True, None, recording(*rows).trials)


STARTS = [
    (LATE, 0.5),
    ([(0.1, 0.9), (0.3, 0.2)], 0.2),
    ([(0.1, 0.9), (WORST, WORST), (0.3, 0.2)], 0.2),
    ([(1.7e308,), (1.6e308,)], 1.65e308),
    ([(WORST,), (WORST, math.nan)], None),
]


@pytest.mark.parametrize(("rows", "start"), STARTS, ids=["late", "finite", "one has none", "huge", "none at all"])
def test_a_search_begins_at_the_median_of_the_first_finite_values(
    rows: list[tuple[float, ...]], start: float | None
) -> None:
    found = start_value(pool(*rows))
    assert found is None if start is None else found == pytest.approx(start)


def test_the_near_best_value_is_finite() -> None:
    assert near_best_value(pool(*LATE)) == pytest.approx(0.9 - 0.01 * 0.4)
    assert near_best_value(pool(*HUGE)) == pytest.approx(1.7e308 - 3.4e306)
    assert near_best_value(pool((WORST,))) is None


@pytest.mark.parametrize("rows", [LATE, HUGE], ids=["late", "huge"])
def test_regret_does_not_end_at_the_first_finite_value(rows: list[tuple[float, ...]]) -> None:
    """No value until 20 s, then a smaller one, then the best at 30 s, of 40 s."""
    middle = 0.5 if rows is LATE else 0.0
    reached = [Evaluation(10.0, 0, -math.inf), Evaluation(20.0, 1, middle), Evaluation(30.0, 0, rows[0][2])]
    share = 1.0 if rows is LATE else 0.5  # of the gap that is left from 20 s to 30 s
    assert regret(pool(*rows), reached, 40.0) == pytest.approx((20.0 + 10.0 * share) / 40.0)
    assert regret(pool((WORST,)), [Evaluation(10.0, 0, -math.inf)], 40.0) == 1.0


def test_nan_does_not_count_as_near_the_best() -> None:
    found = compare(recording(*[(WORST, WORST, 0.9)] * 3), ["envelope"], Machine(4), 1, 3)
    assert [found.typical(name, "time_to_near_best") for name in found.scores] == [30.0, 30.0]
    assert "NEAR" in simulate_view.table(found).columns[4].header


def test_without_finite_values_near_best_is_unknown() -> None:
    found = compare(recording((WORST, WORST), (WORST,)), [], Machine(1), 1, 2)
    assert found.typical("fifo", "time_to_near_best") is None
    assert found.typical("fifo", "mean_regret") == 1.0


def test_the_same_holds_in_the_simulated_system() -> None:
    place = system_comparison.ClusterSpec(nodes=even_nodes(4, 1, 4, 0))
    (late,) = system_comparison.compare(recording(*[(WORST, WORST, 0.9)] * 3), [], place, 1, 3).runs["fifo"]
    assert late.score.near_best is not None
    assert late.score.near_best >= 30.0
    none = system_comparison.compare(recording((WORST, WORST), (WORST,)), [], place, 1, 2)
    assert none.runs["fifo"][0].score.near_best is None
    assert system_view.rows(none)[0][2] == "–"

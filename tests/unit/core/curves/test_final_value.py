"""Predicted final values: the interval closes with training and stays within what the job has shown."""

from __future__ import annotations

import numpy as np
import pytest

from podium_core.curves.prediction.final_value import MIN_COMPLETED, predictions, upper_bounds
from podium_core.curves.prediction.multiples import (
    DOUBLINGS_LEFT,
    LEVELS,
    PRIOR_WEIGHT,
    TABLE,
    level_probabilities,
    mix_with_completed,
    table_quantiles,
)
from podium_core.domain.phase import TrialPhase as P
from podium_core.domain.snapshot import TrialView
from podium_core.testing.builders import make_job, make_snapshot, make_trial

STEPS = 64
NOTHING = np.empty(0)


def rising(end: float, steps: int) -> list[float]:
    """Accuracies that reach `end` after STEPS; half of the remaining gap is gained in the last doubling."""
    return [end * (1.0 - 0.5 * (1.0 - step / STEPS)) for step in range(1, steps + 1)]


def high(values: list[float], others: list[TrialView], maximize: bool = True) -> float:
    """Return the upper end of the prediction (larger is better)."""
    sign = 1.0 if maximize else -1.0
    one = make_trial(99, values=[sign * v for v in values], phase=P.RUNNING, gpus=["gpu-0"])
    job = make_job(maximize=maximize, max_steps=float(STEPS))
    found = predictions(job, make_snapshot(jobs=[job], trials=[*others, one]))[one.key]
    return found.high if maximize else -found.low


def completed(ends: list[float], maximize: bool = True) -> list[TrialView]:
    sign = 1.0 if maximize else -1.0
    return [
        make_trial(i, values=[sign * v for v in rising(end, STEPS)], phase=P.SUCCEEDED) for i, end in enumerate(ends)
    ]


def test_a_trial_without_doublings_left_gains_nothing() -> None:
    found = table_quantiles(np.array([-1.0, 0.0, DOUBLINGS_LEFT[0] / 2, DOUBLINGS_LEFT[0]]))
    assert not found[:2].any()
    assert found[2] == pytest.approx(TABLE[0] / 2)
    assert found[3] == pytest.approx(TABLE[0])


@pytest.mark.parametrize("others", [[], completed([0.5, 0.7, 0.9])])
def test_a_trial_at_its_last_step_ends_where_it_is(others: list[TrialView]) -> None:
    job = make_job(maximize=True, max_steps=float(STEPS))
    one = make_trial(99, values=rising(0.8, STEPS), phase=P.RUNNING, gpus=["gpu-0"])  # its end is not yet reported
    found = predictions(job, make_snapshot(jobs=[job], trials=[*others, one]))[one.key]
    assert (found.low, found.median, found.high) == pytest.approx((0.8, 0.8, 0.8))


@pytest.mark.parametrize("maximize", [True, False])
def test_a_fast_gain_does_not_exceed_the_spread_of_the_completed_trials(maximize: bool) -> None:
    others = completed([0.90 + 0.01 * i for i in range(MIN_COMPLETED)], maximize)
    reached = high([0.0, 0.0, 0.0, 0.8], others, maximize)  # four doublings left, and 0.8 over the last
    assert 0.97 <= reached <= 0.97 + (0.97 - 0.935) + 1e-9


def test_without_completed_trials_equal_training_bounds_a_settled_trial() -> None:
    others = [make_trial(i, values=[0.1 * i + 0.02 * s for s in range(8)], phase=P.RUNNING) for i in range(6)]
    values = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6]  # three doublings of values, the last a leap
    assert high(values, others) <= 0.64 + 0.5 * 0.64 + 1e-9  # the best there 0.64, the worst so far 0


def test_few_completed_trials_set_no_bound() -> None:
    ceiling = np.array([np.inf])
    ends = np.linspace(0.5, 0.6, MIN_COMPLETED)
    assert upper_bounds(np.zeros(1), ceiling, NOTHING).tolist() == [np.inf]
    assert upper_bounds(np.zeros(1), ceiling, ends[1:]).tolist() == [np.inf]
    assert upper_bounds(np.zeros(1), ceiling, ends) == pytest.approx([0.65])
    assert upper_bounds(np.zeros(1), ceiling, ends, leader=0.6) == pytest.approx([0.65])
    assert upper_bounds(np.zeros(1), ceiling, ends, leader=0.7).tolist() == [np.inf], (
        "an unfinished trial is beyond them all"
    )


def test_a_reached_value_is_within_the_bounds() -> None:
    ends = np.linspace(0.5, 0.6, MIN_COMPLETED)
    # a ceiling below what others reached, one below its own value; a trial that leads the completed ones is bounded by
    # neither
    found = upper_bounds(np.array([0.1, 0.3, 0.7]), np.array([0.2, 0.2, np.inf]), ends)
    assert found.tolist() == [0.6, 0.6, np.inf]
    assert upper_bounds(np.array([0.3]), np.array([0.2]), NOTHING).tolist() == [0.3]
    assert np.all(
        upper_bounds(np.zeros(1), np.array([np.inf]), 1.7e308 * np.linspace(-1, 1, MIN_COMPLETED)) > 0
    )  # no overflow


def test_completed_trials_shift_the_table_by_their_number() -> None:
    table = np.linspace(0.0, 1.0, len(LEVELS))[None]
    middle = LEVELS.index(0.5)
    assert mix_with_completed(table, NOTHING) is table
    found = [
        float(mix_with_completed(table, np.full(n, 10.0))[0, middle])
        for n in (1, int(PRIOR_WEIGHT), 8 * int(PRIOR_WEIGHT), 1000)
    ]
    assert found == sorted(found)
    assert found[0] < 1.0
    assert found[-2:] == pytest.approx([10.0, 10.0])
    tails = mix_with_completed(table, np.array([0.4, 0.5, 0.5, 0.6]))[0]
    assert tails[0] < 0.2, "the table's tails stay while few have completed"
    assert tails[-1] > 0.8
    assert np.all(np.diff(tails) >= 0.0)
    assert np.isfinite(mix_with_completed(table, np.array([np.inf, -np.inf, 0.3]))).all()


def test_levels_share_the_probability() -> None:
    assert level_probabilities().sum() == pytest.approx(1.0)
    assert level_probabilities()[LEVELS.index(0.5)] == pytest.approx(0.1)
    assert level_probabilities()[LEVELS.index(0.95)] == pytest.approx((0.975 - 0.9) / 2)


def test_many_completed_trials_are_represented_by_their_quantiles() -> None:
    seen = np.random.default_rng(1).exponential(size=3000)
    assert mix_with_completed(TABLE, seen) == pytest.approx(
        np.broadcast_to(np.quantile(seen, LEVELS), TABLE.shape), rel=0.1, abs=0.01
    )

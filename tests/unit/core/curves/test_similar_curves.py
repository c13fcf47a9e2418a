"""Predictions from similar curves: two families of curves, of which the slower one ends best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.curves.aligned_curves import align
from podium_core.curves.curve_table import CurveTable
from podium_core.curves.prediction.similar_curves import MAX_COMPLETED, MIN_COMPLETED, rank_columns
from podium_core.curves.prediction.similar_curves_cache import Predictions, predict_by_similar_curves
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import TrialView
from podium_core.policies.envelope import Envelope
from podium_core.testing.builders import make_job, make_snapshot, make_trial

STEPS = 32
PROMISING = [0.5 + 0.002 * k for k in range(STEPS)]  # ahead until three quarters of the training
LATE = [0.3 + 0.01 * k for k in range(STEPS)]
VALUES = st.one_of(st.integers(0, 4).map(float), st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e308]))


def completed(number: int, curve: list[float]) -> TrialView:
    shifted = [value + 1e-4 * number for value in curve]
    return make_trial(number, values=shifted, phase=TrialPhase.SUCCEEDED, gpu_seconds=float(STEPS))


def begun(number: int, curve: list[float], steps: int = 8) -> TrialView:
    shifted = [value + 4e-4 for value in curve[:steps]]  # in the middle of its family
    return make_trial(number, values=shifted, phase=TrialPhase.SUSPENDED, gpu_seconds=float(steps))


class Search:
    """One job's curve table and what is computed from it, kept from cycle to cycle."""

    def __init__(self, maximize: bool = True) -> None:
        self.job, self.table = make_job(max_steps=float(STEPS), maximize=maximize), CurveTable(maximize)

    def ask(self, trials: list[TrialView]) -> Predictions | None:
        self.table.update(self.job, trials, make_snapshot(jobs=[self.job], trials=trials))
        table = align(self.table, float(STEPS))
        return predict_by_similar_curves(self.table, table, ~self.table.done)


def ask(trials: list[TrialView]) -> Predictions | None:
    return Search().ask(trials)


def families(each: int) -> list[TrialView]:
    return [completed(i, LATE if i % 2 else PROMISING) for i in range(2 * each)]


def test_a_curve_like_those_that_rose_late_is_expected_to_end_as_they_did() -> None:
    found = ask([*families(4), begun(8, PROMISING), begun(9, LATE)])
    assert found is not None
    assert found.predicted.tolist() == [False] * 8 + [True] * 2
    assert found.chance[9] > 3.0 * found.chance[8]  # although it stands at half the value
    assert found.skill > 0.2


def test_the_policy_uses_similar_curves_where_early_order_was_not_the_final_order() -> None:
    trials = [*families(4), begun(8, PROMISING), begun(9, LATE)]
    job = make_job(policy="envelope", max_steps=float(STEPS))
    ranked = Envelope().rank(job, trials[8:], make_snapshot(jobs=[job], trials=trials))
    assert [entry.trial.name for entry in ranked] == ["job-9", "job-8"]


def test_a_curve_unlike_all_others_gets_the_prior() -> None:
    """Its probability is that of exceeding the normal score of the best of n, (n - 1/2) / n: 1 / 2n."""
    stranger = [0.9, 0.1, *([0.9] * 6)]
    found = ask([*families(4), begun(8, PROMISING), make_trial(9, values=stranger, phase=TrialPhase.SUSPENDED)])
    assert found is not None
    assert found.chance[9] == pytest.approx(0.5 / 8, rel=0.05)


def test_curves_without_information_have_no_skill() -> None:
    """All curves are equal until the end, which differs for each."""
    last = [float(value) for value in np.random.default_rng(0).permutation(12)]
    trials = [completed(i, [*LATE[:-1], last[i]]) for i in range(12)]
    found = ask([*trials, begun(12, LATE), begun(13, LATE)])
    assert found is not None
    assert found.skill < 0.1


@pytest.mark.parametrize(("count", "answers"), [(MIN_COMPLETED - 1, False), (MIN_COMPLETED, True)])
def test_a_few_completed_trials_are_too_few(count: int, answers: bool) -> None:
    trials = [*(completed(i, LATE if i % 2 else PROMISING) for i in range(count)), begun(count, LATE)]
    assert (ask(trials) is not None) is answers


def test_the_number_of_completed_trials_that_are_used_is_limited() -> None:
    trials = [*families(MAX_COMPLETED), begun(2 * MAX_COMPLETED, PROMISING), begun(2 * MAX_COMPLETED + 1, LATE)]
    found = ask(trials)
    assert found is not None
    assert found.chance[-1] > found.chance[-2]


def test_the_largest_values_are_compared_as_all_others() -> None:
    values = [-1.7e308, -1.6e308, 1.6e308, 1.65e308, 1.7e308]
    ended = [make_trial(i, values=[v] * STEPS, phase=TrialPhase.SUCCEEDED) for i, v in enumerate(values)]
    live = [make_trial(5 + i, values=[v] * 8, phase=TrialPhase.SUSPENDED) for i, v in enumerate([-1.7e308, 1.7e308])]
    found = ask([*ended, *live])
    assert found is not None
    assert 0.0 < found.chance[5] < found.chance[6] < 1.0


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=MIN_COMPLETED, max_size=12, unique=True),
    st.lists(st.floats(-3e6, 3e6), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_a_rank_is_interpolated_between_the_completed_trials(ended: list[float], asked: list[float]) -> None:
    others = np.array([*ended, -np.inf])
    nothing, column = rank_columns(np.stack([np.full(len(others), np.nan), others], axis=1))
    assert nothing is None
    assert column is not None
    expected = np.interp(asked, column.values, column.ranks)
    np.testing.assert_allclose([column.rank(value) for value in asked], expected, atol=1e-9)
    assert [column.rank(value) for value in ended] == column.own[:-1].tolist()
    assert column.rank(float("nan")) == column.rank(-np.inf) == column.own[-1] == column.ranks[0]


@given(
    st.lists(
        st.tuples(st.lists(VALUES, max_size=STEPS), st.sampled_from([True, True, False]), st.integers(0, 3)),
        min_size=6,
        max_size=12,
    ),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_a_kept_cache_equals_a_new_one(history: list[tuple[list[float], bool, int]], maximize: bool) -> None:
    """Trials grow and complete one by one: no bit depends on when, or with which others, a row was computed."""
    kept = Search(maximize)
    for cycle in range(4):
        trials = [
            make_trial(i, values=curve[: 8 * (cycle + 1)], phase=TrialPhase.SUCCEEDED if over else TrialPhase.RUNNING)
            for i, (curve, ends, when) in enumerate(history)
            for over in [ends and cycle >= when]
        ]
        one, new = kept.ask(trials), Search(maximize).ask(trials)
        assert (one is None) == (new is None)
        if one is not None and new is not None:
            np.testing.assert_array_equal(one.predicted, new.predicted)
            np.testing.assert_array_equal(one.chance, new.chance)
            assert one.skill == new.skill
            assert np.all((one.chance[one.predicted] > 0.0) & (one.chance[one.predicted] <= 1.0 + 1e-6))


def test_a_cache_with_reordered_rows_equals_a_new_one() -> None:
    """A completed trial is deleted and another one completes in its row, with an equally long curve."""
    search, live = Search(), [begun(9, LATE), begun(10, PROMISING)]
    before = [completed(number, LATE if number % 2 else PROMISING) for number in range(MIN_COMPLETED)]
    still = begun(4, [0.9 - 0.01 * k for k in range(STEPS)], STEPS)
    assert search.ask([*before, still, *live]) is not None
    assert search.ask([*before[1:], still, *live]) is None, "too few are left"
    after = [*before[1:], completed(4, [0.9 - 0.01 * k for k in range(STEPS)]), *live]
    kept, new = search.ask(after), ask(after)
    assert kept is not None
    assert new is not None
    np.testing.assert_array_equal(kept.chance, new.chance)
    assert kept.skill == new.skill

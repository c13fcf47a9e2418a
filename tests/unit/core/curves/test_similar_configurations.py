"""Similar configurations: repeats, close numbers, and no effect where nothing is similar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.prediction.similar_configurations import KAPPA, MAX_NEIGHBOURS, parameter_ranks, relative_value
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import Scalar, TrialView
from podium_core.policies.registry import create
from podium_core.testing.builders import make_job, make_snapshot, make_trial

Tries = dict[str, Scalar]


def opened(number: int, tries: Tries) -> TrialView:
    return make_trial(number, values=[0.5], phase=TrialPhase.SUSPENDED, gpu_seconds=1.0, parameters=tries)


def asked(
    old: Sequence[Tries], worth: Sequence[float], new: Sequence[Tries], trained: Sequence[float] = ()
) -> list[float]:
    """Return each new trial's relative value, given started trials with these values that are complete by default."""
    trials = [opened(i, tries) for i, tries in enumerate(old)]
    trials += [make_trial(len(old) + i, phase=TrialPhase.GATED, parameters=tries) for i, tries in enumerate(new)]
    job, curves = make_job(), CurveTable(maximize=True)
    curves.update(job, trials, make_snapshot(jobs=[job], trials=trials))
    values = np.array([*worth, *[0.0] * len(new)])
    shares = np.array([*(trained or [1.0] * len(old)), *[0.0] * len(new)])
    return relative_value(curves, ~curves.started, curves.started, values, shares).tolist()


def test_a_repeat_has_the_value_of_its_equals_and_other_trials_the_mean() -> None:
    old: list[Tries] = [{"optimizer": "adam"}, {"optimizer": "adam"}, {"optimizer": "sgd"}]
    found = asked(old, [0.9, 0.9, 0.0], [{"optimizer": "adam"}, {"optimizer": "sgd"}, {"optimizer": "lion"}])
    assert found == pytest.approx([(2 * 1.5 + KAPPA) / (2 + KAPPA), KAPPA / (1 + KAPPA), 1.0])


def test_a_trial_that_has_just_started_has_little_weight() -> None:
    old: list[Tries] = [{"a": 1}, {"a": 2}]
    new: list[Tries] = [{"a": 2}]
    assert asked(old, [0.9, 0.0], new) == pytest.approx([KAPPA / (1 + KAPPA)])
    assert asked(old, [0.9, 0.0], new, [1.0, 0.05]) == pytest.approx([KAPPA / (0.05 + KAPPA)])


def test_close_numbers_are_similar_on_any_scale() -> None:
    old: list[Tries] = [{"lr": 10.0**-power} for power in range(10)]
    new: list[Tries] = [{"lr": 10.0**-power} for power in (8.5, 4.5, 0.5)]
    good, middle, bad = asked(old, [0.0] * 8 + [1.0] * 2, new)
    assert good > 1.5 > 0.8 > middle
    assert middle == pytest.approx(bad, abs=0.1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({"lr": 0.1}, {"lr": 0.1}),  # all try the same: nothing tells them apart
        ({"lr": 0.1, "seed": 1}, {"momentum": 0.9}),
        ({"lr": True}, {"lr": "True"}),
    ],
)
def test_without_similar_configurations_the_factor_is_one(old: Tries, new: Tries) -> None:
    assert asked([old, old], [0.9, 0.1], [new]) == pytest.approx([1.0])


def test_without_values_the_factor_is_one() -> None:
    assert asked([{"a": 1}, {"a": 2}], [0.0, 0.0], [{"a": 1}]) == [1.0]
    assert asked([], [], [{"a": 1}]) == [1.0]


def test_the_number_of_neighbours_is_limited() -> None:
    old: list[Tries] = [{"a": i % 2} for i in range(4 * MAX_NEIGHBOURS)]
    good, bad = asked(old, [float(i % 2) for i in range(4 * MAX_NEIGHBOURS)], [{"a": 1}, {"a": 0}])
    assert good > 1.9 > 0.1 > bad


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["a", "b", "1"]),
)


@given(st.lists(st.dictionaries(st.sampled_from(["x", "y", "z"]), SCALARS), max_size=8))
def test_ranks_are_finite_and_equal_for_equal_values(given_: list[Tries]) -> None:
    found = parameter_ranks([tuple(one.items()) for one in given_])
    assert len(found) == len(given_)
    assert np.isfinite(found).all()
    assert parameter_ranks([tuple(reversed(one.items())) for one in given_]).tolist() == found.tolist(), (
        "names have no order"
    )


def test_envelope_starts_repeats_of_the_best_first() -> None:
    tries: list[Tries] = [{"lr": 0.1}, {"lr": 0.2}]
    trials = [
        make_trial(n, values=[v * (1 + 0.01 * s) for s in range(8)], phase=TrialPhase.SUCCEEDED, gpu_seconds=8.0,
                   parameters=tries[n])
        for n, v in enumerate((0.2, 0.9))
    ]  # fmt: skip
    trials += [make_trial(n, phase=TrialPhase.GATED, parameters=tries[n % 2]) for n in range(2, 6)]
    job = make_job(policy="envelope", max_steps=8.0)
    ranking = create("envelope", {}).rank(job, trials, make_snapshot(jobs=[job], trials=trials))
    order = [ranked.trial.name for ranked in ranking]
    assert [name for name in order if name[-1] in "2345"] == ["job-3", "job-5", "job-2", "job-4"]

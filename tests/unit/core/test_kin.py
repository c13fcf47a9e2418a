"""What the parameters of opened trials tell of new ones: repeats, near numbers, and nothing where nobody is alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.curve_table import CurveTable
from podium_core.curves.similar_configurations import KAPPA, MAX_NEIGHBOURS, parameter_ranks, relative_value
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
    """Of each new trial, beside opened ones of such worth, which are through unless told otherwise."""
    trials = [opened(i, tries) for i, tries in enumerate(old)]
    trials += [make_trial(len(old) + i, phase=TrialPhase.GATED, parameters=tries) for i, tries in enumerate(new)]
    job, curves = make_job(), CurveTable(maximize=True)
    curves.update(job, trials, make_snapshot(jobs=[job], trials=trials))
    values = np.array([*worth, *[0.0] * len(new)])
    shares = np.array([*(trained or [1.0] * len(old)), *[0.0] * len(new)])
    return relative_value(curves, ~curves.started, curves.started, values, shares).tolist()


def test_a_repeat_is_worth_what_its_likes_were_and_a_stranger_what_all_were() -> None:
    old: list[Tries] = [{"optimizer": "adam"}, {"optimizer": "adam"}, {"optimizer": "sgd"}]
    found = asked(old, [0.9, 0.9, 0.0], [{"optimizer": "adam"}, {"optimizer": "sgd"}, {"optimizer": "lion"}])
    assert found == pytest.approx([(2 * 1.5 + KAPPA) / (2 + KAPPA), KAPPA / (1 + KAPPA), 1.0])


def test_one_that_has_just_begun_says_little_of_its_kin() -> None:
    old: list[Tries] = [{"a": 1}, {"a": 2}]
    new: list[Tries] = [{"a": 2}]
    assert asked(old, [0.9, 0.0], new) == pytest.approx([KAPPA / (1 + KAPPA)])
    assert asked(old, [0.9, 0.0], new, [1.0, 0.05]) == pytest.approx([KAPPA / (0.05 + KAPPA)])


def test_near_numbers_are_alike_on_any_scale() -> None:
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
def test_nothing_is_said_where_nothing_is_alike(old: Tries, new: Tries) -> None:
    assert asked([old, old], [0.9, 0.1], [new]) == pytest.approx([1.0])


def test_without_worth_nothing_is_said() -> None:
    assert asked([{"a": 1}, {"a": 2}], [0.0, 0.0], [{"a": 1}]) == [1.0]
    assert asked([], [], [{"a": 1}]) == [1.0]


def test_of_many_some_are_asked() -> None:
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
def test_places_are_finite_and_equal_for_equals(given_: list[Tries]) -> None:
    found = parameter_ranks([tuple(one.items()) for one in given_])
    assert len(found) == len(given_)
    assert np.isfinite(found).all()
    assert parameter_ranks([tuple(reversed(one.items())) for one in given_]).tolist() == found.tolist(), (
        "names have no order"
    )


def test_envelope_opens_the_repeats_of_the_best_first() -> None:
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

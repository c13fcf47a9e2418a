"""Fronts and crowding distances against their definitions, which compare every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.objectives.sorting import Floats, best_first, crowding_distances, non_dominated_fronts

few = st.integers(0, 4).map(float)  # ties are frequent
numbers = st.one_of(few, st.floats(-1e308, 1e308), st.sampled_from([-0.0, 1e308, -1e308, 5e-324]))
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=40).map(np.array)
)


def dominates(a: Floats, b: Floats) -> bool:
    return bool((a >= b).all() and (a > b).any())


def peeled(values: Floats) -> list[int]:
    """Return the fronts by the definition: remove what no remaining row dominates, again and again."""
    left, fronts, front = set(range(len(values))), [0] * len(values), 0
    while left:
        best = {row for row in left if not any(dominates(values[other], values[row]) for other in left)}
        for row in best:
            fronts[row] = front
        left -= best
        front += 1
    return fronts


@given(tables)
def test_fronts_are_those_of_the_definition(values: Floats) -> None:
    assert non_dominated_fronts(values).tolist() == peeled(values)


@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(values: Floats, random: np.random.Generator) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    assert non_dominated_fronts(values[order]).tolist() == non_dominated_fronts(values)[order].tolist()


@given(tables)
def test_the_best_of_each_objective_is_in_the_first_front_and_at_its_end(values: Floats) -> None:
    fronts = non_dominated_fronts(values)
    distances = crowding_distances(values, fronts)
    assert not np.isnan(distances).any()
    assert (distances >= 0.0).all()
    for column in range(values.shape[1]):
        rows = np.flatnonzero(values[:, column] == values[:, column].max())
        assert (fronts[rows] == 0).any()
    for front in np.unique(fronts):
        inside = values[fronts == front]
        if (inside != inside[0]).any():
            assert np.isinf(distances[fronts == front]).any()


def test_crowding_is_the_share_of_the_range_between_the_neighbours() -> None:
    values = np.array([[0.0, 10.0], [1.0, 8.0], [3.0, 5.0], [4.0, 0.0]])
    distances = crowding_distances(values, non_dominated_fronts(values))
    assert distances.tolist() == pytest.approx([np.inf, 3 / 4 + 5 / 10, 3 / 4 + 8 / 10, np.inf])


def test_an_objective_without_a_difference_adds_nothing_and_a_front_of_two_is_not_crowded() -> None:
    values = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    fronts = non_dominated_fronts(values)
    assert fronts.tolist() == [0, 0, 0, 1, 1]
    assert crowding_distances(values, fronts).tolist() == [0.0, 0.0, 0.0, np.inf, np.inf]


def test_the_best_are_first_by_front_then_by_crowding_then_by_row() -> None:
    fronts, crowding = np.array([1, 0, 0, 0]), np.array([np.inf, 0.5, np.inf, 0.5])
    assert best_first(fronts, crowding).tolist() == [2, 1, 3, 0]


def test_one_objective_ranks_by_value() -> None:
    assert non_dominated_fronts(np.array([[1.0], [3.0], [2.0], [3.0]])).tolist() == [2, 0, 1, 0]


def test_no_rows() -> None:
    assert non_dominated_fronts(np.zeros((0, 2))).tolist() == []
    assert crowding_distances(np.zeros((0, 2)), np.zeros(0, dtype=np.intp)).tolist() == []

"""The selection by score, cost and place does not depend on the order of the request, and contains the favourite."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.scores import rank
from podium_extender.verbs.node_selection import top_k

COSTS = st.lists(
    st.one_of(st.just(math.nan), st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)), min_size=1, max_size=30
)


@settings(deadline=None)
@given(costs=COSTS, most=st.integers(1, 31), favourite=st.booleans(), shuffle=st.randoms(use_true_random=False))
def test_the_best_by_score_then_cost_then_place(
    costs: list[float], most: int, favourite: bool, shuffle: object
) -> None:
    order = list(range(len(costs)))
    shuffle.shuffle(order)  # type: ignore[attr-defined]
    places = np.array(order)
    ranking = rank([f"{place:02d}" for place in order], np.array([costs[place] for place in order]), favourite)
    found = top_k(ranking.scores, ranking.costs, places, most)
    known = np.nan_to_num(ranking.costs, nan=math.inf)
    best = sorted(range(len(order)), key=lambda i: (-ranking.scores[i], known[i], places[i]))[:most]
    assert found.tolist() == sorted(best)
    if ranking.favourite is not None:
        assert ranking.favourite in found


def test_all_of_few_nodes_are_selected() -> None:
    costs = np.array([0.0, 1.0, math.nan])
    assert top_k(rank(["a", "b", "c"], costs, True).scores, costs, np.arange(3), 3).tolist() == [0, 1, 2]

"""The answer of prioritize is the JSON of its rows, whatever the nodes are called and whoever comes and goes."""

from __future__ import annotations

import json
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.views import NodeView
from podium_extender.state.views import Views
from podium_extender.verbs.response_rows import ResponseRows

NAMES = ["node-a", "b", 'quo"te', "ü", "", "a-node-with-a-longer-name.example", "[n],"]


def _check(rows: ResponseRows, views: Views, names: list[str], chance: random.Random) -> None:
    scores = [chance.randint(0, 10) for _ in names]
    said = rows.write(tuple(names), np.array(scores, dtype=np.int64), views)
    assert json.loads(said) == [{"Host": name, "Score": score} for name, score in zip(names, scores, strict=True)]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rows_are_json_whatever_the_names_are(seed: int) -> None:
    """Of known nodes and of strangers, in any order, some twice."""
    chance = random.Random(seed)
    rows, views = ResponseRows(), Views()
    for _ in range(5):
        for name in chance.sample(NAMES, chance.randint(0, 3)):
            views.put(NodeView(name, (), None))
        for name in chance.sample(NAMES, chance.randint(0, 2)):
            views.drop(name)
        _check(rows, views, chance.choices(NAMES, k=chance.randint(0, 8)), chance)


def test_a_place_that_is_given_anew_has_the_name_of_its_new_node() -> None:
    chance, rows, views = random.Random(1), ResponseRows(), Views()
    for number in range(300):
        views.put(NodeView(f"n{number}", (), None))
        if number >= 3:
            views.drop(f"n{number - 3}")
        _check(rows, views, [*views.names(), "stranger"], chance)
    assert views.layout > 1


def test_nothing_is_kept_of_nodes_that_are_not_there() -> None:
    rows, views = ResponseRows(), Views([NodeView("a", (), None)])
    for number in range(3):
        _check(rows, views, ["a", *(f"{number}-{i}" for i in range(1000))], random.Random(number))
    assert len(rows._rows) == 1

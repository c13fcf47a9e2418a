"""The response of prioritize is the JSON of its rows, for any names and for nodes that come and go."""

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
    answer = rows.write(tuple(names), np.array(scores, dtype=np.int64), views)
    assert json.loads(answer) == [{"Host": name, "Score": score} for name, score in zip(names, scores, strict=True)]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rows_are_valid_json_for_any_names(seed: int) -> None:
    """The names include unknown nodes, in any order, and duplicates."""
    chance = random.Random(seed)
    rows, views = ResponseRows(), Views()
    for _ in range(5):
        for name in chance.sample(NAMES, chance.randint(0, 3)):
            views.put(NodeView(name, (), None))
        for name in chance.sample(NAMES, chance.randint(0, 2)):
            views.drop(name)
        _check(rows, views, chance.choices(NAMES, k=chance.randint(0, 8)), chance)


def test_a_reused_place_has_the_name_of_its_new_node() -> None:
    chance, rows, views = random.Random(1), ResponseRows(), Views()
    for number in range(300):
        views.put(NodeView(f"n{number}", (), None))
        if number >= 3:
            views.drop(f"n{number - 3}")
        _check(rows, views, [*views.names(), "unknown"], chance)
    assert views.layout > 1


def test_no_rows_are_kept_for_unknown_nodes() -> None:
    rows, views = ResponseRows(), Views([NodeView("a", (), None)])
    for number in range(3):
        _check(rows, views, ["a", *(f"{number}-{i}" for i in range(1000))], random.Random(number))
    assert len(rows._rows) == 1

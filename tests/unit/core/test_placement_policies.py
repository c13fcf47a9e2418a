"""Where each policy puts a pod; FGD against its definition; random is even."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from podium.placement.base import Question
from podium.placement.registry import placement_policy
from podium.placement.scores import scale, score_nodes
from podium.placement.views import GpuReading, NodeView, PodNeed

NOW = 1000.0
GIB = 2**30


def node(name: str, *trials: int, **changes: object) -> NodeView:
    gpu = GpuReading("", "H100", 80 * GIB, health="Healthy", shares=4)
    gpus = tuple(replace(gpu, uuid=f"{name}{i}", trials=n, **changes) for i, n in enumerate(trials))  # type: ignore[arg-type]
    return NodeView(name, gpus, NOW)


PAIRS = Question(PodNeed(1), "pod", ((PodNeed(2), 1.0),))
PLACES = [
    ("load_balance", Question(PodNeed(1)), [node("a", 1), node("b", 0), node("c", 3)], "b"),
    ("load_balance sees work", Question(PodNeed(1)), [node("a", 0, sm_utilization=99.0), node("b", 0)], "b"),
    ("spread does not", Question(PodNeed(1)), [node("a", 0, sm_utilization=99.0), node("b", 1)], "a"),
    ("spread counts parts", Question(PodNeed(1)), [node("a", 1), node("b", 1, 0)], "b"),
    ("binpack", Question(PodNeed(1)), [node("a", 1), node("b", 0), node("c", 3)], "c"),
    ("binpack counts a whole node", Question(PodNeed(1)), [node("a", 3, 3), node("b", 3)], "b"),
    ("binpack, ties by name", Question(PodNeed(1)), [node("c", 2), node("b", 2), node("a", 1)], "b"),
    # on `a` the last free share of a GPU is taken, and the other's three can serve no pair any more
    ("fragmentation keeps pairs whole", PAIRS, [node("a", 3, 3), node("b", 4, 2), node("c", 0, 0)], "b"),
    ("fragmentation, ties by name", PAIRS, [node("c", 4, 2), node("b", 4, 2)], "b"),
]


@pytest.mark.parametrize(("why", "question", "nodes", "best"), PLACES, ids=[place[0] for place in PLACES])
def test_places(why: str, question: Question, nodes: list[NodeView], best: str) -> None:
    scores = score_nodes(placement_policy(why.split()[0].strip(",")), question, nodes, NOW)
    top = max(score.value for score in scores)
    assert [score.node for score in scores if score.value == top] == [best]


@pytest.mark.parametrize(
    ("pod", "typical", "trials", "grows"),
    [
        # four of eight shares are free, all of use to a pair: one pod takes one of them and harms none
        (PodNeed(1), ((PodNeed(2), 1.0),), (2, 2), 0.0),
        # a pair could have used 1/4 + 1/4; with one GPU full the other's quarter is a fragment
        (PodNeed(1), ((PodNeed(2), 1.0),), (3, 3), 0.25),
        # the only free share was a fragment, and now it is used
        (PodNeed(1), ((PodNeed(2), 1.0),), (4, 3), -0.25),
        # half of the pods are single: the quarter is lost to the other half only
        (PodNeed(1), ((PodNeed(2), 0.5), (PodNeed(1), 0.5)), (3, 3), 0.125),
        # 40 GiB are left beside what is declared: no room for another of 60, so its three shares are fragments
        (PodNeed(1, 60 * GIB), ((PodNeed(1, 60 * GIB), 1.0),), (0,), 0.75),
        (PodNeed(1), (), (0,), 0.0),
    ],
)
def test_fragmentation_is_the_papers(
    pod: PodNeed, typical: tuple[tuple[PodNeed, float], ...], trials: tuple[int, ...], grows: float
) -> None:
    question = Question(pod, "pod", typical)
    assert placement_policy("fragmentation").cost(question, node("a", *trials)) == pytest.approx(grows)


def test_random_is_even_and_its_own_for_each_pod() -> None:
    policy = placement_policy("random")
    nodes = [node(name, 0) for name in "abcd"]

    def winner(pod: str) -> str:
        scores = score_nodes(policy, Question(PodNeed(1), pod), nodes, NOW)
        return max(scores, key=lambda score: score.value).node

    won = Counter(winner(f"pod-{i}") for i in range(400))
    assert set(won) == set("abcd")
    assert all(60 < count < 140 for count in won.values()), won  # 100 each, sd 8.7; the draw is fixed by the names


@pytest.mark.parametrize(
    ("costs", "one_best", "expected"),
    [
        ([0.0, 1.0, 0.5, None], False, [10, 0, 5, 5]),
        ([0.0, 0.0, 1.0], False, [10, 10, 0]),
        ([0.0, 0.0, 1.0], True, [10, 9, 0]),
        ([3.0, 3.0], False, [5, 5]),
        ([3.0, 3.0], True, [10, 5]),
        ([None, 3.0], True, [5, 10]),
        ([None, None], True, [5, 5]),
        ([], True, []),
    ],
)
def test_scale(costs: list[float | None], one_best: bool, expected: list[int]) -> None:
    known_or_nan = np.array([math.nan if cost is None else cost for cost in costs])
    assert scale(list("abcd")[: len(costs)], known_or_nan, one_best) == expected

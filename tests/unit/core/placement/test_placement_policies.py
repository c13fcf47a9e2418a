"""Where each policy places a pod; FGD equals its definition; random is uniform."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.placement.gpu_fragments import FreeCapacity, PodMix, loss_growths, pod_mix, served
from podium_core.placement.policies.base import PlacementQuery
from podium_core.placement.policies.fill import worth
from podium_core.placement.policies.fragmentation import fragments
from podium_core.placement.policies.registry import DEFAULT, placement_policy
from podium_core.placement.scores import has_single_best, rank, score_nodes
from podium_core.placement.views import NodeView, PodNeed
from podium_core.testing.builders import change_reading, make_reading

NOW = 1000.0
GIB = 2**30


def node(name: str, *trials: int, **changes: object) -> NodeView:
    gpu = make_reading(product="H100", memory_total=80 * GIB)
    gpus = tuple(change_reading(gpu, uuid=f"{name}{i}", trials=n, **changes) for i, n in enumerate(trials))  # type: ignore[arg-type]
    return NodeView(name, gpus, NOW)


PAIRS = PlacementQuery(PodNeed(1), "pod", ((PodNeed(2), 1.0),))
WHOLE_GPU = replace(PAIRS, need=PodNeed(1, exclusive=True))
PLACES = [
    ("load_balance", PlacementQuery(PodNeed(1)), [node("a", 1), node("b", 0), node("c", 3)], "b"),
    ("load_balance sees work", PlacementQuery(PodNeed(1)), [node("a", 0, sm_utilization=99.0), node("b", 0)], "b"),
    ("spread does not", PlacementQuery(PodNeed(1)), [node("a", 0, sm_utilization=99.0), node("b", 1)], "a"),
    ("spread counts parts", PlacementQuery(PodNeed(1)), [node("a", 1), node("b", 1, 0)], "b"),
    ("binpack", PlacementQuery(PodNeed(1)), [node("a", 1), node("b", 0), node("c", 3)], "c"),
    ("binpack counts a whole node", PlacementQuery(PodNeed(1)), [node("a", 3, 3), node("b", 3)], "b"),
    ("binpack, ties by name", PlacementQuery(PodNeed(1)), [node("c", 2), node("b", 2), node("a", 1)], "b"),
    # on `a` the last free share of a GPU is taken, and the other's three can serve no pair any more
    ("fragmentation keeps pairs whole", PAIRS, [node("a", 3, 3), node("b", 4, 2), node("c", 0, 0)], "b"),
    ("fragmentation, ties by name", PAIRS, [node("c", 4, 2), node("b", 4, 2)], "b"),
    (
        "auto puts a trial behind the shortest queue",
        replace(PAIRS, is_trial=True),
        [node("b", 4, 2), node("c", 0, 0)],
        "c",
    ),
    ("auto keeps pairs whole for others", PAIRS, [node("b", 4, 2), node("c", 0, 0)], "b"),
    ("auto stops the least for whole GPUs", WHOLE_GPU, [node("b", 4, 2), node("c", 3, 3), node("d", 0, 4)], "d"),
]


@pytest.mark.parametrize(("why", "question", "nodes", "best"), PLACES, ids=[place[0] for place in PLACES])
def test_chosen_nodes(why: str, question: PlacementQuery, nodes: list[NodeView], best: str) -> None:
    scores = score_nodes(placement_policy(why.split()[0].strip(",")), question, nodes, NOW)
    top = max(score.value for score in scores)
    assert [score.node for score in scores if score.value == top] == [best]


@pytest.mark.parametrize(
    ("pod", "typical", "trials", "grows"),
    [
        # four of eight slots are free, all of use to a pair: one pod takes one of them and harms none
        (PodNeed(1), ((PodNeed(2), 1.0),), (2, 2), 0.0),
        # a pair could have used 1/4 + 1/4; with one GPU full the other's quarter is a fragment
        (PodNeed(1), ((PodNeed(2), 1.0),), (3, 3), 0.25),
        # the only free slot was a fragment, and now it is used
        (PodNeed(1), ((PodNeed(2), 1.0),), (4, 3), -0.25),
        # half of the pods are single: the quarter is lost to the other half only
        (PodNeed(1), ((PodNeed(2), 0.5), (PodNeed(1), 0.5)), (3, 3), 0.125),
        # a quarter of the memory is left: no room for another of 60, whatever slots are free
        (PodNeed(1, 60 * GIB), ((PodNeed(1, 60 * GIB), 1.0),), (0,), 0.25),
        (PodNeed(1), (), (0,), 0.0),
    ],
)
def test_fragmentation_equals_the_definition_of_the_paper(
    pod: PodNeed, typical: tuple[tuple[PodNeed, float], ...], trials: tuple[int, ...], grows: float
) -> None:
    question = PlacementQuery(pod, "pod", typical)
    assert loss_growths(question, [node("a", *trials)], fragments) == pytest.approx([grows])
    cost = placement_policy("fragmentation").cost(question, node("a", *trials))
    assert cost == -math.floor(100 / (1 + math.exp(grows)))


def left(*gpus: int, cpus: float = math.inf) -> FreeCapacity:
    return FreeCapacity(np.array([gpus]), np.array([cpus]))


def filled(mix: PodMix, left: FreeCapacity) -> list[float]:
    found: list[float] = worth(mix, left, served(mix, left)).tolist()
    return found


def test_fill_equals_the_expected_filling() -> None:
    """A GPU of four slots for pods of one slot and of three, equally frequent: 1 + V(3) or 3 + V(1), nearly."""
    small, large = PodNeed(1, 20 * GIB), PodNeed(1, 60 * GIB)
    mix = pod_mix(((small, 0.5), (large, 0.5)), node("a", 0).gpus[0])
    assert filled(mix, left(1000)) == pytest.approx([1.0], abs=1e-6)  # no crumb is left, in whatever order they come
    only_large = pod_mix(((large, 1.0),), node("a", 0).gpus[0])
    assert filled(only_large, left(1000)) == pytest.approx([0.75], abs=1e-6)
    assert filled(only_large, left(740)) == [0.0]
    # the CPUs last for half of a pod that takes three quarters
    cpu_bound = pod_mix(((replace(large, cpu=4000), 1.0),), node("a", 0).gpus[0])
    assert filled(cpu_bound, left(1000, 1000, cpus=6000.0)) == pytest.approx([0.75 * 1.5])
    assert filled(cpu_bound, left(1000, cpus=3999.0)) == [0.0]


GPU_STATES = st.tuples(st.integers(0, 5), st.integers(0, 85), st.sampled_from(["Healthy", "Unhealthy", "Unknown"]))
NEEDS = st.builds(
    PodNeed, st.integers(0, 3), st.none() | st.integers(0, 85), packed=st.booleans(), cpu=st.integers(0, 9) | st.just(0)
)


@pytest.mark.parametrize("name", ["fragmentation", "fill"])
@given(
    clusters=st.lists(st.tuples(st.lists(GPU_STATES, max_size=4), st.none() | st.integers(0, 9)), max_size=5),
    need=NEEDS,
    typical=st.lists(NEEDS, max_size=3),
)
def test_batch_costs_equal_single_costs(
    name: str, clusters: list[tuple[list[tuple[int, int, str]], int | None]], need: PodNeed, typical: list[PodNeed]
) -> None:
    nodes = [
        NodeView(
            str(i),
            tuple(
                make_reading(product="X" * (i % 2), memory_total=80, memory_reserved=used, health=h, trials=n)
                for n, used, h in gpus
            ),  # type: ignore[arg-type]
            NOW,
            cpu_free=cpus,
        )
        for i, (gpus, cpus) in enumerate(clusters)
    ]
    question = PlacementQuery(need, "pod", tuple((one, 1 / len(typical)) for one in typical), cpus_known=True)
    policy = placement_policy(name)
    assert policy.costs(question, nodes) == [policy.cost(question, one) for one in nodes]


@pytest.mark.parametrize("known", [True, False])
def test_fill_prefers_gpus_that_lack_cpus(known: bool) -> None:
    pod, cpu_bound = PodNeed(1, 80 * GIB, packed=True, cpu=100), PodNeed(1, 80 * GIB, packed=True, cpu=4000)
    rich, poor = (
        replace(node(name, 0, 0), cpu_free=cpus if known else None) for name, cpus in (("a", 64000), ("b", 1000))
    )
    question = PlacementQuery(pod, "pod", ((cpu_bound, 1.0),), cpus_known=known)
    scores = [one.value for one in score_nodes(placement_policy("fill"), question, [rich, poor], NOW)]
    assert scores == ([0, 10] if known else [6, 5])


def test_exclusive_pods_order_equal_nodes_differently() -> None:
    nodes = [node(name, 0) for name in "abcd"]

    def first(pod: str) -> str:
        scores = score_nodes(placement_policy("auto"), replace(WHOLE_GPU, pod=pod), nodes, NOW)
        assert sorted(score.value for score in scores) == [5, 5, 5, 6]
        return max(scores, key=lambda score: score.value).node

    firsts = [first(f"pod-{i}") for i in range(40)]
    assert set(firsts) == set("abcd")
    assert firsts == [first(f"pod-{i}") for i in range(40)]


def test_random_is_uniform_and_independent_for_each_pod() -> None:
    policy = placement_policy("random")
    nodes = [node(name, 0) for name in "abcd"]

    def winner(pod: str) -> str:
        scores = score_nodes(policy, PlacementQuery(PodNeed(1), pod), nodes, NOW)
        return max(scores, key=lambda score: score.value).node

    won = Counter(winner(f"pod-{i}") for i in range(400))
    assert set(won) == set("abcd")
    assert all(60 < count < 140 for count in won.values()), won  # 100 each, sd 8.7; the draw is fixed by the names


@pytest.mark.parametrize(
    ("costs", "favourite", "expected"),
    [
        ([0.0, 1.0, 0.5, None], False, [10, 0, 5, 5]),
        ([0.0, 0.0, 1.0], False, [10, 10, 0]),
        ([0.0, 0.0, 1.0], True, [10, 9, 0]),
        ([3.0, 3.0], False, [5, 5]),
        ([3.0, 3.0], True, [6, 5]),
        ([3.0, 0.0, 0.001, None], True, [0, 10, 9, 5]),
        ([None, 3.0], True, [5, 6]),
        ([None, None], True, [5, 5]),
        ([], True, []),
    ],
)
def test_rank(costs: list[float | None], favourite: bool, expected: list[int]) -> None:
    known_or_nan = np.array([math.nan if cost is None else cost for cost in costs])
    ranking = rank(list("abcd")[: len(costs)], known_or_nan, favourite)
    assert ranking.scores.tolist() == expected
    known = favourite and any(cost is not None for cost in costs)
    assert ranking.favourite == (expected.index(max(expected)) if known else None)


@pytest.mark.parametrize(
    ("policy", "need", "one"),
    [
        ("load_balance", PodNeed(1), True),
        ("load_balance", PodNeed(0), False),  # it counts nowhere: all of a burst would go to the same node
        ("load_balance", PodNeed(1, exclusive=True), True),
        ("binpack", PodNeed(1, exclusive=True), True),
    ],
)
def test_one_node_has_the_highest_score_if_the_pod_changes_costs(policy: str, need: PodNeed, one: bool) -> None:
    assert has_single_best(placement_policy(policy), need) is one


@pytest.mark.parametrize(
    ("question", "suited"),
    [
        (PlacementQuery(PodNeed(1), is_trial=True), "load_balance"),
        (PlacementQuery(PodNeed(1), is_trial=True, cpus_known=True), "load_balance"),
        (PlacementQuery(PodNeed(2, 10)), "fragmentation"),
        (PlacementQuery(PodNeed(2, 10), cpus_known=True), "fill"),
        (PlacementQuery(PodNeed(1, exclusive=True)), "load_balance"),
        (PlacementQuery(PodNeed(0)), "fragmentation"),
    ],
)
def test_auto_is_the_policy_that_suits_the_pod(question: PlacementQuery, suited: str) -> None:
    auto, other = placement_policy(DEFAULT), placement_policy(suited)
    assert auto.resolve(question) is other
    nodes = [node("a", 1, 3), node("b", 0, 4), node("c", 2, 2)]
    assert score_nodes(auto, question, nodes, NOW) == score_nodes(other, question, nodes, NOW)

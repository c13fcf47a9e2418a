"""What is kept from one question to the next never changes an answer: the same as the core's plain functions say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.base import PlacementQuery
from podium_core.placement.fit import refuse
from podium_core.placement.registry import POLICIES, placement_policy
from podium_core.placement.scores import score_nodes
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.state.views import Views
from podium_extender.verbs.decisions import MAX_POD_KINDS, NodeEvaluator
from podium_extender.verbs.node_results import NodeResults

STALE = 60.0
NOW = 1000.0
QUESTIONS = (
    PlacementQuery(PodNeed(1), "a"),
    PlacementQuery(PodNeed(2, 10), "b"),
    PlacementQuery(PodNeed(1, 50), "c", ((PodNeed(2), 1.0),)),
)


def _gpu(chance: random.Random, name: str) -> GpuReading:
    health = chance.choice(["Healthy", "Healthy", "Unhealthy", "Unknown"])
    return GpuReading(name, "X", 80, chance.randrange(90), health=health, slots=4, trials=chance.randrange(6))  # type: ignore[arg-type]


def _node(chance: random.Random, name: str, now: float) -> NodeView:
    gpus = tuple(_gpu(chance, f"{name}-{i}") for i in range(chance.randrange(4)))
    age = chance.choice([None, 0.0, 0.0, 31.0, 59.0, 61.0, -5.0, -31.0, -500.0])
    return NodeView(name, gpus, None if age is None else now - age)


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_judge_says_what_the_core_says(policy: str, seed: int) -> None:
    chance = random.Random(seed)
    evaluator = NodeEvaluator(placement_policy(policy), STALE)
    now = NOW
    views = Views(_node(chance, name, now) for name in "abcd")
    for _ in range(6):
        # mostly the same kind of pod: then an answer starts from the last one
        for question in chance.choice([QUESTIONS, QUESTIONS[:1], QUESTIONS[:1], QUESTIONS[:1]]):
            names = chance.choice(["abcd", "abcd", "abc", chance.sample("abcd", chance.randint(0, 4))])
            names = tuple(chance.sample(names, len(names)))
            asked = [views.get(name) for name in names]
            plain = score_nodes(evaluator.policy, question, asked, now, STALE)
            assert evaluator.prioritize(question, names, views, now).scores.tolist() == [one.value for one in plain]
            refused = {node.name for node in asked if refuse(question.need, node, now, STALE)}
            filtered = evaluator.filter(question, names, views, now)
            assert filtered.failed.keys() == refused
            assert list(filtered.passed) == [name for name in names if name not in refused]
        for name in chance.choices("abcd", k=chance.choice([1, 1, 60])):
            seen = views.get(name)
            if chance.random() < 0.1:
                views.drop(name)
            else:
                heard = [replace(seen, reported_at=now), replace(seen, reported_at=None)]
                views.put(chance.choice([_node(chance, name, now), *heard]))
        if chance.random() < 0.3:
            evaluator.precompute(views, now)
        now += chance.choice([0.0, 2.0, 30.0, 31.0, -40.0])


def test_kinds_of_pods_are_forgotten() -> None:
    evaluator = NodeEvaluator(placement_policy("random"), STALE)
    views = Views([NodeView("a", (), NOW)])
    for number in range(3 * MAX_POD_KINDS):
        evaluator.prioritize(PlacementQuery(PodNeed(1), f"pod-{number}"), ["a"], views, NOW)
        evaluator.filter(PlacementQuery(PodNeed(1, number)), ["a"], views, NOW)
    assert len(evaluator._costs) == len(evaluator._refusals) == MAX_POD_KINDS


def test_one_that_is_ready_looks_at_no_node_for_one_more_pod_of_the_last_kind() -> None:
    looked: list[str] = []

    def cost(question: PlacementQuery, node: NodeView) -> float:
        looked.append(node.name)
        return 0.0

    evaluator = NodeEvaluator(replace(placement_policy("load_balance"), cost=cost), STALE)
    evaluator.precompute(Views(), NOW)  # nobody has asked yet
    views = Views(NodeView(name, (GpuReading(name),), NOW) for name in "ab")
    for need in (PodNeed(2), PodNeed(1)):
        evaluator.filter(PlacementQuery(need), "ab", views, NOW)
        evaluator.prioritize(PlacementQuery(need), "ab", views, NOW)
    views.put(NodeView("b", (GpuReading("c"),), NOW))
    looked.clear()
    evaluator.precompute(views, NOW)
    assert looked == ["b"]
    evaluator.prioritize(PlacementQuery(PodNeed(1)), "ab", views, NOW)
    assert looked == ["b"]
    evaluator.prioritize(PlacementQuery(PodNeed(2)), "ab", views, NOW)
    assert looked == ["b", "b"]


def test_a_node_that_did_not_change_is_not_looked_at_again() -> None:
    looked: list[str] = []

    def look(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> Sequence[bool]:
        looked.extend(node.name for node in nodes)
        return fresh

    results = NodeResults(look, float, STALE)
    views = Views(NodeView(name, (), NOW) for name in "abc")
    assert results.numbers(["c", "b", "a"], views, NOW).tolist() == [1, 1, 1]
    looked.clear()
    views.put(NodeView("b", (), NOW + 1))  # a heartbeat: the GPUs are the very same
    views.put(NodeView("c", (GpuReading("new"),), NOW))
    assert results.numbers(["a", "b", "c"], views, NOW + 1).tolist() == [1, 1, 1]
    assert looked == ["c"]
    looked.clear()
    assert results.numbers(["a", "b", "unheard"], views, NOW + STALE + 0.5).tolist() == [0, 1, 0]
    assert looked == ["a", "c", "unheard"]


@pytest.mark.parametrize("cpu", [True, False])
def test_free_cpus_count_only_where_they_are_read_and_many_nodes_are_one_look(cpu: bool) -> None:
    looks: list[list[str]] = []

    def look(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> Sequence[int]:
        looks.append([node.name for node in nodes])
        return [node.cpu_free or 0 for node in nodes]

    names = [f"n{i:03d}" for i in range(100)]
    results = NodeResults(look, float, STALE, cpu)
    views = Views(NodeView(name, (), NOW, cpu_free=1) for name in names)
    assert results.numbers([*names, "unheard"], views, NOW).tolist() == [1] * 100 + [0]
    for name in names[:2]:
        views.put(replace(views.get(name), cpu_free=2))
    assert results.numbers(names, views, NOW).tolist() == [2 if cpu else 1] * 2 + [1] * 98
    assert looks == [names, ["unheard"]] + ([names[:2]] if cpu else [])


def test_nodes_that_come_and_go_take_no_place_for_ever() -> None:
    """And whoever comes after them is not taken for one of them."""
    evaluator, views = NodeEvaluator(placement_policy("load_balance"), STALE), Views()
    chance = random.Random(1)
    for number in range(500):
        views.put(_node(chance, f"n{number}", NOW))
        if number >= 5:
            views.drop(f"n{number - 5}")
        if chance.random() < 0.3:
            last = views.get(f"n{number}")
            views.drop(last.name)
            views.put(last)
        names = tuple(views.names())
        asked = [views.get(name) for name in names]
        plain = score_nodes(evaluator.policy, QUESTIONS[0], asked, NOW, STALE)
        assert evaluator.prioritize(QUESTIONS[0], names, views, NOW).scores.tolist() == [one.value for one in plain]
        refused = {node.name for node in asked if refuse(PodNeed(1), node, NOW, STALE)}
        assert evaluator.filter(QUESTIONS[0], names, views, NOW).failed.keys() == refused
        assert max(views.places(names)) < 100
    assert views.layout > 1

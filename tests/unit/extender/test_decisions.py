"""Results that are kept between requests never change a response: they equal those of the core's functions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.fit import refuse
from podium_core.placement.policies.base import PlacementQuery
from podium_core.placement.policies.registry import POLICIES, placement_policy
from podium_core.placement.scores import score_nodes
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_core.testing.builders import make_reading
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
    return make_reading(
        name,
        product="X",
        memory_total=80,
        memory_reserved=chance.randrange(90),
        health=health,
        trials=chance.randrange(6),
    )  # type: ignore[arg-type]


def _node(chance: random.Random, name: str, now: float) -> NodeView:
    gpus = tuple(_gpu(chance, f"{name}-{i}") for i in range(chance.randrange(4)))
    age = chance.choice([None, 0.0, 0.0, 31.0, 59.0, 61.0, -5.0, -31.0, -500.0])
    return NodeView(name, gpus, None if age is None else now - age)


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_cached_results_equal_those_of_the_core(policy: str, seed: int) -> None:
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
            filtered = evaluator.filter(question.need, names, views, now)
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


def test_the_number_of_kinds_of_pods_is_limited() -> None:
    evaluator = NodeEvaluator(placement_policy("random"), STALE)
    views = Views([NodeView("a", (), NOW)])
    for number in range(3 * MAX_POD_KINDS):
        evaluator.prioritize(PlacementQuery(PodNeed(1), f"pod-{number}"), ["a"], views, NOW)
        evaluator.filter(PodNeed(1, number), ["a"], views, NOW)
    assert len(evaluator._costs) == len(evaluator._refusals) == MAX_POD_KINDS


def test_precompute_evaluates_changed_nodes_for_the_last_kind_of_pod() -> None:
    evaluated: list[str] = []

    def cost(question: PlacementQuery, node: NodeView) -> float:
        evaluated.append(node.name)
        return 0.0

    evaluator = NodeEvaluator(replace(placement_policy("load_balance"), cost=cost), STALE)
    evaluator.precompute(Views(), NOW)  # before the first request
    views = Views(NodeView(name, (GpuReading(name),), NOW) for name in "ab")
    for need in (PodNeed(2), PodNeed(1)):
        evaluator.filter(need, "ab", views, NOW)
        evaluator.prioritize(PlacementQuery(need), "ab", views, NOW)
    views.put(NodeView("b", (GpuReading("c"),), NOW))
    evaluated.clear()
    evaluator.precompute(views, NOW)
    assert evaluated == ["b"]
    evaluator.prioritize(PlacementQuery(PodNeed(1)), "ab", views, NOW)
    assert evaluated == ["b"]
    evaluator.prioritize(PlacementQuery(PodNeed(2)), "ab", views, NOW)
    assert evaluated == ["b", "b"]


def test_an_unchanged_node_is_not_evaluated_again() -> None:
    evaluated: list[str] = []

    def evaluate(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> Sequence[bool]:
        evaluated.extend(node.name for node in nodes)
        return fresh

    results = NodeResults(evaluate, float, STALE)
    views = Views(NodeView(name, (), NOW) for name in "abc")
    assert results.numbers(["c", "b", "a"], views, NOW).tolist() == [1, 1, 1]
    evaluated.clear()
    views.put(NodeView("b", (), NOW + 1))  # a heartbeat: the GPUs are the very same
    views.put(NodeView("c", (GpuReading("new"),), NOW))
    assert results.numbers(["a", "b", "c"], views, NOW + 1).tolist() == [1, 1, 1]
    assert evaluated == ["c"]
    evaluated.clear()
    assert results.numbers(["a", "b", "unknown"], views, NOW + STALE + 0.5).tolist() == [0, 1, 0]
    assert evaluated == ["a", "c", "unknown"]


@pytest.mark.parametrize("cpu", [True, False])
def test_free_cpus_matter_only_if_used_and_nodes_are_evaluated_together(cpu: bool) -> None:
    evaluations: list[list[str]] = []

    def evaluate(nodes: Sequence[NodeView], fresh: Sequence[bool]) -> Sequence[int]:
        evaluations.append([node.name for node in nodes])
        return [node.cpu_free or 0 for node in nodes]

    names = [f"n{i:03d}" for i in range(100)]
    results = NodeResults(evaluate, float, STALE, cpu)
    views = Views(NodeView(name, (), NOW, cpu_free=1) for name in names)
    assert results.numbers([*names, "unknown"], views, NOW).tolist() == [1] * 100 + [0]
    for name in names[:2]:
        views.put(replace(views.get(name), cpu_free=2))
    assert results.numbers(names, views, NOW).tolist() == [2 if cpu else 1] * 2 + [1] * 98
    assert evaluations == [names, ["unknown"]] + ([names[:2]] if cpu else [])


def test_places_of_deleted_nodes_are_reclaimed() -> None:
    """A new node in the place of a deleted one is not confused with it."""
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
        assert evaluator.filter(QUESTIONS[0].need, names, views, NOW).failed.keys() == refused
        assert max(views.places(names)) < 100
    assert views.layout > 1

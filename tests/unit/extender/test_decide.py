"""What is kept from one question to the next never changes an answer: the same as the core's plain functions say."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.placement.base import Question
from podium.placement.fit import refuse
from podium.placement.registry import POLICIES, placement_policy
from podium.placement.scores import score_nodes
from podium.placement.views import GpuReading, NodeView, PodNeed
from podium_extender.decide import KINDS_OF_PODS, Judge

STALE = 60.0
NOW = 1000.0
QUESTIONS = (
    Question(PodNeed(1), "a"),
    Question(PodNeed(2, 10), "b"),
    Question(PodNeed(1, 50), "c", ((PodNeed(2), 1.0),)),
)


def _gpu(chance: random.Random, name: str) -> GpuReading:
    health = chance.choice(["Healthy", "Healthy", "Unhealthy", "Unknown"])
    return GpuReading(name, "X", 80, chance.randrange(90), health=health, shares=4, trials=chance.randrange(6))  # type: ignore[arg-type]


def _node(chance: random.Random, name: str, now: float) -> NodeView:
    gpus = tuple(_gpu(chance, f"{name}-{i}") for i in range(chance.randrange(4)))
    age = chance.choice([None, 0.0, 0.0, 31.0, 59.0, 61.0, -5.0, -31.0, -500.0])
    return NodeView(name, gpus, None if age is None else now - age)


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_judge_says_what_the_core_says(policy: str, seed: int) -> None:
    chance = random.Random(seed)
    judge = Judge(placement_policy(policy), STALE)
    now = NOW
    nodes = {name: _node(chance, name, now) for name in "abcd"}
    for _ in range(6):
        # mostly the same kind of pod: then an answer starts from the last one
        for question in chance.choice([QUESTIONS, QUESTIONS[:1], QUESTIONS[:1], QUESTIONS[:1]]):
            names = chance.choice(["abcd", "abcd", "abc", chance.sample("abcd", chance.randint(0, 4))])
            asked = [nodes[name] for name in names]
            plain = score_nodes(judge.policy, question, asked, now, STALE)
            assert judge.prioritize(question, asked, now) == [score.value for score in plain]
            refused = {node.name for node in asked if refuse(question.need, node, now, STALE)}
            filtered = judge.filter(question, asked, now)
            assert filtered.failed.keys() | filtered.unresolvable.keys() == refused
            assert filtered.passed == tuple(node.name for node in asked if node.name not in refused)
        name = chance.choice("abcd")
        nodes[name] = chance.choice(
            [_node(chance, name, now), replace(nodes[name], reported_at=now), replace(nodes[name], reported_at=None)]
        )
        now += chance.choice([0.0, 2.0, 30.0])


def test_kinds_of_pods_are_forgotten() -> None:
    judge = Judge(placement_policy("random"), STALE)
    nodes = [NodeView("a", (), NOW)]
    for number in range(3 * KINDS_OF_PODS):
        judge.prioritize(Question(PodNeed(1), f"pod-{number}"), nodes, NOW)
    assert len(judge._kept) == KINDS_OF_PODS

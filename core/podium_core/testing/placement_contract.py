"""Contract of placement policies. A new policy is tested by adding its name to the registry.

Plain functions that raise AssertionError, so they need no test framework. tests/contract/test_placement.py runs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from podium_core.placement.policies.base import PlacementPolicy, PlacementQuery
from podium_core.placement.scores import HIGHEST, MIDDLE, has_single_best, score_nodes
from podium_core.placement.views import NodeView, PodNeed
from podium_core.testing.builders import change_reading, make_reading

NOW = 1000.0
GIB = 2**30
Nodes = tuple[NodeView, ...]
Check = Callable[[PlacementPolicy, PlacementQuery, Nodes], None]


def _node(name: str, *trials: int, age: float | None = 1.0, **changes: object) -> NodeView:
    """Return a node with one GPU per entry of `trials`, each with that number of trials."""
    gpus = tuple(
        change_reading(
            make_reading(
                f"{name}-{i}", product="H100", memory_total=80 * GIB, memory_reserved=count * 10 * GIB, trials=count
            ),
            **changes,  # type: ignore[arg-type]
        )
        for i, count in enumerate(trials)
    )
    return NodeView(name, gpus, None if age is None else NOW - age)


CLUSTERS: Mapping[str, Nodes] = MappingProxyType(
    {
        "none": (),
        "one": (_node("a", 1),),
        "alike": (_node("a", 2), _node("b", 2), _node("c", 2)),
        "ordinary": (_node("a", 0, 3), _node("b", 1, 1), _node("c", 3, 4), _node("d", 0, 0)),
        "full": (_node("a", 4), _node("b", 4), _node("c", 0)),
        "unknown": (_node("a", 1, age=None), _node("b", 2, age=90.0), _node("c", 3), _node("d", 0)),
        "nothing known": (_node("a", 1, age=None), _node("b", 2, age=90.0)),
        "health": (_node("a", 0, health="Unhealthy"), _node("b", 1, health="Unknown"), _node("c", 3), _node("d", 1)),
        "strange": (_node("a", 9, slots=0), _node("b", 1, memory_total=0), _node("c", 7), NodeView("d", (), NOW)),
    }
)
QUESTIONS: Mapping[str, PlacementQuery] = MappingProxyType(
    {
        "one GPU": PlacementQuery(PodNeed(1), "pod-1"),
        "two GPUs with memory": PlacementQuery(PodNeed(2, 20 * GIB), "pod-2"),
        "a mix of pods": PlacementQuery(
            PodNeed(1, 10 * GIB), "pod-3", ((PodNeed(1, 10 * GIB), 0.7), (PodNeed(2), 0.3))
        ),
        "no GPU": PlacementQuery(PodNeed(0), "pod-4"),
        "a trial": PlacementQuery(PodNeed(1), "pod-5", ((PodNeed(2), 1.0),), is_trial=True),
        "whole GPUs": PlacementQuery(PodNeed(1, exclusive=True), "pod-6"),
    }
)


def scores_each_node_once(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    scores = score_nodes(policy, question, nodes, NOW)
    assert [score.node for score in scores] == [node.name for node in nodes]
    assert all(0 <= score.value <= HIGHEST for score in scores)
    assert all(score.message.endswith(".") for score in scores)


def is_deterministic(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    assert score_nodes(policy, question, nodes, NOW) == score_nodes(policy, question, nodes, NOW)


def ignores_the_order_of_nodes(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    turned = score_nodes(policy, question, tuple(reversed(nodes)), NOW)
    assert tuple(reversed(turned)) == score_nodes(policy, question, nodes, NOW)


def costs_depend_on_the_node_only(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    """Check that a cost depends on neither other nodes nor the time: the extender may cache it."""
    for node in nodes:
        cost = policy.cost(question, node)
        assert cost is None or math.isfinite(cost)
        assert cost == policy.cost(question, replace(node, reported_at=0.0))


def scores_unknown_nodes_in_the_middle(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    if not policy.uses_telemetry:
        return
    for node, score in zip(nodes, score_nodes(policy, question, nodes, NOW), strict=True):
        if node.stale(NOW, 60.0):
            assert score.value == MIDDLE


def has_one_favourite_where_it_says_so(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    known = [score for score in score_nodes(policy, question, nodes, NOW) if "middle" not in score.message]
    highest = max((score.value for score in known), default=0)
    best = [score.node for score in known if score.value == highest]
    assert not has_single_best(policy.resolve(question), question.need) or len(best) == (1 if known else 0)


def reads_the_pod_only_if_it_says_so(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    other = replace(question, pod="another")
    same = all(policy.cost(question, node) == policy.cost(other, node) for node in nodes)
    assert same is not policy.uses_pod_uid or not nodes


def reads_what_is_typical_only_if_it_says_so(policy: PlacementPolicy, question: PlacementQuery, nodes: Nodes) -> None:
    other = replace(question, typical_pods=((PodNeed(3, 70 * GIB), 1.0),))
    same = all(policy.cost(question, node) == policy.cost(other, node) for node in nodes)
    assert same or policy.uses_typical_pods


CHECKS: tuple[Check, ...] = (
    scores_each_node_once,
    is_deterministic,
    ignores_the_order_of_nodes,
    costs_depend_on_the_node_only,
    scores_unknown_nodes_in_the_middle,
    has_one_favourite_where_it_says_so,
    reads_the_pod_only_if_it_says_so,
    reads_what_is_typical_only_if_it_says_so,
)

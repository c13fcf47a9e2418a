"""Terms and scores for any telemetry: bounded, monotone in each term, and independent of the order of the nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_core.placement.load_terms import TERMS, load_of, slices_ahead
from podium_core.placement.policies.load_balance import term_means
from podium_core.placement.scores import HIGHEST, load_balance
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_core.testing.builders import change_reading, make_reading

NOW = 1000.0
GIB = 2**30
GPU = make_reading("gpu", product="H100", memory_total=80 * GIB, temperature=50.0)
NEED = PodNeed(1)

seeds = st.integers(0, 2**32)


def some_gpu(chance: random.Random, name: str) -> GpuReading:
    """Any telemetry, sense or nonsense."""
    return make_reading(
        uuid=name,
        memory_total=chance.choice([0, 80 * GIB]),
        memory_reserved=chance.randrange(100) * GIB,
        memory_used=chance.randrange(100) * GIB,
        sm_utilization=chance.choice([-10.0, 0.0, 35.0, 90.0, 1e9]),
        health=chance.choice(["Healthy", "Healthy", "Healthy", "Unhealthy", "Unknown"]),  # type: ignore[arg-type]
        slots=chance.randrange(5),
        trials=chance.randrange(7),
        throttled=chance.random() < 0.3,
        ranks=tuple(chance.choice([None, 1, 2, 40]) for _ in range(chance.randrange(6))),
        temperature=chance.choice([None, -50.0, 65.0, 77.0, 200.0]),
        ecc_uncorrected=chance.randrange(12),
        xid=chance.choice([None, None, 31]),
    )


def some_need(chance: random.Random) -> PodNeed:
    return PodNeed(chance.randint(1, 3), chance.choice([None, GIB, 20 * GIB, 90 * GIB]))


def some_nodes(chance: random.Random) -> list[NodeView]:
    ages = [None, -3600.0, 1.0, 1.0, 1.0, 59.0, 61.0]
    return [
        NodeView(
            f"node-{i}",
            tuple(some_gpu(chance, f"gpu-{i}-{k}") for k in range(chance.randrange(4))),
            None if (age := chance.choice(ages)) is None else NOW - age,
        )
        for i in range(chance.randint(1, 5))
    ]


WORSE: dict[str, Callable[[GpuReading], GpuReading]] = {
    "one more trial": lambda g: change_reading(g, trials=g.trials + 1),
    "a better ranked trial": lambda g: change_reading(g, ranks=tuple(1 for _ in g.ranks)),
    "more work": lambda g: change_reading(g, sm_utilization=g.sm_utilization + 20.0),
    "more memory declared": lambda g: change_reading(g, memory_reserved=g.memory.reserved + 5 * GIB),
    "more memory used": lambda g: change_reading(g, memory_used=g.memory.used + 5 * GIB),
    "throttled": lambda g: change_reading(g, throttled=True),
    "hotter": lambda g: change_reading(
        g, temperature=None if g.condition.temperature is None else g.condition.temperature + 10.0
    ),
    "more errors": lambda g: change_reading(g, ecc_uncorrected=g.condition.ecc_uncorrected + 1),
    "broken": lambda g: change_reading(g, health="Unhealthy"),
}


@settings(deadline=None)
@given(seeds)
def test_every_term_is_between_zero_and_one(seed: int) -> None:
    chance = random.Random(seed)
    gpu, need = some_gpu(chance, "gpu"), some_need(chance)
    assert all(0.0 <= term.value(gpu, need) <= 1.0 for term in TERMS)
    assert sum(term.weight for term in TERMS) == pytest.approx(1.0)
    assert 0.0 <= load_of(gpu, need) <= 1.0 + 1e-9


@settings(deadline=None)
@given(seeds)
def test_worse_telemetry_never_raises_the_score(seed: int) -> None:
    """Where the node's GPUs say how they are: one that begins or ceases to say so goes to the middle or leaves it."""
    chance = random.Random(seed)
    need, nodes = some_need(chance), some_nodes(chance)
    before = load_balance(need, nodes, NOW)
    for index, node in enumerate(nodes):
        if any(gpu.health == "Unknown" for gpu in node.gpus):
            continue
        for place, gpu in enumerate(node.gpus):
            for change, worsen in WORSE.items():
                gpus = (*node.gpus[:place], worsen(gpu), *node.gpus[place + 1 :])
                worse = [*nodes[:index], replace(node, gpus=gpus), *nodes[index + 1 :]]
                assert load_balance(need, worse, NOW)[index].value <= before[index].value, change


@settings(deadline=None)
@given(seeds)
def test_the_order_of_the_nodes_does_not_matter(seed: int) -> None:
    chance = random.Random(seed)
    need, nodes = some_need(chance), some_nodes(chance)
    scores = {score.node: score for score in load_balance(need, nodes, NOW)}
    chance.shuffle(nodes)
    assert {score.node: score for score in load_balance(need, nodes, NOW)} == scores
    assert all(0 <= score.value <= HIGHEST for score in scores.values())


@pytest.mark.parametrize(
    ("term", "changes", "expected"),
    [
        ("wait", {"trials": 0}, 0.0),
        ("wait", {"trials": 2}, 0.5),
        ("wait", {"trials": 2, "ranks": (1,)}, 0.625),
        ("wait", {"trials": 2, "ranks": (4, 4)}, 0.375),
        ("wait", {"trials": 99}, 1.0),
        ("wait", {"slots": 0}, 1.0),
        ("work", {"sm_utilization": 40.0}, 0.4),
        ("memory", {"memory_used": 20 * GIB, "memory_reserved": 40 * GIB}, 0.5),
        ("memory", {"memory_total": 0}, 0.5),
        ("throttling", {"throttled": True}, 1.0),
        ("heat", {"temperature": 75.0}, 0.5),
        ("heat", {"temperature": 20.0}, 0.0),
        ("heat", {"temperature": None}, 0.5),
        ("errors", {"ecc_uncorrected": 2}, 0.25),
        ("errors", {"xid": 31, "ecc_uncorrected": 2}, 0.5),
    ],
)
def test_terms(term: str, changes: dict[str, object], expected: float) -> None:
    gpu = change_reading(GPU, **changes)  # type: ignore[arg-type]
    found = {one.name: one.value(gpu, NEED) for one in TERMS}
    assert found[term] == pytest.approx(expected)


def test_a_new_trial_waits_longest_behind_the_best_of_a_job() -> None:
    turns = [slices_ahead(rank) for rank in (1, 2, 3, 50)]
    assert turns == sorted(turns, reverse=True)
    assert turns[0] > slices_ahead(None) > turns[-1] > 0.5


def test_the_terms_sum_up_to_the_cost() -> None:
    busy = change_reading(GPU, uuid="busy", trials=2, sm_utilization=70.0)
    node = NodeView("a", (busy, GPU), NOW)
    assert sum(term.weight * value for term, value in term_means(PodNeed(2), node)) == pytest.approx(
        (load_of(busy, PodNeed(2)) + load_of(GPU, PodNeed(2))) / 2
    )
    assert term_means(NEED, NodeView("b", (change_reading(GPU, trials=4),), NOW)) == ()

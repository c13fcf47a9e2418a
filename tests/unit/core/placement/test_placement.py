"""Filter and score: only health, product and memory refuse; an unknown node is neither idle nor full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podium_core.placement.scores import load_balance, refuse
from podium_core.placement.views import GpuReading, NodeView, PodNeed
from podium_core.testing.builders import change_reading, make_reading

GIB = 2**30
GPU = make_reading("gpu-0", product="H100", memory_total=80 * GIB)
NOW = 1000.0


def node(*gpus: GpuReading, name: str = "node-a", age: float | None = 1.0) -> NodeView:
    named = tuple(replace(g, uuid=f"{name}-{i}") for i, g in enumerate(gpus))
    return NodeView(name, named, None if age is None else NOW - age)


FULL = change_reading(GPU, trials=4)
SICK = change_reading(GPU, health="Unhealthy")
UNSURE = change_reading(GPU, health="Unknown")
TIGHT = change_reading(GPU, memory_reserved=70 * GIB)
MOVED = change_reading(TIGHT, memory_movable=50 * GIB)

REFUSALS = [
    ("fits", PodNeed(1, 20 * GIB, ("H100",)), node(GPU), None),
    ("a full node is not refused", PodNeed(1), node(FULL), None),
    ("no GPU asked for", PodNeed(0), node(), None),
    ("no GPU there", PodNeed(1), node(), "TooFewGPUs"),
    ("never heard of", PodNeed(1), node(age=None), None),
    ("unhealthy", PodNeed(1), node(SICK), "Unhealthy"),
    ("unhealthy, but that was long ago", PodNeed(1), node(SICK, age=100.0), None),
    ("unknown is not unhealthy", PodNeed(1), node(UNSURE), None),
    ("two of one", PodNeed(2), node(GPU), "TooFewGPUs"),
    ("one healthy is not two", PodNeed(2), node(GPU, SICK), "Unhealthy"),
    ("two of one, the other full", PodNeed(2), node(GPU, FULL), "NoFreeSlot"),
    ("full long ago", PodNeed(2), node(GPU, FULL, age=100.0), None),
    ("other product", PodNeed(1, products=("A100",)), node(GPU), "GPUProductMismatch"),
    ("other product, stale", PodNeed(1, products=("A100",)), node(GPU, age=100.0), "GPUProductMismatch"),
    ("never fits", PodNeed(1, 90 * GIB), node(GPU), "GPUTooSmall"),
    ("does not fit beside the others", PodNeed(1, 20 * GIB), node(TIGHT), "GPUMemoryReserved"),
    ("beside what stays", PodNeed(1, 20 * GIB, memory_stays=False), node(TIGHT), "GPUMemoryReserved"),
    ("not beside what is moved", PodNeed(1, 20 * GIB, memory_stays=False), node(MOVED), None),
    ("that stays, beside what is moved", PodNeed(1, 20 * GIB), node(MOVED), "GPUMemoryReserved"),
    ("reserved long ago", PodNeed(1, 20 * GIB), node(TIGHT, age=100.0), None),
    ("the checks add up", PodNeed(1, 20 * GIB), node(TIGHT, SICK), "GPUMemoryReserved"),
    ("for itself: slots do not count", PodNeed(2, exclusive=True), node(FULL, FULL), None),
    (
        "for itself, beside what stays when trials are frozen",
        PodNeed(1, 20 * GIB, exclusive=True),
        node(TIGHT),
        "GPUMemoryReserved",
    ),
    ("for itself, not beside what is moved", PodNeed(1, 20 * GIB, exclusive=True), node(MOVED), None),
    ("for itself, broken", PodNeed(1, exclusive=True), node(SICK), "Unhealthy"),
    ("unknown memory", PodNeed(1, 90 * GIB), node(change_reading(GPU, memory_total=0)), None),
]


@pytest.mark.parametrize(("need", "view", "code"), [r[1:] for r in REFUSALS], ids=[str(r[0]) for r in REFUSALS])
def test_refuse(need: PodNeed, view: NodeView, code: str | None) -> None:
    refusal = refuse(need, view, NOW)
    assert (refusal.code if refusal else None) == code
    if refusal:
        assert refusal.message.endswith("needed.")
        assert "node-a" not in refusal.message, "equal reasons of many nodes are counted together"


HALF = change_reading(GPU, trials=2, sm_utilization=50.0)
RANKED = (change_reading(GPU, trials=1, ranks=(1,)), change_reading(GPU, trials=1, ranks=(9,)))
SCORES = [
    ("the spread is used", [node(GPU), node(HALF, name="b"), node(FULL, name="c")], [10, 6, 0]),
    ("alike: by name", [node(HALF, name="c"), node(HALF, name="b")], [5, 6]),
    ("alone", [node(GPU)], [6]),
    ("none", [], []),
    ("stale is the middle", [node(GPU), node(GPU, name="b", age=100.0), node(FULL, name="c")], [10, 5, 0]),
    ("unknown is the middle", [node(GPU), node(UNSURE, name="b"), node(FULL, name="c")], [10, 5, 0]),
    ("the best GPU counts", [node(FULL, GPU), node(HALF, name="b")], [10, 0]),
    ("throttled", [node(change_reading(GPU, throttled=True)), node(GPU, name="b")], [0, 10]),
    ("reserved memory", [node(TIGHT), node(GPU, name="b")], [0, 10]),
    (
        "hot",
        [node(change_reading(GPU, temperature=85.0)), node(change_reading(GPU, temperature=40.0), name="b")],
        [0, 10],
    ),
    (
        "an unknown temperature is not a cool one",
        [node(GPU), node(change_reading(GPU, temperature=40.0), name="b")],
        [0, 10],
    ),
    ("errors so far", [node(change_reading(GPU, ecc_uncorrected=2)), node(GPU, name="b")], [0, 10]),
    ("behind the first of a job", [node(RANKED[0]), node(RANKED[1], name="b")], [0, 10]),
    ("a clock that is ahead", [node(GPU, age=-3600.0), node(GPU, name="b"), node(FULL, name="c")], [5, 10, 0]),
    ("a clock a little ahead", [node(GPU, age=-5.0), node(FULL, name="c")], [10, 0]),
    ("broken is worst, not unknown", [node(SICK), node(HALF, name="b"), node(GPU, name="c")], [0, 6, 10]),
]


@pytest.mark.parametrize(("nodes", "expected"), [r[1:] for r in SCORES], ids=[str(r[0]) for r in SCORES])
def test_load_balance(nodes: list[NodeView], expected: list[int]) -> None:
    scores = load_balance(PodNeed(1), nodes, NOW)
    assert [s.value for s in scores] == expected
    assert [s.node for s in scores] == [n.name for n in nodes]
    assert all(s.message for s in scores)

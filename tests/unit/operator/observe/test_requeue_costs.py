"""Measured cost of a requeue: the times in which it keeps the trial or a GPU busy, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from operator_builders import NOW, ended, make_cluster_state, make_job, make_node, make_pod, make_trial

from podium_operator.observe.observation import observe
from podium_operator.observe.requeue_costs import RequeueCosts

RUNNING_POD = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
GATED = {"gate": {"running": {}}}
STEPS = {"points": [{"step": 10, "value": 0.5, "time": NOW}]}

# second, stored status, pod (None: there is none), step and time of the newest value
Step = tuple[float, dict[str, Any], dict[str, Any] | None, tuple[float, float]]
OLD_POD: list[Step] = [
    (0.0, {"phase": "Running"}, RUNNING_POD, (10, 0.0)),
    (1.0, {"phase": "Running"}, RUNNING_POD | {"deleting": True}, (10, 0.0)),
    (4.0, {"phase": "Running"}, RUNNING_POD | {"deleting": True}, (10, 0.0)),
    (5.0, {"phase": "Running"}, None, (10, 0.0)),  # 4 s to checkpoint
    (65.0, {"phase": "Requeued"}, None, (10, 0.0)),  # a minute without a slot
]
NEW_POD: list[Step] = [
    (66.0, {"phase": "Requeued", "attempt": 1}, {"attempt": 1}, (10, 0.0)),
    (70.0, {"phase": "Pending", "attempt": 1}, GATED | {"attempt": 1}, (10, 0.0)),  # 4 s to start
    (170.0, {"phase": "Gated", "attempt": 1}, RUNNING_POD | {"attempt": 1}, (10, 0.0)),  # 100 s until its time slice
    (
        180.0,
        {"phase": "Running", "attempt": 1},
        RUNNING_POD | {"attempt": 1},
        (11, 179.0),
    ),  # 9 s to load and a step of 2 s
]


def measured(*steps: Step) -> float | None:
    costs = RequeueCosts()
    for second, status, pod, (step, time) in steps:
        curve = {"points": [{"step": step, "value": 0.5, "time": NOW + time}]}
        trial = make_trial(pod="sweep-0-0", curve=curve, gpuSeconds=2.0 * step, **status)
        pods = [] if pod is None else [make_pod(**pod)]
        cluster = make_cluster_state(make_job(), trial, *pods, make_node(), now=NOW + second)
        costs.update(cluster, observe(cluster))
    return costs.mean


def test_the_cost_of_a_complete_requeue() -> None:
    assert measured(*OLD_POD, *NEW_POD) == pytest.approx(4.0 + 4.0 + (9.0 - 2.0))


@pytest.mark.parametrize(
    "steps", [OLD_POD, NEW_POD, [*OLD_POD, *NEW_POD[:-1]]], ids=["not restored yet", "a new trial", "no value"]
)
def test_nothing_is_measured_before_the_trial_trains_again(steps: list[Step]) -> None:
    assert measured(*steps) is None


def test_a_requeue_from_the_gate_is_not_measured() -> None:
    gate: Step = (1.0, {"phase": "Gated"}, GATED | {"deleting": True}, (10, 0.0))
    assert measured(gate, *OLD_POD[3:], *NEW_POD) is None

"""An urgent pod with a GPU of its own on a real node whose every share is held by trials: it is bound at once, starts
when they are suspended, and they go on when it has ended, without a step lost. The tests are one story.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import IMAGE, NODE, Node, allocatable, node, until

__all__ = ["node"]
pytestmark = pytest.mark.integration
RESOURCE = "podium.dev/gpu-exclusive"
WORK = "trap 'exit 0' TERM; while :; do echo at work; sleep 0.05; done"
TRIALS = [f"count-{number}" for number in range(4)]


def create_urgent(node: Node, folder: Path, name: str) -> datetime:
    """When it was asked for."""
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", WORK],
        "resources": {"limits": {RESOURCE: "1"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]},
    }
    asked = datetime.now(UTC)
    node.create(pod, folder)
    return asked


def at_work(node: Node, name: str) -> list[datetime]:
    """When the urgent pod wrote each of its lines."""
    return [when(line) for line in node.log_of(name, "main")]


def when(line: str) -> datetime:
    """The kubelet's stamps have nine digits of a second."""
    stamp = line.split(" ", 1)[0]
    return datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00")


def working(node: Node) -> set[str]:
    return {name for name, state in node.states().items() if state not in ("Gated", "Suspended")}


def exclusive(node: Node) -> str | None:
    answer: str | None = node.gpunode()["status"]["gpus"][0].get("exclusivePod")
    return answer


def no_step_lost(node: Node, name: str) -> None:
    steps = node.printed(name)
    assert steps == list(range(1, len(steps) + 1))


def test_an_urgent_pod_runs_while_four_trials_hold_every_share(node: Node, tmp_path: Path) -> None:
    until(lambda: allocatable(node) == "4", "4 shares")
    until(lambda: node.get("node", NODE)["status"]["allocatable"].get(RESOURCE) == "1", "one GPU as a whole")
    for number in range(4):
        node.add_trial(number, tmp_path)
    until(lambda: node.states() == dict.fromkeys(TRIALS, "Gated"), "four at their gates")
    for first in TRIALS:
        node.order(first, *(name for name in TRIALS if name != first))
        until(lambda name=first: node.states()[name] == "Running", f"{first} at work")
    assert node.frozen() == {"count-0-0", "count-1-0", "count-2-0"}
    asked = create_urgent(node, tmp_path, "urgent")
    begun = until(lambda: at_work(node, "urgent"), "the urgent pod at work")[0]
    print(f"urgent pod: at work {(begun - asked).total_seconds():.2f} s after it was asked for")
    assert node.frozen() == {f"{name}-0" for name in TRIALS}
    until(lambda: exclusive(node) == "default/urgent", "its name in the GPUNode")


def test_no_order_lets_a_trial_in_beside_it(node: Node) -> None:
    node.order("count-0", "count-1", "count-2", "count-3")
    until(lambda: node.gpunode()["status"].get("observedEpoch") == node.epoch, "the order heard")
    assert working(node) == set()
    assert len(node.frozen()) == 4


def test_nor_does_another_agent(node: Node) -> None:
    node.kill()
    node.start()
    node.order("count-1", "count-0", "count-2", "count-3")
    until(lambda: node.gpunode()["status"].get("observedEpoch") == node.epoch, "the order heard by the new agent")
    assert exclusive(node) == "default/urgent"
    assert len(node.frozen()) == 4
    node.until_it_serves()


def test_when_it_has_ended_they_go_on_and_no_step_is_lost(node: Node) -> None:
    before = len(node.printed("count-1"))
    lines = until(lambda: at_work(node, "urgent"), "its lines")
    node.cluster.kubectl("delete", "pod", "urgent", "--wait=false")
    until(lambda: len(node.printed("count-1")) > before, "the first in the order goes on")
    until(lambda: exclusive(node) is None, "the GPU given back")
    for name in TRIALS:
        no_step_lost(node, name)
        assert not [line for line in node.log_of(f"{name}-0") if lines[0] < when(line) < lines[-1]], "both at work"
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in node.get("pods")["items"]}
    assert [phases[f"{name}-0"] for name in TRIALS] == ["Running"] * 4, "none was killed"


def test_a_trial_that_cannot_be_suspended_keeps_it_waiting_and_is_named(node: Node, tmp_path: Path) -> None:
    node.cluster.kubectl("delete", "pod", *(f"{name}-0" for name in TRIALS), "--wait=true")
    node.kill()
    node.environment["PODIUM_EXCLUSIVE_SECONDS"] = "1"
    node.start()
    node.until_it_serves()
    node.add_trial(5, tmp_path, methods="app-checkpoint")
    until(lambda: node.states() == {"count-5": "Gated"}, "at its gate")
    node.order("count-5")
    until(lambda: node.states() == {"count-5": "Running"}, "at work")
    create_urgent(node, tmp_path, "patient")

    def told() -> list[dict[str, Any]]:
        events = node.get("events", "--field-selector", "involvedObject.name=patient")["items"]
        return [event for event in events if "HolderNotFreezable" in event.get("message", "")]

    until(told, "the reason in the pod's events")
    assert node.get("pod", "patient")["status"]["phase"] == "Pending"
    assert working(node) == {"count-5"}
    node.cluster.kubectl("delete", "pod", "count-5-0", "--wait=true")
    until(lambda: at_work(node, "patient"), "the urgent pod at work", 120)
    node.cluster.kubectl("delete", "pod", "patient", "--wait=true")

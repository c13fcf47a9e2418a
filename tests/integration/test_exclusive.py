"""An exclusive pod on a real node whose slots are all occupied by trials.

The pod is bound at once and starts when the trials are suspended. The trials resume after its end without a lost step.
Each test continues from the state of the previous one.
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
WORK = "trap 'exit 0' TERM; while :; do echo running; sleep 0.05; done"
TRIALS = [f"count-{number}" for number in range(4)]


def create_exclusive_pod(node: Node, folder: Path, name: str) -> datetime:
    """Create an exclusive pod; return the time of its creation."""
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
    created = datetime.now(UTC)
    node.create(pod, folder)
    return created


def line_times(node: Node, name: str) -> list[datetime]:
    """Return the times of the lines of the exclusive pod."""
    return [when(line) for line in node.log_of(name, "main")]


def when(line: str) -> datetime:
    """Return the time of a log line. The runtime writes nanoseconds, of which datetime reads microseconds."""
    stamp = line.split(" ", 1)[0]
    return datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00")


def working(node: Node) -> set[str]:
    return {name for name, state in node.states().items() if state not in ("Gated", "Suspended")}


def exclusive(node: Node) -> str | None:
    answer: str | None = node.gpunode()["status"]["gpus"][0].get("exclusivePod")
    return answer


def check_no_step_lost(node: Node, name: str) -> None:
    steps = node.printed(name)
    assert steps == list(range(1, len(steps) + 1))


def test_an_exclusive_pod_runs_while_four_trials_occupy_all_slots(node: Node, tmp_path: Path) -> None:
    until(lambda: allocatable(node) == "4", "4 slots")
    until(lambda: node.get("node", NODE)["status"]["allocatable"].get(RESOURCE) == "1", "one exclusive GPU")
    for number in range(4):
        node.add_trial(number, tmp_path)
    until(lambda: node.states() == dict.fromkeys(TRIALS, "Gated"), "four gated trials")
    for first in TRIALS:
        node.set_run_queue(first, *(name for name in TRIALS if name != first))
        until(lambda name=first: node.states()[name] == "Running", f"{first} runs")
    assert node.frozen() == {"count-0-0", "count-1-0", "count-2-0"}
    created = create_exclusive_pod(node, tmp_path, "urgent")
    started = until(lambda: line_times(node, "urgent"), "the exclusive pod runs")[0]
    print(f"exclusive pod: running {(started - created).total_seconds():.2f} s after its creation")
    assert node.frozen() == {f"{name}-0" for name in TRIALS}
    until(lambda: exclusive(node) == "default/urgent", "its name in the GPUNode")


def test_no_run_queue_resumes_a_trial_beside_it(node: Node) -> None:
    node.set_run_queue("count-0", "count-1", "count-2", "count-3")
    until(lambda: node.gpunode()["status"].get("observedEpoch") == node.epoch, "the agent has read the run queue")
    assert working(node) == set()
    assert len(node.frozen()) == 4


def test_a_new_agent_keeps_the_trials_suspended(node: Node) -> None:
    node.kill()
    node.start()
    node.set_run_queue("count-1", "count-0", "count-2", "count-3")
    until(lambda: node.gpunode()["status"].get("observedEpoch") == node.epoch, "the new agent has read the run queue")
    assert exclusive(node) == "default/urgent"
    assert len(node.frozen()) == 4
    node.wait_until_ready()


def test_after_its_end_the_trials_resume_without_a_lost_step(node: Node) -> None:
    before = len(node.printed("count-1"))
    lines = until(lambda: line_times(node, "urgent"), "its lines")
    node.cluster.kubectl("delete", "pod", "urgent", "--wait=false")
    until(lambda: len(node.printed("count-1")) > before, "the first trial of the run queue resumes")
    until(lambda: exclusive(node) is None, "the GPU is free")
    for name in TRIALS:
        check_no_step_lost(node, name)
        assert not [line for line in node.log_of(f"{name}-0") if lines[0] < when(line) < lines[-1]], (
            "both ran at the same time"
        )
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in node.get("pods")["items"]}
    assert [phases[f"{name}-0"] for name in TRIALS] == ["Running"] * 4, "no pod was killed"


def test_a_trial_that_cannot_be_suspended_blocks_it_and_is_reported(node: Node, tmp_path: Path) -> None:
    node.cluster.kubectl("delete", "pod", *(f"{name}-0" for name in TRIALS), "--wait=true")
    node.kill()
    node.environment["PODIUM_EXCLUSIVE_SECONDS"] = "1"
    node.start()
    node.wait_until_ready()
    node.add_trial(5, tmp_path, methods="app-checkpoint")
    until(lambda: node.states() == {"count-5": "Gated"}, "gated")
    node.set_run_queue("count-5")
    until(lambda: node.states() == {"count-5": "Running"}, "running")
    create_exclusive_pod(node, tmp_path, "patient")

    def reported() -> list[dict[str, Any]]:
        events = node.get("events", "--field-selector", "involvedObject.name=patient")["items"]
        return [event for event in events if "HolderNotFreezable" in event.get("message", "")]

    until(reported, "the reason in the pod's events")
    assert node.get("pod", "patient")["status"]["phase"] == "Pending"
    assert working(node) == {"count-5"}
    node.cluster.kubectl("delete", "pod", "count-5-0", "--wait=true")
    until(lambda: line_times(node, "patient"), "the exclusive pod runs", 120)
    node.cluster.kubectl("delete", "pod", "patient", "--wait=true")

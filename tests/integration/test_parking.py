"""CPU parking on a real node: four trials that want three quarters of its CPUs each share one GPU, and others come and
go beside them. The tests are one story.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import IMAGE, NODE, Node, allocatable, node, until

from podium_core.schema.cpu_downsizing import PARKED
from podium_core.schema.quantity import to_thousandths

__all__ = ["node"]
pytestmark = pytest.mark.integration
TRIALS = [f"count-{number}" for number in range(4)]


def part_of_the_node(node: Node, percent: int) -> int:
    """Thousandths of a CPU."""
    return to_thousandths(node.get("node", NODE)["status"]["allocatable"]["cpu"]) * percent // 100


def requested(node: Node, name: str) -> int:
    return to_thousandths(node.get("pod", f"{name}-0")["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def allocated(node: Node, name: str) -> int:
    """What the kubelet has given it."""
    statuses = node.get("pod", f"{name}-0")["status"].get("containerStatuses", [])
    return to_thousandths(statuses[0].get("allocatedResources", {}).get("cpu", "0")) if statuses else 0


def conditions(node: Node, pod: str) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in node.get("pod", pod)["status"]["conditions"]}


def phase(node: Node, pod: str) -> str:
    return str(node.get("pod", pod)["status"]["phase"])


def filler(node: Node, folder: Path, name: str, thousandths: int) -> None:
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"],
        "resources": {"requests": {"cpu": f"{thousandths}m"}},
    }
    spec = {"terminationGracePeriodSeconds": 5, "containers": [container]}
    node.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, folder)


def test_four_trials_that_want_three_quarters_of_the_cpus_each_share_a_gpu(node: Node, tmp_path: Path) -> None:
    wanted = part_of_the_node(node, 75)
    until(lambda: allocatable(node) == "4", "4 shares")
    for number in range(4):
        node.add_trial(number, tmp_path, cpu=f"{wanted}m")
    until(lambda: node.states() == dict.fromkeys(TRIALS, "Gated"), "four at their gates")
    for first in TRIALS:
        others = [name for name in TRIALS if name != first]
        node.order(first, *others)
        until(lambda name=first: node.states()[name] == "Running", f"{first} at work")
        until(lambda name=first: allocated(node, name) == wanted, f"{first} has its CPUs")
        until(lambda names=others: [requested(node, name) for name in names] == [PARKED] * 3, "the others have none")


def test_a_pod_that_fits_beside_the_one_at_work_comes(node: Node, tmp_path: Path) -> None:
    filler(node, tmp_path, "small", part_of_the_node(node, 15))
    until(lambda: phase(node, "small") == "Running", "the filler at work")
    node.cluster.kubectl("delete", "pod", "small", "--wait=true")


def test_a_raise_without_room_keeps_nobody_from_working(node: Node, tmp_path: Path) -> None:
    wanted = part_of_the_node(node, 75)
    node.order()
    until(lambda: node.frozen() == {f"{name}-0" for name in TRIALS}, "all suspended")
    until(lambda: [allocated(node, name) for name in TRIALS] == [PARKED] * 4, "all parked")
    filler(node, tmp_path, "large", part_of_the_node(node, 60))
    until(lambda: phase(node, "large") == "Running", "the filler at work")
    before = len(node.printed("count-2"))
    node.order("count-2", "count-0", "count-1", "count-3")
    until(lambda: len(node.printed("count-2")) > before + 5, "it works without its CPUs")
    until(lambda: conditions(node, "count-2-0").get("PodResizePending") == ("True", "Deferred"), "the kubelet says so")
    node.cluster.kubectl("delete", "pod", "large", "--wait=true")
    until(lambda: allocated(node, "count-2") == wanted, "it has its CPUs when there is room", 120)
    for name in TRIALS:
        steps = node.printed(name)
        assert steps == list(range(1, len(steps) + 1))
        assert phase(node, f"{name}-0") == "Running", "none was evicted"

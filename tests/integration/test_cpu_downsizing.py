"""CPU downsizing on a real node: four trials with three quarters of its CPUs each share a GPU.

Other pods run beside them. Each test continues from the state of the previous one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import IMAGE, NODE, Node, allocatable, node, until

from podium_core.schema.quantity import to_thousandths
from podium_core.schema.template.cpu_downsizing import DOWNSIZED_MILLICPUS

__all__ = ["node"]
pytestmark = pytest.mark.integration
TRIALS = [f"count-{number}" for number in range(4)]


def part_of_the_node(node: Node, percent: int) -> int:
    """Return a part of the node's CPUs in thousandths of a CPU."""
    return to_thousandths(node.get("node", NODE)["status"]["allocatable"]["cpu"]) * percent // 100


def requested(node: Node, name: str) -> int:
    return to_thousandths(node.get("pod", f"{name}-0")["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def allocated(node: Node, name: str) -> int:
    """Return the CPUs that the kubelet has allocated to a trial, in thousandths."""
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


def test_four_trials_that_request_three_quarters_of_the_cpus_each_share_a_gpu(node: Node, tmp_path: Path) -> None:
    wanted = part_of_the_node(node, 75)
    until(lambda: allocatable(node) == "4", "4 slots")
    for number in range(4):
        node.add_trial(number, tmp_path, cpu=f"{wanted}m")
    until(lambda: node.states() == dict.fromkeys(TRIALS, "Gated"), "four gated trials")
    for first in TRIALS:
        others = [name for name in TRIALS if name != first]
        node.set_run_queue(first, *others)
        until(lambda name=first: node.states()[name] == "Running", f"{first} runs")
        until(lambda name=first: allocated(node, name) == wanted, f"{first} has its CPUs")
        until(
            lambda names=others: [requested(node, name) for name in names] == [DOWNSIZED_MILLICPUS] * 3,
            "the other trials are downsized",
        )


def test_a_pod_that_fits_beside_the_holder_starts(node: Node, tmp_path: Path) -> None:
    filler(node, tmp_path, "small", part_of_the_node(node, 15))
    until(lambda: phase(node, "small") == "Running", "the filler runs")
    node.cluster.kubectl("delete", "pod", "small", "--wait=true")


def test_a_trial_resumes_even_if_its_cpu_request_cannot_be_raised(node: Node, tmp_path: Path) -> None:
    wanted = part_of_the_node(node, 75)
    node.set_run_queue()
    until(lambda: node.frozen() == {f"{name}-0" for name in TRIALS}, "all suspended")
    until(lambda: [allocated(node, name) for name in TRIALS] == [DOWNSIZED_MILLICPUS] * 4, "all downsized")
    filler(node, tmp_path, "large", part_of_the_node(node, 60))
    until(lambda: phase(node, "large") == "Running", "the filler runs")
    before = len(node.printed("count-2"))
    node.set_run_queue("count-2", "count-0", "count-1", "count-3")
    until(lambda: len(node.printed("count-2")) > before + 5, "the trial runs without its CPUs")
    until(
        lambda: conditions(node, "count-2-0").get("PodResizePending") == ("True", "Deferred"),
        "the kubelet defers the resize",
    )
    node.cluster.kubectl("delete", "pod", "large", "--wait=true")
    until(lambda: allocated(node, "count-2") == wanted, "the trial has its CPUs once they are free", 120)
    for name in TRIALS:
        steps = node.printed(name)
        assert steps == list(range(1, len(steps) + 1))
        assert phase(node, f"{name}-0") == "Running", "none was evicted"

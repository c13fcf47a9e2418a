"""A node is handed over between another device plugin and Podium, in both directions, on a real kubelet.

At no time do both offer its GPU. `podium doctor` reads the same kubelet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import IMAGE, NODE, Node, allocatable, node, until
from other_plugin import RESOURCE, OtherPlugin

from podium_cli.exit_codes import Exit
from podium_cli.main import run

__all__ = ["node"]
pytestmark = pytest.mark.integration


@pytest.fixture
def plugin_folder(node: Node) -> Path:
    return Path(node.environment["PODIUM_PLUGIN_DIR"])


@pytest.fixture
def other(node: Node, plugin_folder: Path) -> Iterator[OtherPlugin]:
    """Another plugin, which offers the node's GPU from now on."""
    plugin = OtherPlugin(plugin_folder, [node.uuid])
    yield plugin
    plugin.stop()


def usable(node: Node) -> dict[str, str]:
    (condition,) = node.gpunode()["status"]["conditions"]
    return dict(condition)


def offered(node: Node, resource: str) -> str:
    return str(node.get("node", NODE)["status"]["allocatable"].get(resource, "0"))


def pod(name: str, resource: str) -> dict[str, Any]:
    resources = {"limits": {resource: "1"}}
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "3600"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container | {"resources": resources}]},
    }


def phase(node: Node, name: str) -> str:
    return str(node.get("pod", name)["status"]["phase"])


def diagnosis(node: Node, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """Return what `podium doctor` finds about the node, by check."""
    code = run(["doctor", NODE, "-o", "json", "--kubeconfig", str(node.cluster.kubeconfig)])
    items = json.loads(capsys.readouterr().out)["items"]
    assert code is (Exit.FAILED if any(one["result"] == "error" for one in items) else Exit.OK)
    return {one["check"]: one for one in items if one["where"] == NODE}


def events(node: Node) -> list[str]:
    found = node.get("events")["items"]
    return [one["message"] for one in found if one["reason"] == "OtherDevicePlugin"]


def test_the_doctor_reads_a_real_kubelet(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    until(lambda: allocatable(node) == "4", "4 slots")
    found = diagnosis(node, capsys)
    version = "cgroup v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "cgroup v1"
    assert found["CgroupVersion"]["message"].startswith(version)
    assert found["CgroupDriver"]["message"].startswith("cgroupfs")
    assert found["FeatureGates"]["result"] == "ok"
    assert found["ContainerRuntime"]["message"].startswith("containerd://2.")
    assert found["SlotsOffered"]["message"] == "slots: 4; GPUs: 1"
    assert found["GPUsGivenOutOnce"]["result"] == "ok"


def test_podium_steps_back_while_another_plugin_offers_the_gpu(
    node: Node, other: OtherPlugin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until(lambda: offered(node, RESOURCE) == "1", "the other plugin's GPU")
    until(lambda: allocatable(node) == "0", "no slot of Podium")
    until(lambda: usable(node)["status"] == "False", "the condition")
    assert usable(node)["reason"] == "OtherDevicePlugin"
    assert "nvidia.com/gpu (1)" in usable(node)["message"]
    assert [gpu["slots"] for gpu in node.gpunode()["status"]["gpus"]] == [0]
    until(lambda: len(events(node)) == 1, "one Event")
    found = diagnosis(node, capsys)["GPUsGivenOutOnce"]
    assert found["result"] == "error"
    assert "OtherDevicePlugin" in found["message"]
    assert "gpus.mode=reservations" in found["cure"]
    # the other plugin's pod runs, and one that wants a slot does not
    node.create(pod("plain", RESOURCE), tmp_path)
    node.create(pod("slot", "podium.dev/gpu"), tmp_path)
    until(lambda: phase(node, "plain") == "Running", "the pod of the other plugin runs")
    assert phase(node, "slot") == "Pending"
    # from the other plugin to Podium: the plugin goes first, then its pod, and only then Podium offers slots
    other.stop()
    until(lambda: offered(node, RESOURCE) == "0", "the other plugin is gone")
    until(lambda: "default/plain" in usable(node)["message"], "the pod that still has the GPU")
    assert allocatable(node) == "0"
    assert phase(node, "slot") == "Pending"
    node.cluster.kubectl("delete", "pod", "plain", "--wait=true")
    until(lambda: allocatable(node) == "4", "the slots are back", 90)
    until(lambda: usable(node)["status"] == "True", "the condition")
    until(lambda: phase(node, "slot") == "Running", "the pod with a slot runs")
    assert len(events(node)) == 1
    assert diagnosis(node, capsys)["GPUsGivenOutOnce"]["result"] == "ok"
    node.cluster.kubectl("delete", "pod", "slot", "--wait=true")


def test_from_podium_to_another_plugin_and_a_new_agent_offers_nothing(
    node: Node, plugin_folder: Path, tmp_path: Path
) -> None:
    node.wait_until_ready()
    node.kill()  # as agent.nodeSelector does that no longer selects the node
    until(lambda: allocatable(node) == "0", "no slot without an agent")
    plugin = OtherPlugin(plugin_folder, [node.uuid])
    try:
        node.create(pod("plain", RESOURCE), tmp_path)
        until(lambda: phase(node, "plain") == "Running", "the pod of the other plugin runs")
        node.start()
        until(lambda: b"OtherDevicePlugin: " in node.log.read_bytes()[node.log_before :], "the agent's reason")
        until(lambda: b"advertising 0 slots" in node.log.read_bytes()[node.log_before :], "its device plugin")
        until(lambda: usable(node)["status"] == "False", "the condition")
        log = node.log.read_bytes()[node.log_before :]
        assert b"advertising 4 slots" not in log, "not even for a moment"
        assert allocatable(node) == "0"
        node.cluster.kubectl("delete", "pod", "plain", "--wait=true")
    finally:
        plugin.stop()
    until(lambda: allocatable(node) == "4", "the slots are back", 90)

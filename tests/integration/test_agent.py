"""The agent on a real node: kubelet, containerd, cgroups, device plugin, gate, logs. Read from outside of it.

The tests are one story and run in their order.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_stage import IMAGE, NODE, Node, allocatable, node, until

__all__ = ["node"]
pytestmark = pytest.mark.integration


def test_the_kubelet_counts_the_shares(node: Node) -> None:
    until(lambda: allocatable(node) == "4", "4 shares", 60)


def test_a_pod_that_is_no_trial_is_told_with_its_gpu(node: Node, tmp_path: Path) -> None:
    share = {"requests": {"podium.dev/gpu": "1"}, "limits": {"podium.dev/gpu": "1"}}
    container = {"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "600"]}
    meta = {"name": "guest", "namespace": "default", "annotations": {"podium.dev/gpu-memory": "1000000"}}
    spec = {"restartPolicy": "Never", "containers": [{**container, "resources": share}]}
    node.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, tmp_path)

    def guests() -> list[tuple[str, int]]:
        return [(one["pod"], one["memory"]) for one in node.gpunode()["status"]["gpus"][0].get("otherPods", [])]

    until(lambda: guests() == [("guest", 1_000_000)], "the guest in the GPUNode")
    node.cluster.kubectl("delete", "pod", "guest", "--grace-period=0", "--force")
    until(lambda: guests() == [], "no guest in the GPUNode")


def test_gates_hold_until_the_order_names_a_trial(node: Node, tmp_path: Path) -> None:
    for number in range(3):
        node.add_trial(number, tmp_path)
    until(lambda: node.states() == dict.fromkeys(node.trials, "Gated"), "three gated trials", 60)

    def at_its_gate() -> bool:
        """Gated is also what a pod is called before its gate runs; until then there is no log to ask for."""
        gates = node.get("pod", "count-0-0")["status"].get("initContainerStatuses", [])
        return any("running" in gate["state"] for gate in gates)

    until(at_its_gate, "the gate of count-0")
    until(
        lambda: "NoRunQueue" in node.cluster.kubectl("logs", "count-0-0", "-c", "podium-gate"),
        "the reason in the gate's log",
    )
    node.order("count-0", "count-1", "count-2")
    until(lambda: node.states()["count-0"] == "Running", "the first at work")
    assert [node.states()[name] for name in ("count-1", "count-2")] == ["Gated", "Gated"]
    until(lambda: len(node.printed("count-0")) > 5, "steps")


def test_a_trial_without_a_gpu_only_has_its_log_read(node: Node, tmp_path: Path) -> None:
    """It stays for all that follows: a pod that will never have a share must be in nobody's way."""
    node.add_trial(9, tmp_path, gpus=0)
    until(lambda: node.get("hpt", "count-9").get("status", {}).get("lastStep", 0) > 5, "its curve")
    assert "count-9" not in node.states()
    kinds = {one["type"] for one in node.get("pod", "count-9-0")["status"]["conditions"]}
    assert not any(kind.startswith("podium.dev/") for kind in kinds)


def test_a_new_order_hands_over_and_loses_no_step(node: Node) -> None:
    node.order("count-1", "count-0", "count-2")
    until(lambda: node.frozen() == {"count-0-0"}, "the old holder frozen")
    until(lambda: node.states()["count-1"] == "Running", "the new one at work")
    stopped = node.printed("count-0")[-1]
    for _ in range(4):
        node.order("count-0", "count-1", "count-2")
        until(lambda: node.frozen() == {"count-1-0"}, "hand-over")
        node.order("count-1", "count-0", "count-2")
        until(lambda: node.frozen() == {"count-0-0"}, "hand-over back")
    steps = node.printed("count-0")
    assert steps == list(range(1, len(steps) + 1))
    assert steps[-1] > stopped

    def shown() -> dict[str, str]:
        return {one["type"]: one["status"] for one in node.get("pod", "count-0-0")["status"]["conditions"]}

    until(lambda: shown()["podium.dev/Suspended"] == "True", "the condition")
    assert shown()["podium.dev/holds-gpu"] == "False"


def test_a_killed_agent_goes_on_where_it_was(node: Node) -> None:
    # a status is written every two seconds at most: what a killed agent had not written yet is not known to the next
    until(
        lambda: len(node.get("hpt", "count-0").get("status", {}).get("allocations", [])) >= 5,
        "five turns in the status",
    )
    node.kill()
    before = len(node.printed("count-1"))
    until(lambda: len(node.printed("count-1")) > before + 5, "the trial works on without an agent")
    assert node.frozen() == {"count-0-0"}
    node.start()
    node.order("count-0", "count-1", "count-2")
    until(lambda: node.frozen() == {"count-1-0"}, "the new agent follows the order")
    steps = node.printed("count-1")

    def caught_up() -> bool:
        status = node.get("hpt", "count-1").get("status", {})
        return status.get("lastStep") == steps[-1] and status["logCursor"]["lines"] == len(steps)

    until(caught_up, "every line read exactly once")
    points = [point["step"] for point in node.get("hpt", "count-1")["status"]["curve"]["points"]]
    assert points == sorted(set(points))
    assert points[0] == 1


def test_the_plugin_comes_back_after_a_kubelet_restart(node: Node) -> None:
    node.cluster.restart("kubelet", NODE)
    until(lambda: allocatable(node) == "4", "4 shares again", 60)
    # the new kubelet admits what runs already anew, and fails it where the plugin comes too late
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in node.get("pods")["items"]}
    assert phases == {"count-0-0": "Running", "count-1-0": "Running", "count-2-0": "Pending", "count-9-0": "Running"}
    assert node.frozen() == {"count-1-0"}


def test_when_the_holder_ends_the_next_goes_on_at_once(node: Node) -> None:
    before = len(node.printed("count-1"))
    node.cluster.kubectl("delete", "pod", "count-0-0", "--wait=false")
    until(lambda: len(node.printed("count-1")) > before, "the next one works")
    holds = until(lambda: node.get("hpt", "count-0")["status"]["allocations"], "holds")
    assert len(holds) >= 5
    until(lambda: all("end" in hold for hold in node.get("hpt", "count-0")["status"]["allocations"]), "all holds ended")


def test_a_suspended_trial_that_is_deleted_hears_its_sigterm(node: Node) -> None:
    node.order("count-2", "count-1")
    until(lambda: node.states().get("count-2") == "Running", "count-2 at work")
    # so that its end can be read before it is gone
    node.cluster.kubectl("patch", "pod", "count-1-0", "--type=merge", "-p", finalizers('["podium.dev/test"]'))
    node.cluster.kubectl("delete", "pod", "count-1-0", "--wait=false")

    def ended() -> list[int]:
        states = [one["state"] for one in node.get("pod", "count-1-0")["status"]["containerStatuses"]]
        return [state["terminated"]["exitCode"] for state in states if "terminated" in state]

    codes = until(ended, "its end")
    node.cluster.kubectl("patch", "pod", "count-1-0", "--type=merge", "-p", finalizers("null"))
    until(lambda: "count-1-0" not in {pod["metadata"]["name"] for pod in node.get("pods")["items"]}, "it is gone")
    assert codes == [0], "137: it was left to the SIGKILL at the end of its grace period"
    until(lambda: node.frozen() == set(), "the holder goes on")


def finalizers(names: str) -> str:
    return f'{{"metadata": {{"finalizers": {names}}}}}'


def test_a_deleted_pod_saves_first_and_the_next_one_counts_what_was_lost(node: Node, tmp_path: Path) -> None:
    """Hook, marker, the agent's look at it after the end, the gate's word, and the count: nothing of it is told."""

    def status() -> dict[str, Any]:
        return dict(node.get("hpt", "count-7").get("status", {}))

    node.add_trial(7, tmp_path, saves=True)
    node.order("count-7", "count-2")
    until(lambda: status().get("checkpoint", {}).get("step") == 1, "its first save")
    assert status()["checkpoint"]["node"] == NODE
    until(lambda: status().get("lastStep", 0) > 20, "steps")
    node.cluster.kubectl("delete", "pod", "count-7-0", "--wait=true")
    until(lambda: all("end" in hold for hold in status()["allocations"]), "the end of its turn")
    before = status()
    assert before["checkpoint"]["step"] > 20, "saved because it was asked: by itself it does so once"
    lost = before["lastStep"] - before["checkpoint"]["step"]
    node.order("count-2")
    node.add_trial(7, tmp_path, saves=True, attempt=1)
    until(lambda: node.states().get("count-7") == "Gated", "the next one at its gate")
    assert status()["logCursor"] == before["logCursor"], "nothing is counted before it has begun"
    node.order("count-7", "count-2")
    until(lambda: status().get("logCursor", {}).get("podUid") != before["logCursor"]["podUid"], "the new pod's record")
    steps = until(lambda: node.printed("count-7", attempt=1), "its first steps")
    assert steps[0] == before["checkpoint"]["step"] + 1
    losses = status()["lostWork"]
    assert (losses["steps"], losses["count"]) == (lost, int(lost > 0))
    assert 0.0 <= losses["gpuSeconds"] < before["gpuSeconds"], "a marker is seen at most half a second late"
    node.kill()
    node.start()
    node.until_it_serves()
    until(lambda: status()["lastStep"] > before["lastStep"] + 20, "it goes on, under another agent")
    assert status()["lostWork"] == losses
    node.cluster.kubectl("delete", "pod", "count-7-1", "--wait=true")


def test_a_pod_deleted_by_force_keeps_its_gpu_until_its_processes_have_ended(node: Node, tmp_path: Path) -> None:
    """The API forgets it at once; with the kubelet away nobody ends it, and only the kernel knows. A new agent too."""

    def settled() -> bool:
        return int(node.gpunode()["status"].get("observedEpoch", 0)) == node.epoch

    node.add_trial(8, tmp_path)
    node.order("count-2", "count-8")
    until(lambda: node.states() == {"count-2": "Running", "count-8": "Gated"}, "one at work, one at its gate")
    node.cluster.kill("kubelet", NODE)
    node.cluster.kubectl("delete", "pod", "count-2-0", "--force", "--grace-period=0", "--wait=true")
    for new_agent in (False, True):
        if new_agent:
            node.kill()
            node.start()
        node.order("count-8")
        until(settled, "the order heard")
        # a new agent takes a moment to learn, from the one before it, which GPU the gated one has
        until(lambda: "count-8" in node.states(), "both known")
        assert node.states() == {"count-2": "Running", "count-8": "Gated"}
    node.cluster.start("kubelet", NODE)
    until(lambda: "count-2" not in node.states(), "the orphan ended", 120)
    # or the new kubelet gave count-8 up, where the plugin came too late (UnexpectedAdmissionError)
    until(lambda: node.states() in ({"count-8": "Running"}, {}), "the next at work")
    node.until_it_serves()
    node.cluster.kubectl("delete", "pod", "count-8-0", "--wait=true")


def test_a_second_agent_waits_for_the_first(node: Node) -> None:
    with (node.log.parent / "second.log").open("wb") as file:
        second = subprocess.Popen([sys.executable, "-m", "podium_agent.main"], env=node.environment, stderr=file)
    try:
        until(lambda: "AgentLockHeld" in (node.log.parent / "second.log").read_text(), "the reason in its log")
        node.kill()
        until(lambda: "following epoch" in (node.log.parent / "second.log").read_text(), "it takes over")
    finally:
        second.kill()
        second.wait(20)
    node.start()
    node.until_it_serves()


def test_released_means_nothing_is_frozen(node: Node, tmp_path: Path) -> None:
    for number in (3, 4):
        node.add_trial(number, tmp_path)
    until(lambda: [node.states().get(f"count-{n}") for n in (3, 4)] == ["Gated", "Gated"], "both at their gates")
    node.order("count-4", "count-3")
    until(lambda: node.states()["count-4"] == "Running", "count-4 at work")
    node.order("count-3", "count-4")
    until(lambda: node.frozen() == {"count-4-0"}, "count-4 suspended")
    node.cluster.kubectl("patch", "gpunode", NODE, "--type=merge", "-p", '{"spec": {"released": true}}')
    until(lambda: node.frozen() == set(), "all thawed")
    until(lambda: node.states() == {"count-3": "Running", "count-4": "Running"}, "both said to run")

"""The agent on a real node: kubelet, containerd, cgroups, device plugin, gate and logs.

Each test continues from the state of the previous one.
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


def test_the_kubelet_counts_the_slots(node: Node) -> None:
    until(lambda: allocatable(node) == "4", "4 slots", 60)


def test_the_gpunode_lists_another_pod_with_its_gpu(node: Node, tmp_path: Path) -> None:
    share = {"requests": {"podium.dev/gpu": "1"}, "limits": {"podium.dev/gpu": "1"}}
    container = {"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "600"]}
    meta = {"name": "other", "namespace": "default", "annotations": {"podium.dev/gpu-memory": "1000000"}}
    spec = {"restartPolicy": "Never", "containers": [{**container, "resources": share}]}
    node.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, tmp_path)

    def other_pods() -> list[tuple[str, int]]:
        return [(one["pod"], one["memory"]) for one in node.gpunode()["status"]["gpus"][0].get("otherPods", [])]

    until(lambda: other_pods() == [("other", 1_000_000)], "the other pod in the GPUNode")
    node.cluster.kubectl("delete", "pod", "other", "--grace-period=0", "--force")
    until(lambda: other_pods() == [], "no other pod in the GPUNode")


def test_gates_block_until_the_run_queue_has_a_trial(node: Node, tmp_path: Path) -> None:
    for number in range(3):
        node.add_trial(number, tmp_path)
    until(lambda: node.states() == dict.fromkeys(node.trials, "Gated"), "three gated trials", 60)

    def gate_runs() -> bool:
        """Return whether the gate runs. The state is Gated even before that, when there is no log yet."""
        gates = node.get("pod", "count-0-0")["status"].get("initContainerStatuses", [])
        return any("running" in gate["state"] for gate in gates)

    until(gate_runs, "the gate of count-0")
    until(
        lambda: "NoRunQueue" in node.cluster.kubectl("logs", "count-0-0", "-c", "podium-gate"),
        "the reason in the gate's log",
    )
    node.set_run_queue("count-0", "count-1", "count-2")
    until(lambda: node.states()["count-0"] == "Running", "the first trial runs")
    assert [node.states()[name] for name in ("count-1", "count-2")] == ["Gated", "Gated"]
    until(lambda: len(node.printed("count-0")) > 5, "steps")


def test_of_a_trial_without_a_gpu_the_agent_only_reads_the_log(node: Node, tmp_path: Path) -> None:
    """The pod remains for the next tests, because a pod without a slot must not affect other trials."""
    node.add_trial(9, tmp_path, gpus=0)
    until(lambda: node.get("hpt", "count-9").get("status", {}).get("lastStep", 0) > 5, "its curve")
    assert "count-9" not in node.states()
    kinds = {one["type"] for one in node.get("pod", "count-9-0")["status"]["conditions"]}
    assert not any(kind.startswith("podium.dev/") for kind in kinds)


def test_a_new_run_queue_causes_a_switch_without_a_lost_step(node: Node) -> None:
    node.set_run_queue("count-1", "count-0", "count-2")
    until(lambda: node.frozen() == {"count-0-0"}, "the previous holder frozen")
    until(lambda: node.states()["count-1"] == "Running", "the new holder runs")
    stopped = node.printed("count-0")[-1]
    for _ in range(4):
        node.set_run_queue("count-0", "count-1", "count-2")
        until(lambda: node.frozen() == {"count-1-0"}, "the switch")
        node.set_run_queue("count-1", "count-0", "count-2")
        until(lambda: node.frozen() == {"count-0-0"}, "the switch back")
    steps = node.printed("count-0")
    assert steps == list(range(1, len(steps) + 1))
    assert steps[-1] > stopped

    def conditions() -> dict[str, str]:
        return {one["type"]: one["status"] for one in node.get("pod", "count-0-0")["status"]["conditions"]}

    until(lambda: conditions()["podium.dev/Suspended"] == "True", "the condition")
    assert conditions()["podium.dev/holds-gpu"] == "False"


def test_a_new_agent_continues_where_the_killed_one_stopped(node: Node) -> None:
    # the agent writes a status at most every two seconds, and a killed agent loses what it has not written
    until(
        lambda: len(node.get("hpt", "count-0").get("status", {}).get("allocations", [])) >= 5,
        "five allocations in the status",
    )
    node.kill()
    before = len(node.printed("count-1"))
    until(lambda: len(node.printed("count-1")) > before + 5, "the trial continues without an agent")
    assert node.frozen() == {"count-0-0"}
    node.start()
    node.set_run_queue("count-0", "count-1", "count-2")
    until(lambda: node.frozen() == {"count-1-0"}, "the new agent applies the run queue")
    steps = node.printed("count-1")

    def caught_up() -> bool:
        status = node.get("hpt", "count-1").get("status", {})
        return status.get("lastStep") == steps[-1] and status["logCursor"]["lines"] == len(steps)

    until(caught_up, "every line read exactly once")
    points = [point["step"] for point in node.get("hpt", "count-1")["status"]["curve"]["points"]]
    assert points == sorted(set(points))
    assert points[0] == 1


def test_the_plugin_registers_again_after_a_kubelet_restart(node: Node) -> None:
    node.cluster.restart("kubelet", NODE)
    until(lambda: allocatable(node) == "4", "4 slots again", 60)
    # the new kubelet admits running pods again, and fails them if the plugin registers too late
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in node.get("pods")["items"]}
    assert phases == {"count-0-0": "Running", "count-1-0": "Running", "count-2-0": "Pending", "count-9-0": "Running"}
    assert node.frozen() == {"count-1-0"}


def test_when_the_holder_ends_the_next_trial_resumes_at_once(node: Node) -> None:
    before = len(node.printed("count-1"))
    node.cluster.kubectl("delete", "pod", "count-0-0", "--wait=false")
    until(lambda: len(node.printed("count-1")) > before, "the next trial resumes")
    allocations = until(lambda: node.get("hpt", "count-0")["status"]["allocations"], "allocations")
    assert len(allocations) >= 5
    until(
        lambda: all("end" in one for one in node.get("hpt", "count-0")["status"]["allocations"]),
        "all allocations ended",
    )


def test_a_deleted_suspended_trial_receives_its_sigterm(node: Node) -> None:
    node.set_run_queue("count-2", "count-1")
    until(lambda: node.states().get("count-2") == "Running", "count-2 runs")
    # a finalizer keeps the pod, so that the test can read its exit code
    node.cluster.kubectl("patch", "pod", "count-1-0", "--type=merge", "-p", finalizers('["podium.dev/test"]'))
    node.cluster.kubectl("delete", "pod", "count-1-0", "--wait=false")

    def ended() -> list[int]:
        states = [one["state"] for one in node.get("pod", "count-1-0")["status"]["containerStatuses"]]
        return [state["terminated"]["exitCode"] for state in states if "terminated" in state]

    codes = until(ended, "its exit code")
    node.cluster.kubectl("patch", "pod", "count-1-0", "--type=merge", "-p", finalizers("null"))
    until(lambda: "count-1-0" not in {pod["metadata"]["name"] for pod in node.get("pods")["items"]}, "the pod is gone")
    assert codes == [0], "137 would mean SIGKILL at the end of its grace period"
    until(lambda: node.frozen() == set(), "the holder still runs")


def finalizers(names: str) -> str:
    return f'{{"metadata": {{"finalizers": {names}}}}}'


def test_a_deleted_pod_writes_a_checkpoint_and_the_next_attempt_counts_the_lost_work(
    node: Node, tmp_path: Path
) -> None:
    """The hook, the marker, the agent and the gate work together without the operator."""

    def status() -> dict[str, Any]:
        return dict(node.get("hpt", "count-7").get("status", {}))

    node.add_trial(7, tmp_path, checkpoints=True)
    node.set_run_queue("count-7", "count-2")
    until(lambda: status().get("checkpoint", {}).get("step") == 1, "its first checkpoint")
    assert status()["checkpoint"]["node"] == NODE
    until(lambda: status().get("lastStep", 0) > 20, "steps")
    node.cluster.kubectl("delete", "pod", "count-7-0", "--wait=true")
    until(lambda: all("end" in one for one in status()["allocations"]), "the end of its time slice")
    before = status()
    assert before["checkpoint"]["step"] > 20, "a requested checkpoint: without a request there is only the first one"
    lost = before["lastStep"] - before["checkpoint"]["step"]
    node.set_run_queue("count-2")
    node.add_trial(7, tmp_path, checkpoints=True, attempt=1)
    until(lambda: node.states().get("count-7") == "Gated", "the next attempt is gated")
    assert status()["logCursor"] == before["logCursor"], "nothing is counted before the attempt has started"
    node.set_run_queue("count-7", "count-2")
    until(
        lambda: status().get("logCursor", {}).get("podUid") != before["logCursor"]["podUid"],
        "the log cursor of the new pod",
    )
    steps = until(lambda: node.printed("count-7", attempt=1), "its first steps")
    assert steps[0] == before["checkpoint"]["step"] + 1
    losses = status()["lostWork"]
    assert (losses["steps"], losses["count"]) == (lost, int(lost > 0))
    assert 0.0 <= losses["gpuSeconds"] < before["gpuSeconds"], "the agent reads a marker at most half a second late"
    node.kill()
    node.start()
    node.wait_until_ready()
    until(lambda: status()["lastStep"] > before["lastStep"] + 20, "the trial continues with another agent")
    assert status()["lostWork"] == losses
    node.cluster.kubectl("delete", "pod", "count-7-1", "--wait=true")


def test_a_pod_deleted_by_force_keeps_its_gpu_until_its_processes_have_ended(node: Node, tmp_path: Path) -> None:
    """Its API object is deleted at once.

    Without a kubelet its processes still run, which a new agent must see too.
    """

    def applied() -> bool:
        return int(node.gpunode()["status"].get("observedEpoch", 0)) == node.epoch

    node.add_trial(8, tmp_path)
    node.set_run_queue("count-2", "count-8")
    until(lambda: node.states() == {"count-2": "Running", "count-8": "Gated"}, "one trial runs, one is gated")
    node.cluster.kill("kubelet", NODE)
    node.cluster.kubectl("delete", "pod", "count-2-0", "--force", "--grace-period=0", "--wait=true")
    for new_agent in (False, True):
        if new_agent:
            node.kill()
            node.start()
        node.set_run_queue("count-8")
        until(applied, "the agent has read the run queue")
        # a new agent needs a moment to read, from the state of the previous one, which GPU the gated trial has
        until(lambda: "count-8" in node.states(), "both trials known")
        assert node.states() == {"count-2": "Running", "count-8": "Gated"}
    node.cluster.start("kubelet", NODE)
    until(lambda: "count-2" not in node.states(), "the processes of the deleted pod have ended", 120)
    # or the new kubelet failed count-8, if the plugin registered too late (UnexpectedAdmissionError)
    until(lambda: node.states() in ({"count-8": "Running"}, {}), "the next trial runs")
    node.wait_until_ready()
    node.cluster.kubectl("delete", "pod", "count-8-0", "--wait=true")


def test_a_second_agent_waits_for_the_end_of_the_first(node: Node) -> None:
    with (node.log.parent / "second.log").open("wb") as file:
        second = subprocess.Popen([sys.executable, "-m", "podium_agent.main"], env=node.environment, stderr=file)
    try:
        until(lambda: "AgentLockHeld" in (node.log.parent / "second.log").read_text(), "the reason in its log")
        node.kill()
        until(lambda: "following epoch" in (node.log.parent / "second.log").read_text(), "it replaces the first one")
    finally:
        second.kill()
        second.wait(20)
    node.start()
    node.wait_until_ready()


def test_a_released_node_has_nothing_frozen(node: Node, tmp_path: Path) -> None:
    for number in (3, 4):
        node.add_trial(number, tmp_path)
    until(lambda: [node.states().get(f"count-{n}") for n in (3, 4)] == ["Gated", "Gated"], "both gated")
    node.set_run_queue("count-4", "count-3")
    until(lambda: node.states()["count-4"] == "Running", "count-4 runs")
    node.set_run_queue("count-3", "count-4")
    until(lambda: node.frozen() == {"count-4-0"}, "count-4 suspended")
    node.cluster.kubectl("patch", "gpunode", NODE, "--type=merge", "-p", '{"spec": {"released": true}}')
    until(lambda: node.frozen() == set(), "all thawed")
    until(lambda: node.states() == {"count-3": "Running", "count-4": "Running"}, "both reported as running")

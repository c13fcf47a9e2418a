"""Evictions, preemptions and drains: trials complete a checkpoint, move and lose no work."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB = "evictions"
NODE = "node-1"
Scene = Any

URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}


def other_pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that displaces a trial or two.

    The node has 2 CPUs. Podium's own pods request 0.42 CPUs, each trial 0.25.
    """
    container = {
        "name": "main",
        "image": "localhost/podium-digits:dev",
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": "900m"}},
    }
    meta = {"name": name, "namespace": "default"}
    pod_spec = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec}


# The first one makes the default scheduler preempt trials. The second one is bound already, so the kubelet preempts
# them. The kubelet then deletes no pod; it terminates pods itself, as when its node shuts down or runs out of memory.
OTHER_PODS = {
    "preemptor": other_pod("preemptor", priorityClassName="urgent", nodeSelector={"kubernetes.io/hostname": NODE}),
    "critical": other_pod("critical", priorityClassName="system-node-critical", nodeName=NODE),
}


def test_evictions_preemptions_and_a_drain_lose_no_work(scene: Scene) -> None:
    logs = scene.search(JOB, "held", trials=8, seconds=0.5, cpu="250m")
    scene.until(logs, "steps", lambda: min(map(scene.last_step, scene.trials(JOB)), default=0) >= 3, 120)

    pod = scene.until(logs, "a frozen trial", lambda: scene.in_phase(JOB, "Suspended"), 60)
    evict(scene, pod)
    wait_until_gone(scene, logs, {pod["metadata"]["uid"]})
    pod = scene.until(logs, "a running trial", lambda: scene.in_phase(JOB, "Running"), 60)
    evict(scene, pod)
    wait_until_gone(scene, logs, {pod["metadata"]["uid"]})

    scene.apply(URGENT)
    for name, manifest in OTHER_PODS.items():
        scene.until(logs, f"a full {NODE}", lambda: len(pods_on_node(scene)) >= 3, 90)
        before = pods_on_node(scene)
        scene.apply(manifest)
        try:
            scene.until(logs, f"{name} runs", lambda name=name: runs(scene, name), 90)
            assert before - pods_on_node(scene), f"{name} displaced a trial"
        finally:
            scene.site.kubectl("delete", "pod", name, "--ignore-not-found", "--timeout=60s", timeout=70)

    scene.until(logs, f"trials on {NODE} again", lambda: len(pods_on_node(scene)) >= 2, 60)
    scene.site.podium("drain", NODE, "--wait", "0")
    try:
        scene.until(logs, f"{NODE} is empty", lambda: not pods_on_node(scene), 120)
    finally:
        scene.site.podium("drain", NODE, "--undo")
    scene.release(JOB)

    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    trials, messages = scene.trials(JOB), requeues(scene)
    losses = {trial["metadata"]["name"]: trial["status"].get("lostWork") for trial in trials}
    assert scene.check_results(logs) == 0, (
        f"each pod completed a checkpoint within its grace period: {losses}; {messages}"
    )
    attempts = [trial["status"]["attempt"] for trial in trials]
    assert max(attempts) < 10, f"{attempts}: the back-off grows with each displacement of a trial"
    assert all(trial["status"]["failures"] == 0 for trial in trials), "a displacement does not count as a failure"
    for reason in ("EvictionByEvictionAPI", "PreemptionByScheduler", "TerminationByKubelet", "NodeDraining"):
        assert reason in messages, f"{reason}: {messages}"
    scene.check_no_leaks(JOB)
    scene.finish(JOB)


def pods_on_node(scene: Scene) -> set[str]:
    """Return the UIDs of the trials' pods on the node that have not ended."""
    pods = (pod for pod in scene.pods(JOB) if pod["spec"].get("nodeName") == NODE)
    return {pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")}


def requeues(scene: Scene) -> str:
    """Return the messages of all events of requeues."""
    found = scene.site.objects("events", "--field-selector", "involvedObject.kind=HyperParamTrial,reason=TrialRequeued")
    names = [(event["involvedObject"]["name"], event["message"]) for event in found]
    return "; ".join(f"{name}: {message}" for name, message in names if name.startswith(JOB))


def runs(scene: Scene, name: str) -> bool:
    return str(scene.site.get("pod", name)["status"]["phase"]) == "Running"


def evict(scene: Scene, pod: dict[str, Any]) -> None:
    """Evict a pod with the eviction API, as `kubectl drain` and autoscalers do."""
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    scene.site.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def wait_until_gone(scene: Scene, logs: Any, uids: set[str]) -> None:
    scene.until(logs, "the pods are gone", lambda: not uids & {p["metadata"]["uid"] for p in scene.pods(JOB)}, 60)

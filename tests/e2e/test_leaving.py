"""Whoever wants a trial's place: it saves first, goes on elsewhere, and loses nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB = "leaving"
NODE = "node-1"
Scene = Any

URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}


def guest(name: str, **spec: Any) -> dict[str, Any]:
    """For it a trial or two have to go: the node has 2 CPUs, Podium's own pods ask for 0.42, each trial for 0.25."""
    container = {
        "name": "guest",
        "image": "localhost/podium-digits:dev",
        "command": ["sleep", "600"],
        "resources": {"requests": {"cpu": "900m"}},
    }
    meta = {"name": name, "namespace": "default"}
    about = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": about}


# the one makes the default scheduler take trials' places, the other, bound already, makes the kubelet do so: it deletes
# no pod then, it ends them of its own accord, as when its node shuts down or has no memory left
GUESTS = {
    "preemptor": guest("preemptor", priorityClassName="urgent", nodeSelector={"kubernetes.io/hostname": NODE}),
    "critical": guest("critical", priorityClassName="system-node-critical", nodeName=NODE),
}


def test_evictions_preemptions_and_a_drain_lose_nothing(scene: Scene) -> None:
    witness = scene.search(JOB, "held", trials=8, seconds=0.5, cpu="250m")
    scene.until(witness, "steps", lambda: min(map(scene.last_step, scene.trials(JOB)), default=0) >= 3, 120)

    pod = scene.until(witness, "a frozen trial", lambda: scene.in_phase(JOB, "Suspended"), 60)
    evict(scene, pod)
    gone(scene, witness, {pod["metadata"]["uid"]})
    pod = scene.until(witness, "a trial at work", lambda: scene.in_phase(JOB, "Running"), 60)
    evict(scene, pod)
    gone(scene, witness, {pod["metadata"]["uid"]})

    scene.apply(URGENT)
    for name, manifest in GUESTS.items():
        scene.until(witness, f"a full {NODE}", lambda: len(there(scene)) >= 3, 90)
        before = there(scene)
        scene.apply(manifest)
        try:
            scene.until(witness, f"{name} runs", lambda name=name: runs(scene, name), 90)
            assert before - there(scene), f"{name} took a trial's place"
        finally:
            scene.site.kubectl("delete", "pod", name, "--ignore-not-found", "--timeout=60s", timeout=70)

    scene.until(witness, f"trials on {NODE} again", lambda: len(there(scene)) >= 2, 60)
    scene.site.podium("drain", NODE, "--wait", "0")
    try:
        scene.until(witness, f"{NODE} is empty", lambda: not there(scene), 120)
    finally:
        scene.site.podium("drain", NODE, "--undo")
    scene.let_go(JOB)

    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    trials, told = scene.trials(JOB), requeues(scene)
    losses = {trial["metadata"]["name"]: trial["status"].get("lostWork") for trial in trials}
    assert scene.judge(witness) == 0, f"each was saved within its grace period: {losses}; {told}"
    attempts = [trial["status"]["attempt"] for trial in trials]
    assert max(attempts) < 10, f"{attempts}: whoever is thrown out again and again waits longer and longer"
    assert all(trial["status"]["failures"] == 0 for trial in trials), "to be sent away is no failure"
    for who in ("EvictionByEvictionAPI", "PreemptionByScheduler", "TerminationByKubelet", "NodeDraining"):
        assert who in told, f"{who}: {told}"
    scene.nothing_leaks(JOB)
    scene.finish(JOB)


def there(scene: Scene) -> set[str]:
    """Uids of the trials' pods on the node that have not ended."""
    pods = (pod for pod in scene.pods(JOB) if pod["spec"].get("nodeName") == NODE)
    return {pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")}


def requeues(scene: Scene) -> str:
    """What the Events say of every pod that was sent away."""
    found = scene.site.objects("events", "--field-selector", "involvedObject.kind=HyperParamTrial,reason=TrialRequeued")
    names = [(event["involvedObject"]["name"], event["message"]) for event in found]
    return "; ".join(f"{name}: {message}" for name, message in names if name.startswith(JOB))


def runs(scene: Scene, name: str) -> bool:
    return str(scene.site.get("pod", name)["status"]["phase"]) == "Running"


def evict(scene: Scene, pod: dict[str, Any]) -> None:
    """By the eviction API, as `kubectl drain` and autoscalers do."""
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    scene.site.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def gone(scene: Scene, witness: Any, uids: set[str]) -> None:
    scene.until(witness, "they are gone", lambda: not uids & {p["metadata"]["uid"] for p in scene.pods(JOB)}, 60)

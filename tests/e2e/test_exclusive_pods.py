"""An exclusive pod on a cluster whose slots are all occupied by eight trials.

Trials that can be suspended lose no work. Otherwise one trial is deleted and loses the announced work.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
RESOURCE = "podium.dev/gpu-exclusive"
HELD_AT, SAVED_AT = 53, 50  # steps.py: the step at which a trial is held, and its last checkpoint
# the agent learns the pod's name a moment later than that the GPU is reserved
WHY = r"(?:Pod default/pressing|An exclusive pod) gets the whole GPU \S+\."
COST = r"Without a new checkpoint, (\d+) steps and ([0-9.]+) GPU-seconds are lost\."
Scene = Any


def test_the_trials_of_one_gpu_are_suspended_for_an_exclusive_pod_and_lose_no_work(scene: Scene) -> None:
    policy = {"name": "round_robin", "settings": {"quantum": 1}}
    logs = scene.search("yielding", "held", 8, 0.05, policy=policy, suspension={"methods": ["freeze"]})

    def full() -> bool:
        """Return whether trials, pods and GPUs, which have three writers, show that all eight have run."""
        running = [pod for pod in scene.pods("yielding") if pod["status"]["phase"] == "Running"]
        return len(running) == taken(scene) == sum(step > 0 for step in last_steps(scene, "yielding")) == 8

    scene.until(logs, "every slot is occupied by a trial that has run", full, 120)
    assert slots(scene) == 8
    pods = {pod["metadata"]["uid"] for pod in scene.pods("yielding")}

    requested = datetime.now(UTC)
    pod = start_exclusive_pod(scene, logs, "urgent")
    try:
        (first, *_) = lines(scene, pod)
        print(f"exclusive pod: running {(first - requested).total_seconds():.2f} s after its request")
        node = pod["spec"]["nodeName"]
        neighbours = [one for one in scene.pods("yielding") if one["spec"]["nodeName"] == node]
        assert [frozen(scene.freezer(one)) for one in neighbours] == [True] * 4
        phases = {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in scene.pods("yielding")}
        assert phases == dict.fromkeys(pods, "Running"), "no pod was killed"
    finally:
        delete_pod(scene, "urgent")
    scene.release("yielding")

    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0, "no work is lost"
    assert {pod["metadata"]["uid"] for pod in scene.pods("yielding")} == pods, "each trial continued in its pod"
    scene.check_no_leaks("yielding")
    scene.finish("yielding")


def test_without_suspension_one_trial_is_deleted_and_loses_the_announced_work(scene: Scene) -> None:
    suspension = {"methods": ["app-checkpoint"], "gracePeriodSeconds": 3}
    # no time slice ends meanwhile: otherwise a trial that resumes would cause another requeue
    policy = {"name": "round_robin", "settings": {"quantum": 3600}}
    logs = scene.search("staying", "deaf", 8, 0.05, policy=policy, suspension=suspension)

    def held() -> int:
        """Return the number of trials whose status has the held step and its checkpoint."""
        found = [trial.get("status", {}) for trial in scene.trials("staying")]
        return sum((one.get("lastStep"), one.get("checkpoint", {}).get("step")) == (HELD_AT, SAVED_AT) for one in found)

    scene.until(logs, "every slot occupied, two trials held", lambda: taken(scene) == 8 and held() == 2, 120)
    try:
        start_exclusive_pod(scene, logs, "pressing")
        (name, steps, seconds) = scene.until(logs, "the announcement of the deletion", lambda: announced(scene), 60)[0]
    finally:
        delete_pod(scene, "pressing")
    scene.release("staying")

    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == HELD_AT - SAVED_AT
    losses = {trial["metadata"]["name"]: trial["status"].get("lostWork", {}) for trial in scene.trials("staying")}
    assert [one for one, lost in losses.items() if lost.get("steps")] == [name], "exactly one trial"
    assert steps == losses[name]["steps"]
    assert seconds <= losses[name]["gpuSeconds"] + 0.05, (
        "the trial held the GPU until it was killed; the message is rounded to a tenth"
    )
    scene.check_no_leaks("staying")
    scene.finish("staying")


def last_steps(scene: Scene, job: str) -> list[float]:
    return [scene.last_step(trial) for trial in scene.trials(job)]


def gpus(scene: Scene) -> list[dict[str, Any]]:
    return [gpu for node in scene.site.objects("gpunodes") for gpu in node["status"].get("gpus", [])]


def taken(scene: Scene) -> int:
    return sum(len(gpu.get("trials", [])) for gpu in gpus(scene))


def slots(scene: Scene) -> int:
    return sum(gpu["slots"] for gpu in gpus(scene))


def start_exclusive_pod(scene: Scene, logs: Any, name: str) -> dict[str, Any]:
    """Create an exclusive pod for any node and any scheduler; return it after its first line of output."""
    container = {
        "name": "main",
        "image": "localhost/podium-digits:dev",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do echo running; sleep 0.05; done"],
        "resources": {"limits": {RESOURCE: "1"}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    meta = {"name": name, "namespace": "default"}
    scene.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def working() -> dict[str, Any] | None:
        pod: dict[str, Any] = scene.site.get("pod", name)
        return pod if pod["status"]["phase"] == "Running" and lines(scene, pod) else None

    found: dict[str, Any] = scene.until(logs, f"{name} runs", working, 90)
    return found


def lines(scene: Scene, pod: dict[str, Any]) -> list[datetime]:
    """Return the time of each whole line.

    The runtime writes nanoseconds, of which datetime reads microseconds.
    """
    whole = scene.site.log_of(pod, "main").rpartition("\n")[0]
    return [datetime.fromisoformat(line[:26].rstrip("Z") + "+00:00") for line in whole.splitlines()]


def delete_pod(scene: Scene, name: str) -> None:
    scene.site.kubectl("delete", "pod", name, "--ignore-not-found", "--timeout=60s", timeout=70)


def announced(scene: Scene) -> list[tuple[str, int, float]]:
    """Return the trial, the steps and the GPU-seconds of each announcement."""
    events = scene.site.objects("events", "--field-selector", "involvedObject.kind=HyperParamTrial,reason=WorkAtRisk")
    matches = [
        (event["involvedObject"]["name"], re.fullmatch(f"{WHY} .* {COST}", event["message"])) for event in events
    ]
    return [(name, int(word[1]), float(word[2])) for name, word in matches if word and name.startswith("staying")]


def frozen(folder: Path) -> bool:
    """Return whether a cgroup is frozen, as the kernel's own file shows (v1, v2)."""
    found = [folder / name for name in ("freezer.state", "cgroup.freeze") if (folder / name).exists()]
    return found[0].read_text().strip() in ("FROZEN", "1")

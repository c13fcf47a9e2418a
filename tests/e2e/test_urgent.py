"""An urgent pod on a cluster of which eight trials hold every share: what can be suspended is, and loses nothing; where
nothing can, one trial leaves, and loses what was announced before.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
RESOURCE = "podium.dev/gpu-exclusive"
HELD_AT, SAVED_AT = 53, 50  # steps.py: where a trial is held, and what it has saved by then
# the agent knows its name a moment after it knows that the GPU is taken
WHY = r"(?:Pod default/pressing|An urgent pod) is to have GPU \S+ for itself\."
COST = r"If it cannot save first, (\d+) steps and ([0-9.]+) GPU-seconds are lost\."
Scene = Any


def test_eight_trials_are_suspended_for_it_as_far_as_it_needs_and_lose_nothing(scene: Scene) -> None:
    policy = {"name": "round_robin", "settings": {"quantum": 1}}
    witness = scene.search("yielding", "held", 8, 0.05, policy=policy, suspension={"methods": ["freeze"]})

    def full() -> bool:
        """Trials, pods and GPUs are told of by three: each says that all eight have been at work."""
        running = [pod for pod in scene.pods("yielding") if pod["status"]["phase"] == "Running"]
        return len(running) == taken(scene) == sum(step > 0 for step in begun(scene, "yielding")) == 8

    scene.until(witness, "every share is held, and has been at work", full, 120)
    assert shares(scene) == 8
    pods = {pod["metadata"]["uid"] for pod in scene.pods("yielding")}

    asked = datetime.now(UTC)
    guest = at_work(scene, witness, "urgent")
    try:
        (first, *_) = lines(scene, guest)
        print(f"urgent pod: at work {(first - asked).total_seconds():.2f} s after it was asked for")
        beside = [pod for pod in scene.pods("yielding") if pod["spec"]["nodeName"] == guest["spec"]["nodeName"]]
        assert [frozen(scene.freezer(pod)) for pod in beside] == [True] * 4
        phases = {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in scene.pods("yielding")}
        assert phases == dict.fromkeys(pods, "Running"), "none was killed"
    finally:
        leave(scene, "urgent")
    scene.let_go("yielding")

    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == 0, "no step is lost"
    assert {pod["metadata"]["uid"] for pod in scene.pods("yielding")} == pods, "each went on where it stood"
    scene.nothing_leaks("yielding")
    scene.finish("yielding")


def test_where_nothing_can_be_suspended_one_leaves_and_loses_what_was_announced(scene: Scene) -> None:
    suspension = {"methods": ["app-checkpoint"], "gracePeriodSeconds": 3}
    # nobody's turn ends meanwhile: who comes back would else have another one requeued
    policy = {"name": "round_robin", "settings": {"quantum": 3600}}
    witness = scene.search("staying", "deaf", 8, 0.05, policy=policy, suspension=suspension)

    def held() -> int:
        """Trials whose status says where they are held, and what they saved."""
        found = [trial.get("status", {}) for trial in scene.trials("staying")]
        return sum((one.get("lastStep"), one.get("checkpoint", {}).get("step")) == (HELD_AT, SAVED_AT) for one in found)

    scene.until(witness, "every share held, two at work", lambda: taken(scene) == 8 and held() == 2, 120)
    try:
        at_work(scene, witness, "pressing")
        (name, steps, seconds) = scene.until(witness, "who leaves was told", lambda: left(scene), 60)[0]
    finally:
        leave(scene, "pressing")
    scene.let_go("staying")

    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == HELD_AT - SAVED_AT
    losses = {trial["metadata"]["name"]: trial["status"].get("lostWork", {}) for trial in scene.trials("staying")}
    assert [one for one, lost in losses.items() if lost.get("steps")] == [name], "one, and no other"
    assert steps == losses[name]["steps"]
    assert seconds <= losses[name]["gpuSeconds"] + 0.05, "it held the GPU until it was killed; told to a tenth"
    scene.nothing_leaks("staying")
    scene.finish("staying")


def begun(scene: Scene, job: str) -> list[float]:
    return [scene.last_step(trial) for trial in scene.trials(job)]


def gpus(scene: Scene) -> list[dict[str, Any]]:
    return [gpu for node in scene.site.objects("gpunodes") for gpu in node["status"].get("gpus", [])]


def taken(scene: Scene) -> int:
    return sum(len(gpu.get("trials", [])) for gpu in gpus(scene))


def shares(scene: Scene) -> int:
    return sum(gpu["slots"] for gpu in gpus(scene))


def at_work(scene: Scene, witness: Any, name: str) -> dict[str, Any]:
    """The urgent pod, any node, any scheduler, once it has written a line."""
    container = {
        "name": "main",
        "image": "localhost/podium-digits:dev",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do echo at work; sleep 0.05; done"],
        "resources": {"limits": {RESOURCE: "1"}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    meta = {"name": name, "namespace": "default"}
    scene.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def working() -> dict[str, Any] | None:
        pod: dict[str, Any] = scene.site.get("pod", name)
        return pod if pod["status"]["phase"] == "Running" and lines(scene, pod) else None

    found: dict[str, Any] = scene.until(witness, f"{name} at work", working, 90)
    return found


def lines(scene: Scene, pod: dict[str, Any]) -> list[datetime]:
    """When it wrote each whole line; the runtime's stamps have nine digits of a second."""
    whole = scene.site.log_of(pod, "main").rpartition("\n")[0]
    return [datetime.fromisoformat(line[:26].rstrip("Z") + "+00:00") for line in whole.splitlines()]


def leave(scene: Scene, name: str) -> None:
    scene.site.kubectl("delete", "pod", name, "--ignore-not-found", "--timeout=60s", timeout=70)


def left(scene: Scene) -> list[tuple[str, int, float]]:
    """Trial, steps and GPU-seconds of each announcement."""
    events = scene.site.objects("events", "--field-selector", "involvedObject.kind=HyperParamTrial,reason=WorkAtRisk")
    told = [(event["involvedObject"]["name"], re.fullmatch(f"{WHY} .* {COST}", event["message"])) for event in events]
    return [(name, int(word[1]), float(word[2])) for name, word in told if word and name.startswith("staying")]


def frozen(folder: Path) -> bool:
    """By the kernel's own file (v1, v2)."""
    found = [folder / name for name in ("freezer.state", "cgroup.freeze") if (folder / name).exists()]
    return found[0].read_text().strip() in ("FROZEN", "1")

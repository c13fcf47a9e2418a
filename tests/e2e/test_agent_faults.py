"""The agents are killed at each step of a suspension and of a requeue, and no work is lost.

The steps are those that are visible from outside: in the cgroups, in the trial's folder and in the API.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
JOB = "steps"
EVERY = 5  # steps.py: steps between checkpoints without a request
Scene = Any


def test_agents_killed_at_each_step_lose_no_work(scene: Scene) -> None:
    logs = scene.search(JOB, "held", trials=8, seconds=0.3)
    scene.until(logs, "the first suspension", lambda: scene.suspensions(JOB) >= 1, 120)

    for step in ("frozen", "thawed"):
        before = set(scene.site.frozen())

        def seen(step: str = step, before: set[Path] = before) -> bool:
            now = set(scene.site.frozen())
            return bool(now - before if step == "frozen" else before - now)

        poll(f"a container is {step}", seen)
        kill_agents(scene)
        wait_for_agents(scene)

    for step in ("deleted", "asked", "saved", "ended"):
        pod = scene.until(logs, "a running trial", lambda: running_pod(scene), 60)
        with ThreadPoolExecutor(1) as pool:  # the trial may complete its checkpoint before kubectl ends
            reached = thawed(scene, pod) if step == "deleted" else requeue_step(scene, pod, step)
            deletion = pool.submit(scene.site.kubectl, "delete", "pod", pod["metadata"]["name"], "--wait=false")
            if step == "deleted":
                deletion.result()
            poll(f"the running pod is {step}", reached)
            kill_agents(scene)
            deletion.result()
        wait_for_agents(scene)

    pod = scene.until(logs, "a frozen trial", lambda: scene.in_phase(JOB, "Suspended"), 60)
    reached = thawed(scene, pod)
    scene.site.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    poll("the frozen pod is thawed for its SIGTERM, or gone", reached)
    kill_agents(scene)
    scene.until(logs, "all have started", lambda: min(map(scene.last_step, scene.trials(JOB))) > 0, 120)
    scene.release(JOB)

    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0, "only Podium was killed, so no work is lost"
    assert all(trial["status"]["failures"] == 0 for trial in scene.trials(JOB))
    assert sum(trial["status"]["attempt"] for trial in scene.trials(JOB)) >= 5
    scene.check_no_leaks(JOB)
    scene.finish(JOB)


def running_pod(scene: Scene) -> dict[str, Any] | None:
    """Return a running pod that has a checkpoint.

    The trial of a later attempt is Running before its process is.
    """
    for trial in scene.trials(JOB):
        if trial.get("status", {}).get("phase") == "Running" and scene.last_step(trial) >= 6:
            for pod in scene.pods(JOB):
                alive = "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"
                if pod["metadata"]["name"] == trial["status"]["pod"] and alive:
                    found: dict[str, Any] = pod
                    return found
    return None


def thawed(scene: Scene, pod: dict[str, Any]) -> Callable[[], bool]:
    """Return a condition: the pod's main container is not frozen, or it has ended.

    A running trial may be suspended just before its pod is deleted. If its agent dies then, the container stays frozen
    until the next agent works, and on a busy machine it may be killed before: its grace period is 10 s.
    """
    folder = scene.freezer(pod)
    return lambda: folder not in scene.site.frozen()


def requeue_step(scene: Scene, pod: dict[str, Any], step: str) -> Callable[[], bool]:
    """Return a condition: the requeue of the pod has reached this step or a later one.

    A request may be answered before the test sees it. A checkpoint without a request does not count.
    """
    folder = scene.folder(JOB, pod["metadata"]["labels"]["podium.dev/trial"])
    marker, request = folder / "podium-checkpoint.json", folder / "podium-checkpoint-request"
    group, before, asked = scene.freezer(pod), marker.read_text(), False

    def reached() -> bool:
        nonlocal before, asked
        now, ended = marker.read_text(), not group.exists()
        if request.exists():  # the script removes it before it writes the marker, so the marker is older
            before, asked = now, True
        saved = now != before and (asked or json.loads(now)["step"] % EVERY != 0)
        return ended or (step != "ended" and saved) or (step == "asked" and asked)

    return reached


def poll(what: str, condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition without a pause, because a step takes only milliseconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s")


def kill_agents(scene: Scene) -> None:
    assert scene.kill("podium-agent", "agent") == 2, "one on each node"


def wait_for_agents(scene: Scene) -> None:
    pods = ("rollout", "status", "daemonset/podium-agent", "-n", "podium-system", "--timeout=120s")
    scene.site.kubectl(*pods, timeout=130)

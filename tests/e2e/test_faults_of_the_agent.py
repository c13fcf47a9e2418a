"""The agents die at each step of a suspension and of a requeue, as far as a step can be seen from outside: in the
cgroups, in the trial's folder, in the API. No trial loses anything.
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
EVERY = 5  # steps.py: between saves that nobody asked for
Scene = Any


def test_the_agents_die_at_each_step(scene: Scene) -> None:
    witness = scene.search(JOB, "held", trials=8, seconds=0.3)
    scene.until(witness, "the first suspension", lambda: scene.suspensions(JOB) >= 1, 120)

    for step in ("frozen", "thawed"):
        before = set(scene.site.frozen())

        def seen(step: str = step, before: set[Path] = before) -> bool:
            now = set(scene.site.frozen())
            return bool(now - before if step == "frozen" else before - now)

        at_once(f"a container is {step}", seen)
        dies(scene)
        agents_are_back(scene)

    for step in ("deleted", "asked", "saved", "ended"):
        pod = scene.until(witness, "a trial at work", lambda: works(scene), 60)
        with ThreadPoolExecutor(1) as beside:  # it may have saved before kubectl has ended
            reached = requeue_step(scene, pod, step)
            told = beside.submit(scene.site.kubectl, "delete", "pod", pod["metadata"]["name"], "--wait=false")
            at_once(f"the pod that worked is {step}", told.done if step == "deleted" else reached)
            dies(scene)
            told.result()
        agents_are_back(scene)

    pod = scene.until(witness, "a frozen trial", lambda: scene.in_phase(JOB, "Suspended"), 60)
    folder = scene.freezer(pod)
    scene.site.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    at_once("the frozen one is thawed for its SIGTERM, or gone", lambda: folder not in scene.site.frozen())
    dies(scene)
    scene.until(witness, "all have begun", lambda: min(map(scene.last_step, scene.trials(JOB))) > 0, 120)
    scene.let_go(JOB)

    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == 0, "who dies is Podium: no trial loses anything"
    assert all(trial["status"]["failures"] == 0 for trial in scene.trials(JOB))
    assert sum(trial["status"]["attempt"] for trial in scene.trials(JOB)) >= 5
    scene.nothing_leaks(JOB)
    scene.finish(JOB)


def works(scene: Scene) -> dict[str, Any] | None:
    """A pod that has saved and is not frozen. Of a later attempt's pod the trial says Running before its process is."""
    for trial in scene.trials(JOB):
        if trial.get("status", {}).get("phase") == "Running" and scene.last_step(trial) >= 6:
            for pod in scene.pods(JOB):
                stays = "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"
                if pod["metadata"]["name"] == trial["status"]["pod"] and stays:
                    found: dict[str, Any] = pod
                    return found
    return None


def requeue_step(scene: Scene, pod: dict[str, Any], step: str) -> Callable[[], bool]:
    """Whether the requeue of that pod has come so far, or further: a request may be answered before it is seen. A save
    that the trial makes by itself is no answer.
    """
    folder = scene.folder(JOB, pod["metadata"]["labels"]["podium.dev/trial"])
    marker, request = folder / "podium-checkpoint.json", folder / "podium-checkpoint-request"
    group, before, asked = scene.freezer(pod), marker.read_text(), False

    def reached() -> bool:
        nonlocal before, asked
        now, ended = marker.read_text(), not group.exists()
        if request.exists():  # it goes before its answer is marked: what the marker says is older
            before, asked = now, True
        saved = now != before and (asked or json.loads(now)["step"] % EVERY != 0)
        return ended or (step != "ended" and saved) or (step == "asked" and asked)

    return reached


def at_once(what: str, condition: Callable[[], bool], seconds: float = 60) -> None:
    """Looks as often as it can: a step is over within milliseconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:g} s")


def dies(scene: Scene) -> None:
    assert scene.kill("podium-agent", "agent") == 2, "one on each node"


def agents_are_back(scene: Scene) -> None:
    pods = ("rollout", "status", "daemonset/podium-agent", "-n", "podium-system", "--timeout=120s")
    scene.site.kubectl(*pods, timeout=130)

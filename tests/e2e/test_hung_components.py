"""Components that hang: nothing but the kubelet's liveness probe notices it, and no trial suffers from the restart.

A stopped process (SIGSTOP) stands for an event loop that is blocked: the health pages are served by the same loop.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
COMPONENTS = ("agent", "operator", "extender")
JOB = "hung"
Scene = Any


def test_hung_components_are_restarted_by_their_liveness_probes(scene: Scene) -> None:
    logs = scene.search(JOB, "held", trials=6, seconds=0.3)
    scene.until(logs, "a suspension", lambda: scene.suspensions(JOB) >= 1, 120)
    before = {component: restarts(scene, component) for component in COMPONENTS}
    stopped = {component: scene.site.processes(f"podium-{component}") for component in COMPONENTS}
    assert [len(stopped[component]) for component in COMPONENTS] == [2, 1, 1]
    for pid in (pid for pids in stopped.values() for pid in pids):
        os.kill(pid, signal.SIGSTOP)

    def restarted() -> bool:
        now = {component: restarts(scene, component) for component in COMPONENTS}
        return all(now[one].keys() == before[one].keys() for one in COMPONENTS) and all(
            ready and count > before[one][pod][0] for one in COMPONENTS for pod, (count, ready) in now[one].items()
        )

    scene.until(logs, "every component restarted and ready", restarted, 150)
    count = scene.suspensions(JOB)
    scene.until(logs, "the switches continue", lambda: scene.suspensions(JOB) > count, 60)
    scene.until(logs, "all have started", lambda: min(map(scene.last_step, scene.trials(JOB))) > 0, 120)
    scene.release(JOB)
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0, "only Podium was restarted, so no work is lost"
    assert all(trial["status"]["failures"] == trial["status"]["attempt"] == 0 for trial in scene.trials(JOB))
    scene.check_no_leaks(JOB)
    scene.finish(JOB)


def restarts(scene: Scene, component: str) -> dict[str, tuple[int, bool]]:
    """Return the number of restarts of the component in each of its pods, and whether it is ready."""
    return {
        pod["metadata"]["name"]: (status["restartCount"], status["ready"])
        for pod in scene.site.objects("pods", "-n", "podium-system")
        for status in pod["status"].get("containerStatuses", [])
        if status["name"] == component
    }

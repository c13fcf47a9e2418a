"""Faults of Podium, pods and scripts: a search has correct values and reports its lost work.

The checks use containerd's logs, the cgroups and the API (scene.py). With PODIUM_LONG_FAULTS=1 (`make test-faults`),
the operator is killed ten times instead of four.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
FINAL = ("Succeeded", "Failed", "Refused")
KILLS = 10 if os.environ.get("PODIUM_LONG_FAULTS") == "1" else 4  # of the operator; of the agents half as many
Scene = Any


def test_a_search_survives_kills_of_the_operator_and_of_the_agents(scene: Scene) -> None:
    """Each kill is within 50 ms of a new run queue, during suspensions and resumptions."""
    chance = random.Random(4)
    logs = scene.search("killed", "held", trials=8, seconds=0.3)
    scene.until(logs, "the first suspension", lambda: scene.suspensions("killed") >= 1, 120)
    killed = {"operator": 0, "agent": 0}
    for round_ in range(KILLS):
        epochs = {n["metadata"]["name"]: n["spec"]["epoch"] for n in scene.site.objects("gpunodes")}

        def changed(epochs: dict[str, int] = epochs) -> bool:
            return {n["metadata"]["name"]: n["spec"]["epoch"] for n in scene.site.objects("gpunodes")} != epochs

        scene.until(logs, f"new run queue {round_}", changed, 60)
        for component in ("operator", "agent")[: 1 + round_ % 2]:
            time.sleep(chance.uniform(0, 0.05))  # a random moment
            killed[component] += scene.kill(f"podium-{component}", component) > 0
    assert scene.phase("killed") not in FINAL, "the search has not ended meanwhile"
    assert killed == {"operator": KILLS, "agent": KILLS // 2}
    scene.until(logs, "all have started", lambda: min(map(scene.last_step, scene.trials("killed"))) > 0, 120)
    scene.release("killed")
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0, "only Podium was killed, so no work is lost"
    assert len({pod["metadata"]["labels"]["podium.dev/trial"] for pod in scene.pods("killed")}) == 8
    scene.check_no_leaks("killed")
    scene.finish("killed")


def test_deleted_pods_that_run_wait_or_are_suspended_lose_no_work(scene: Scene) -> None:
    logs = scene.search("deleted", "held", trials=6)
    for phase in ("Gated", "Running", "Suspended", "Running", "Suspended"):
        pod = scene.until(logs, phase, lambda phase=phase: scene.in_phase("deleted", phase), 60)
        scene.site.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
        gone = pod["metadata"]["uid"]
        scene.until(
            logs,
            f"the {phase} pod is gone",
            lambda gone=gone: gone not in {p["metadata"]["uid"] for p in scene.pods("deleted")},
            60,
        )
    scene.until(logs, "all have started", lambda: min(map(scene.last_step, scene.trials("deleted"))) > 0, 120)
    scene.release("deleted")
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0, "each pod completed a checkpoint within its grace period"
    assert all(trial["status"]["failures"] == 0 for trial in scene.trials("deleted")), (
        "a deletion does not count as a failure"
    )
    scene.check_no_leaks("deleted")
    scene.finish("deleted")


def test_the_status_reports_the_lost_work_of_pods_deleted_without_a_grace_period(scene: Scene) -> None:
    logs = scene.search("forced", trials=2)
    scene.until(logs, "steps", lambda: min(map(scene.last_step, scene.trials("forced")), default=0) >= 12, 60)
    for pod in scene.pods("forced"):
        scene.site.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) <= 2 * 5, "at most the work since the last checkpoint, which is every 5 steps"
    scene.check_no_leaks("forced")
    scene.finish("forced")


def test_scripts_that_fail_by_themselves(scene: Scene) -> None:
    """Out of memory, an incomplete checkpoint, a checkpoint that hangs, a full volume: a job for each."""
    modes = ("hog", "torn", "hangs", "full")
    searches = {mode: scene.search(f"odd-{mode}", mode, trials=1) for mode in modes}
    hanging = searches["hangs"]
    pod = scene.until(hanging, "12 steps", lambda: _running_with_steps(scene, "odd-hangs", 12), 120)
    scene.site.kubectl("delete", "pod", pod, "--wait=false")
    for mode, logs in searches.items():
        job = scene.wait_for_end(logs)
        assert job["status"]["phase"] == "Succeeded", f"{mode}: {job['status']['message']}"
        lost = scene.check_results(logs)
        (trial,) = scene.trials(logs.job)
        script_failed = mode in ("hog", "torn")
        assert trial["status"]["failures"] == int(script_failed), f"{mode}: only failures of the script count"
        assert lost in range(10), mode
        if mode == "torn":
            assert lost == 20 - 15, "the incomplete checkpoint at step 20 does not count, the one at step 15 does"
    scene.check_no_leaks("odd-full")
    scene.finish(*(logs.job for logs in searches.values()))


def _running_with_steps(scene: Scene, job: str, steps: int) -> str | None:
    for trial in scene.trials(job):
        if scene.last_step(trial) >= steps and trial["status"]["phase"] == "Running":
            return str(trial["status"]["pod"])
    return None

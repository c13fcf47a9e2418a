"""Everything that may die dies: each search still ends with the values of an undisturbed one, or with a loss that is
exactly what the status says. Judged by containerd's logs, the cgroups and the API (scene.py).
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
FINAL = ("Succeeded", "Failed", "Refused")
Scene = Any


def test_the_operator_is_killed_ten_times_and_the_agents_five(scene: Scene) -> None:
    """Each time within 50 ms of an order: in the middle of suspensions and resumptions."""
    chance = random.Random(4)
    witness = scene.search("killed", "held", trials=8, seconds=0.3)
    scene.until(witness, "the first suspension", lambda: scene.suspensions("killed") >= 1, 120)
    killed = {"operator": 0, "agent": 0}
    for round_ in range(10):
        epochs = {n["metadata"]["name"]: n["spec"]["epoch"] for n in scene.site.objects("gpunodes")}

        def ordered(epochs: dict[str, int] = epochs) -> bool:
            return {n["metadata"]["name"]: n["spec"]["epoch"] for n in scene.site.objects("gpunodes")} != epochs

        scene.until(witness, f"order {round_}", ordered, 60)
        for who in ("operator", "agent")[: 1 + round_ % 2]:
            time.sleep(chance.uniform(0, 0.05))  # the moment of the accident
            killed[who] += scene.kill(f"podium-{who}", who) > 0
    assert scene.phase("killed") not in FINAL, "it went on all the while"
    assert killed == {"operator": 10, "agent": 5}
    scene.until(witness, "all have begun", lambda: min(map(scene.last_step, scene.trials("killed"))) > 0, 120)
    scene.let_go("killed")
    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == 0, "who dies is Podium: no trial loses anything"
    assert len({pod["metadata"]["labels"]["podium.dev/trial"] for pod in scene.pods("killed")}) == 8
    scene.nothing_leaks("killed")
    scene.finish("killed")


def test_pods_are_deleted_while_running_suspended_and_gated(scene: Scene) -> None:
    witness = scene.search("deleted", "held", trials=6)
    for phase in ("Gated", "Running", "Suspended", "Running", "Suspended"):
        pod = scene.until(witness, phase, lambda phase=phase: scene.in_phase("deleted", phase), 60)
        scene.site.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
        gone = pod["metadata"]["uid"]
        scene.until(
            witness,
            f"the {phase} pod is gone",
            lambda gone=gone: gone not in {p["metadata"]["uid"] for p in scene.pods("deleted")},
            60,
        )
    scene.until(witness, "all have begun", lambda: min(map(scene.last_step, scene.trials("deleted"))) > 0, 120)
    scene.let_go("deleted")
    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == 0, "each was saved within its grace period"
    assert all(trial["status"]["failures"] == 0 for trial in scene.trials("deleted")), "no deletion is a failure"
    scene.nothing_leaks("deleted")
    scene.finish("deleted")


def test_a_pod_without_a_grace_period_loses_what_the_status_says(scene: Scene) -> None:
    witness = scene.search("forced", trials=2)
    scene.until(witness, "steps", lambda: min(map(scene.last_step, scene.trials("forced")), default=0) >= 12, 60)
    for pod in scene.pods("forced"):
        scene.site.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) <= 2 * 5, "at most what was done since the last save, every 5 steps"
    scene.nothing_leaks("forced")
    scene.finish("forced")


def test_scripts_that_fail_in_their_own_ways(scene: Scene) -> None:
    """Out of memory, a save torn by SIGKILL, one that hangs, a volume that is full: each at once, in its own job."""
    modes = ("hog", "torn", "hangs", "full")
    witnesses = {mode: scene.search(f"odd-{mode}", mode, trials=1) for mode in modes}
    hanging = witnesses["hangs"]
    pod = scene.until(hanging, "12 steps", lambda: _running_since(scene, "odd-hangs", 12), 120)
    scene.site.kubectl("delete", "pod", pod, "--wait=false")
    for mode, witness in witnesses.items():
        job = scene.until_over(witness)
        assert job["status"]["phase"] == "Succeeded", f"{mode}: {job['status']['message']}"
        lost = scene.judge(witness)
        (trial,) = scene.trials(witness.job)
        own = mode in ("hog", "torn")
        assert trial["status"]["failures"] == int(own), f"{mode}: its own failures count, the cluster's do not"
        assert lost in range(10), mode
        if mode == "torn":
            assert lost == 20 - 15, "the torn save at step 20 does not count, the one at 15 does"
    scene.nothing_leaks("odd-full")
    scene.finish(*(witness.job for witness in witnesses.values()))


def _running_since(scene: Scene, job: str, steps: int) -> str | None:
    for trial in scene.trials(job):
        if scene.last_step(trial) >= steps and trial["status"]["phase"] == "Running":
            return str(trial["status"]["pod"])
    return None

"""Parts of Kubernetes die under Podium: kubelet, containerd, the API server. Each search still ends with the values of
an undisturbed one. Judged as in test_faults.py.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
FINAL = ("Succeeded", "Failed", "Refused")
Scene = Any


def test_kubelet_and_containerd_are_restarted(scene: Scene) -> None:
    """Frozen and running containers outlive both; a pod that the kubelet refuses afterwards is requeued, not failed."""
    witness = scene.search("restarted", trials=4)
    scene.until(witness, "a suspension", lambda: scene.suspensions("restarted") >= 1, 120)
    for program, word in (("kubelet", "Started kubelet"), ("containerd", "containerd successfully booted")):
        before, log = scene.suspensions("restarted"), scene.site.cluster.logs / f"{program}@node-1.log"
        lives = log.read_text().count(word)
        scene.site.cluster.restart(program, "node-1")
        # a kubelet that finds no containerd as it starts ends, and here is no systemd that starts it again
        scene.until(
            witness,
            f"{program} serves",
            lambda log=log, word=word, lives=lives: log.read_text().count(word) > lives,
            60,
        )
        scene.until(
            witness,
            f"suspensions after {program}'s restart",
            lambda before=before: scene.suspensions("restarted") > before or scene.phase("restarted") in FINAL,
            120,
        )
    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    scene.judge(witness)
    assert all(trial["status"]["failures"] == 0 for trial in scene.trials("restarted"))
    scene.nothing_leaks("restarted")
    scene.finish("restarted")


def test_the_api_server_is_down_for_a_minute(scene: Scene) -> None:
    witness = scene.search("unheard", trials=4)
    scene.until(witness, "a suspension", lambda: scene.suspensions("unheard") >= 1, 120)
    scene.site.cluster.kill("kube-apiserver")
    end = time.monotonic() + 60  # the accident's length
    while time.monotonic() < end:
        witness.look()
        time.sleep(0.5)
    scene.site.cluster.start("kube-apiserver")
    scene.site.until("the API server is back", lambda: _answers(scene), 60)
    assert scene.until_over(witness)["status"]["phase"] == "Succeeded"
    assert scene.judge(witness) == 0
    scene.nothing_leaks("unheard")
    scene.finish("unheard")


def _answers(scene: Scene) -> bool:
    try:
        scene.site.kubectl("get", "--raw", "/readyz", timeout=5)
    except Exception:
        return False
    return True

"""Faults of Kubernetes: the kubelet, containerd and the API server are killed.

Each search still ends with the values of an undisturbed one. The checks are those of test_faults.py.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
FINAL = ("Succeeded", "Failed", "Refused")
Scene = Any


def test_a_search_survives_restarts_of_kubelet_and_containerd(scene: Scene) -> None:
    """Frozen and running containers survive both.

    A pod that the new kubelet refuses is requeued and does not fail.
    """
    logs = scene.search("restarted", trials=4)
    scene.until(logs, "a suspension", lambda: scene.suspensions("restarted") >= 1, 120)
    for program, word in (("kubelet", "Started kubelet"), ("containerd", "containerd successfully booted")):
        before, log = scene.suspensions("restarted"), scene.site.cluster.logs / f"{program}@node-1.log"
        starts = log.read_text().count(word)
        scene.site.cluster.restart(program, "node-1")
        # a kubelet that starts without containerd exits, and there is no systemd here to restart it
        scene.until(
            logs,
            f"{program} serves",
            lambda log=log, word=word, starts=starts: log.read_text().count(word) > starts,
            60,
        )
        scene.until(
            logs,
            f"suspensions after {program}'s restart",
            lambda before=before: scene.suspensions("restarted") > before or scene.phase("restarted") in FINAL,
            120,
        )
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    scene.check_results(logs)
    assert all(trial["status"]["failures"] == 0 for trial in scene.trials("restarted"))
    scene.check_no_leaks("restarted")
    scene.finish("restarted")


def test_a_search_survives_a_minute_without_the_api_server(scene: Scene) -> None:
    logs = scene.search("unheard", trials=4)
    scene.until(logs, "a suspension", lambda: scene.suspensions("unheard") >= 1, 120)
    scene.site.cluster.kill("kube-apiserver")
    end = time.monotonic() + 60  # duration of the outage
    while time.monotonic() < end:
        logs.open_new()
        time.sleep(0.5)
    scene.site.cluster.start("kube-apiserver")
    scene.site.until("the API server is back", lambda: _answers(scene), 60)
    assert scene.wait_for_end(logs)["status"]["phase"] == "Succeeded"
    assert scene.check_results(logs) == 0
    scene.check_no_leaks("unheard")
    scene.finish("unheard")


def _answers(scene: Scene) -> bool:
    try:
        scene.site.kubectl("get", "--raw", "/readyz", timeout=5)
    except Exception:
        return False
    return True

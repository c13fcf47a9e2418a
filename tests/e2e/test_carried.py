"""`podium drain` carries a trial that cannot save to the other node, memory of its GPU and all: no step is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podium_devcluster import registry
from podium_devcluster.debian import PackageError
from podium_devcluster.shell import CommandError

pytestmark = pytest.mark.e2e
IMAGE = "localhost/podium-digits:dev"
EPOCHS = 60  # so long that it is carried before it is over, also where the API tells of an epoch late
Site = Any


def test_a_drained_node_loses_no_step_of_a_trial_that_cannot_save(site: Site) -> None:
    try:
        registry.ensure(site.cluster.cache)
    except (CommandError, PackageError) as error:
        pytest.skip(f"apt gives no {registry.PACKAGE} here: {error}")
    registry.start(site.cluster)
    image = registry.push(site.cluster, "node-1", IMAGE)
    site.kubectl("apply", "-f", "-", stdin=json.dumps(job(site, "carried", image)))
    site.until("an epoch", lambda: (status(site, "carried").get("lastStep") or 0) >= 1, 120)
    here = status(site, "carried")["node"]
    there = next(name for name in ("node-1", "node-2") if name != here)
    stayed = job(site, "stayed", image)  # the same trial, which nobody carries: not on the node that drains
    stayed["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": there}
    site.kubectl("apply", "-f", "-", stdin=json.dumps(stayed))

    try:
        said = site.podium("drain", here, "--wait", "180", timeout=200)
        assert "carried-0 is carried alive" in said
        for name in ("carried", "stayed"):
            site.until(f"{name} is over", lambda name=name: status(site, name).get("phase") == "Succeeded", 180)
        site.until("it is told", lambda: status(site, "carried")["carrying"]["phase"] == "Arrived", 60)
    finally:
        site.podium("drain", here, "--undo")
    moved = status(site, "carried")
    assert (moved["attempt"], moved["node"], moved.get("losses", {}).get("steps", 0)) == (1, there, 0)
    assert values(moved) == values(status(site, "stayed"))
    for node in (here, there):
        assert not list((site.cluster.node_root(node) / "var/lib/kubelet/checkpoints").glob("*.tar"))
    for name in ("carried", "stayed"):
        site.kubectl("delete", "hyperparamjob", name, "--timeout=90s", timeout=100)


def job(site: Site, name: str, image: str) -> dict[str, Any]:
    """One trial, of the same parameters in both, that saves nothing and can only be suspended by `cuda-checkpoint`."""
    manifest: dict[str, Any] = site.example(name)
    spec = manifest["spec"]
    del spec["checkpoint"]
    spec["trials"] = {"max": 1, "parallel": 1, "maxSteps": EPOCHS}
    spec["gpus"] = {"perTrial": 1, "memory": "64Mi"}
    spec["suspension"] = {"methods": ["cuda-checkpoint", "container-checkpoint"]}
    container = spec["template"]["spec"]["containers"][0]
    container["image"] = image
    container["command"] = ["python3", "/app/train.py", f"--epochs={EPOCHS}", "--work=150", "$(podium.args)"]
    return manifest


def status(site: Site, name: str) -> dict[str, Any]:
    found = site.objects("hyperparamtrials", "-l", f"podium.dev/job={name}")
    return found[0].get("status", {}) if found else {}


def values(status: dict[str, Any]) -> dict[int, float]:
    points = {int(point["step"]): point["value"] for point in status["curve"]["points"]}
    assert max(points) == EPOCHS
    return points

"""`podium drain` carries a trial that cannot save to the other node, memory of its GPU and all: no step is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium_devcluster import registry
from podium_devcluster.debian import PackageError
from podium_devcluster.shell import CommandError

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
METHOD = "container-checkpoint"
IMAGE = "localhost/podium-digits:dev"
EPOCHS = 60  # so long that it is carried before it is over, also where the API tells of an epoch late
Site = Any


def carry_by(site: Site, address: str) -> None:
    """All agents anew, with that registry; without one they carry nothing."""
    helm, where = site.place.tool("helm"), ["-n", "podium-system", "--wait", "--timeout=150s"]
    chart, value = str(ROOT / "charts/podium"), f"--set=agent.checkpointRegistry={address}"
    site.demo.call(site.place, [helm, "upgrade", "podium", chart, "--reuse-values", value, *where], 170, quiet=True)

    def told() -> bool:
        nodes = site.objects("gpunodes")
        return all((METHOD in node["status"].get("methods", [])) is bool(address) for node in nodes)

    site.until("what the new agents can do", told, 60)


@pytest.fixture
def image(site: Site) -> Iterator[str]:
    """The example's, in a registry that the nodes have; all agents carry trials meanwhile."""
    try:
        registry.ensure(site.cluster.cache)
    except (CommandError, PackageError) as error:
        pytest.skip(f"apt gives no {registry.PACKAGE} here: {error}")
    registry.start(site.cluster)
    name = registry.push(site.cluster, "node-1", IMAGE)
    try:
        carry_by(site, registry.ADDRESS)
        yield name
    finally:
        carry_by(site, "")


def test_a_drained_node_loses_no_step_of_a_trial_that_cannot_save(site: Site, image: str) -> None:
    site.kubectl("apply", "-f", "-", stdin=json.dumps(job(site, "carried", image)))
    site.until("an epoch", lambda: (status(site, "carried").get("lastStep") or 0) >= 1, 120)
    begun = status(site, "carried")  # not its first attempt, if a kubelet refused a pod before it knew the new agent
    here = begun["node"]
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
    assert (moved["attempt"], moved["node"]) == (begun.get("attempt", 0) + 1, there)
    assert moved.get("losses", {}).get("steps", 0) == 0
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
    spec["suspension"] = {"methods": ["cuda-checkpoint", METHOD]}
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

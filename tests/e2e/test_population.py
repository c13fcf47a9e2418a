"""Population-based training with real kubelets: children continue exactly from the copies of better trials' states.

Two populations run at the same time: the digits example on GPUs, with a volume of one node, and trials without GPUs,
with a volume that all nodes share. They are deleted as soon as a child has trained.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
GPUS, CPUS = "people", "crowd"
INTERVAL = 5
REPLAYED = 3  # epochs of a child that are trained again
Scene = Any


@dataclass
class Family:
    """A child that has trained, its parent, the trial that it replaces, and the pods of the first two."""

    child: dict[str, Any]
    parent: dict[str, Any]
    replaced: dict[str, Any]
    child_pod: dict[str, Any]
    parent_pod: dict[str, Any]


def people(site: Any) -> dict[str, Any]:
    """Return the example on GPUs. Its epochs are short, and slow, so that a child's pod can start before the end."""
    manifest: dict[str, Any] = site.example(GPUS)
    manifest["spec"] |= {
        "search": {
            "algorithm": "pbt",
            "seed": 3,
            "settings": {"population": 3, "interval": INTERVAL, "quantile": 0.4, "fixed": "width, activation"},
        },
        "trials": {"max": 4, "parallel": 3, "maxSteps": 200},
        "policy": {"name": "round_robin", "settings": {"quantum": 2}},
    }
    manifest["spec"]["checkpoint"]["resumeArgs"] = ["--inherited"]
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["command"][2:3] = ["--work=10", "--epochs=200"]
    container["resources"] = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "250m"}}
    return manifest


def crowd(site: Any) -> dict[str, Any]:
    """Return a population without GPUs."""
    manifest: dict[str, Any] = site.example(CPUS)
    spec = manifest["spec"]
    del spec["suspension"]
    spec |= {
        "objective": {"metric": "score", "direction": "maximize"},
        "parameters": [{"name": "x", "min": 0.0, "max": 1.0}],
        "search": {"algorithm": "pbt", "seed": 3, "settings": {"population": 2, "interval": INTERVAL, "quantile": 0.5}},
        "trials": {"max": 3, "parallel": 2, "maxSteps": 200},
        "gpus": {"perTrial": 0},
        "checkpoint": {"path": "/ckpt", "volume": {"claimName": "shared"}},
    }
    pod = spec["template"]["spec"]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": "fault-scripts"}}]
    pod["containers"][0] |= {
        "command": ["python3", "/scripts/population.py"],
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    return manifest


@pytest.fixture(scope="module")
def families(stage_of_scenes: Scene) -> Iterator[dict[str, Family]]:
    """Run both populations until each has a child that has trained; then end them."""
    scene, site = stage_of_scenes, stage_of_scenes.site
    site.until("every node accepts pods", scene.nodes_accept_pods, 120)
    started = {GPUS: scene.start(people(site)), CPUS: scene.start(crowd(site))}
    yield {
        name: scene.until(logs, "a child trains", lambda n=name: family(scene, n), 180)
        for name, logs in started.items()
    }
    scene.finish(GPUS, CPUS)


def family(scene: Scene, job: str) -> Family | None:
    """Return a child that has printed some values, with its relatives; None before."""
    trials = {one["metadata"]["name"]: one for one in scene.trials(job)}
    for one in trials.values():
        points = one.get("status", {}).get("curve", {}).get("points", [])
        if "parent" not in one["spec"] or len(points) < REPLAYED:
            continue
        parent, replaced = trials[one["spec"]["parent"]["name"]], trials[one["spec"]["parent"]["replaces"]]
        if replaced["status"]["phase"] == "EarlyStopped":
            pods = {pod["metadata"]["labels"]["podium.dev/trial"]: pod for pod in scene.pods(job)}
            return Family(one, parent, replaced, pods[one["metadata"]["name"]], pods[parent["metadata"]["name"]])
    return None


@pytest.mark.parametrize("job", [GPUS, CPUS])
def test_a_child_of_a_better_trial_takes_the_place_of_a_bad_one(families: dict[str, Family], job: str) -> None:
    found = families[job]
    origin, status = found.child["spec"]["parent"], found.replaced["status"]
    assert origin["uid"] == found.parent["metadata"]["uid"]
    assert (origin["generation"], origin["step"] % INTERVAL) == (1, 0)
    assert (status["phase"], status["reason"]) == ("EarlyStopped", "Replaced")
    assert found.child["metadata"]["name"] in status["message"]
    at = origin["step"]
    assert value_at(found.parent, at) > value_at(found.replaced, at), "by the stored curves"
    copied = next(one for one in found.child_pod["status"]["initContainerStatuses"] if one["name"] == "podium-inherit")
    assert copied["state"]["terminated"]["exitCode"] == 0
    assert found.child["status"].get("lostWork", {}).get("steps", 0) == 0


def value_at(trial: dict[str, Any], step: float) -> float:
    points = [point for point in trial["status"]["curve"]["points"] if point["step"] <= step]
    return float(points[-1]["value"])


def test_a_child_on_a_gpu_has_the_bits_of_its_parents_state(site: Any, families: dict[str, Family]) -> None:
    """The parent's command is run alone to the step of the copy, then the child's from there."""
    found = families[GPUS]
    assert found.child_pod["spec"]["nodeName"] == found.parent_pod["spec"]["nodeName"], "the volume is the node's"
    points = site.evidence.printed(site.log_of(found.child_pod, "train"), "val_acc", "epoch")
    begun = points[0][0] - 1
    assert begun >= found.child["spec"]["parent"]["step"]
    commands = [
        [*pod["spec"]["containers"][0]["command"], f"--epochs={last}", "--checkpoint=/tmp/replayed"]
        for pod, last in ((found.parent_pod, begun), (found.child_pod, begun + REPLAYED))
    ]
    assert "--inherited" in commands[1]
    alone = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "replayed"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "train",
                    "image": "localhost/podium-digits:dev",
                    "command": ["sh", "-c", " && ".join(map(shlex.join, commands))],
                }
            ],
        },
    }
    site.kubectl("apply", "-f", "-", stdin=json.dumps(alone))
    try:
        site.kubectl("wait", "pod/replayed", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=400s", timeout=410)
        again = site.evidence.printed(site.log_of(site.get("pod", "replayed"), "train"), "val_acc", "epoch")
    finally:
        site.kubectl("delete", "pod", "replayed", "--wait=false")
    assert [step for step, _ in again] == list(range(1, begun + REPLAYED + 1))
    assert again[begun:] == points[:REPLAYED]


def test_a_child_without_a_gpu_continues_from_its_parents_state(site: Any, families: dict[str, Family]) -> None:
    found = families[CPUS]
    (step, score), *_ = site.evidence.printed(site.log_of(found.child_pod, "train"), "score", "epoch")
    before = dict(site.evidence.printed(site.log_of(found.parent_pod, "train"), "score", "epoch"))
    assert step - 1 >= found.child["spec"]["parent"]["step"]
    assert score == before[step - 1] + found.child["spec"]["parameters"]["x"]


def test_the_command_line_shows_the_lineage(site: Any, families: dict[str, Family], tmp_path: Path) -> None:
    found = families[GPUS]
    child, parent = found.child["metadata"]["name"], found.parent["metadata"]["name"]
    rows = [line.split() for line in site.podium("get", "trials", GPUS).splitlines()]
    assert "PARENT" in rows[0]
    assert parent in next(row for row in rows if child in row)
    page = tmp_path / "report.html"
    site.podium("report", GPUS, "-o", str(page))
    assert f"generation 1, child of {parent}" in page.read_text()

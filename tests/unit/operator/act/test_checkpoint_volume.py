"""Checkpoints in a trial's pod: volume, folder, the checkpoint to continue from, hook and grace period."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operator_builders import make_job, moment
from operator_builders import make_trial as trial_of
from pod_manifests import RULES, pod, template, variables

from podium_operator.act.pod_manifest import (
    PodOrigin,
    make_pod,
)


@pytest.mark.parametrize(
    ("volume", "source"),
    [
        ({"claimName": "lustre"}, {"persistentVolumeClaim": {"claimName": "lustre"}}),
        ({"hostPath": {"path": "/srv"}}, {"hostPath": {"path": "/srv", "type": "DirectoryOrCreate"}}),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}),
        ({"emptyDir": {}}, {"emptyDir": {}}),
    ],
)
def test_checkpoint_volume(volume: dict[str, Any], source: dict[str, Any]) -> None:
    made = pod(checkpoint={"path": "/ckpt", "volume": volume})
    assert made["spec"]["volumes"][0] == {"name": "podium-checkpoint", **source}
    mount = made["spec"]["containers"][0]["volumeMounts"][0]
    assert mount["mountPath"] == "/ckpt"
    assert mount["subPath"].endswith("/sweep-0-uid-swee")


def test_each_trial_of_each_job_has_a_folder_of_its_own_for_all_its_attempts() -> None:
    how = {"checkpoint": {"path": "/ckpt", "volume": {"claimName": "c"}}}

    def folder(uid: str, number: int, attempt: int, trial_uid: str = "1st") -> str:
        trial = trial_of(number)
        trial = trial.model_copy(update={"metadata": trial.metadata.model_copy(update={"uid": trial_uid})})
        made = make_pod(make_job(uid=uid, **how), trial, attempt, RULES)
        path: str = made["spec"]["containers"][0]["volumeMounts"][0]["subPath"]
        return path

    assert folder("a", 0, 0) == folder("a", 0, 1)
    others = {folder("a", 1, 0), folder("another", 0, 0), folder("a", 0, 0, "created again")}
    assert len(others | {folder("a", 0, 0)}) == 4


def test_grace_comes_from_suspension() -> None:
    assert pod(suspension={"gracePeriodSeconds": 300})["spec"]["terminationGracePeriodSeconds"] == 300


SAVED = {"step": 12, "at": moment(), "path": "step-12", "node": "node-1"}


CLAIM = {"path": "/ckpt", "volume": {"claimName": "c"}}


ON_NODE = {"path": "/ckpt", "volume": {"hostPath": {"path": "/srv"}}}


def again(
    checkpoint: dict[str, Any], attempt: int = 1, nodes: tuple[str, ...] = ("node-1",), **spec: Any
) -> dict[str, Any]:
    job = make_job(checkpoint=checkpoint, **spec)
    return make_pod(job, trial_of(checkpoint=SAVED, attempt=attempt), attempt, RULES, PodOrigin(nodes))


def hosts(manifest: dict[str, Any]) -> Any:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = manifest["spec"].get("affinity", {}).get("nodeAffinity", {}).get(required, {}).get("nodeSelectorTerms")
    return terms and [term["matchFields"][-1]["values"] for term in terms]


@pytest.mark.parametrize(
    ("checkpoint", "attempt", "nodes", "resume", "host"),
    [
        (CLAIM, 1, (), "/ckpt/step-12", None),
        (CLAIM, 0, (), None, None),
        (ON_NODE, 1, ("node-1",), "/ckpt/step-12", [["node-1"]]),
        (ON_NODE, 1, ("node-2",), None, None),
        ({"path": "/ckpt", "volume": {"emptyDir": {}}}, 1, ("node-1",), None, None),
    ],
    ids=["claim", "first attempt", "its node", "its node is gone", "scratch folder"],
)
def test_the_checkpoint_that_a_new_attempt_continues_from(
    checkpoint: dict[str, Any], attempt: int, nodes: tuple[str, ...], resume: str | None, host: Any
) -> None:
    made = again(checkpoint | {"resumeArgs": ["--from=$(podium.checkpoint)"]}, attempt, nodes, template=template())
    assert variables(made).get("PODIUM_RESUME") == resume
    assert made["spec"]["containers"][0]["command"][-1] == (f"--from={resume}" if resume else "--lr=0.01")
    assert hosts(made) == host
    assert variables(made)["PODIUM_ATTEMPT"] == str(attempt)


def test_a_trial_without_a_checkpoint_starts_from_the_beginning() -> None:
    made = make_pod(make_job(checkpoint=CLAIM | {"resumeArgs": ["--resume"]}), trial_of(attempt=3), 3, RULES)
    assert "PODIUM_RESUME" not in variables(made)
    assert "--resume" not in json.dumps(made)


@pytest.mark.parametrize(
    ("given", "command", "args"),
    [
        ({"command": ["a"]}, ["a", "--go", "0.01"], None),
        ({"command": ["a"], "args": ["b"]}, ["a"], ["b", "--go", "0.01"]),
        ({"command": None, "args": ["b"]}, None, ["b", "--go", "0.01"]),
    ],
)
def test_resume_args_are_appended_to_the_command_line(
    given: dict[str, Any], command: list[str] | None, args: list[str] | None
) -> None:
    checkpoint = CLAIM | {"resumeArgs": ["--go", "$(podium.params.lr)"]}
    main = again(checkpoint, template=template(**given))["spec"]["containers"][0]
    assert (main.get("command"), main.get("args")) == (command, args)


def test_the_node_of_the_checkpoint_is_required_beside_the_templates_requirements() -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    made = again(ON_NODE, template=template(spec={"affinity": {"nodeAffinity": terms}}))
    assert hosts(made) == [["node-1"], ["node-1"]]
    assert "matchExpressions" in json.dumps(made["spec"]["affinity"])


HOOK = {"exec": {"command": ["/podium/podium-gate", "hook"]}}


OWN = {"preStop": {"exec": {"command": ["mine"]}}, "postStart": {"exec": {"command": ["too"]}}}


@pytest.mark.parametrize(
    ("spec", "hook"),
    [
        ({"checkpoint": CLAIM}, HOOK),
        ({"checkpoint": ON_NODE}, HOOK),
        ({}, None),
        ({"checkpoint": {"path": "/ckpt", "volume": {"emptyDir": {}}}}, None),
        ({"checkpoint": CLAIM, "gpus": {"perTrial": 0}}, None),
        ({"checkpoint": CLAIM, "template": template(lifecycle=OWN)}, OWN["preStop"]),
    ],
    ids=["claim", "folder of the node", "no checkpoint", "scratch folder", "no gate", "the template's own"],
)
def test_the_hook_asks_for_a_checkpoint_before_the_pod_ends(spec: dict[str, Any], hook: Any) -> None:
    made = pod(**spec)["spec"]
    assert made["containers"][0].get("lifecycle", {}).get("preStop") == hook
    assert all("lifecycle" not in container for container in made.get("initContainers", []))


def test_the_script_gets_the_grace_period_of_the_pod() -> None:
    made = pod(checkpoint=CLAIM, template=template(spec={"terminationGracePeriodSeconds": 7}))
    assert variables(made)["PODIUM_GRACE_SECONDS"] == "7"

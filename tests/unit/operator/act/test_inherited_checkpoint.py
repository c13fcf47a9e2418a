"""Pods of children in population-based training: the copy of the parent's checkpoint, and where the pod may run."""

from __future__ import annotations

from typing import Any

import pytest
from operator_builders import REGISTRY, make_cluster_state, make_job, make_node, moment
from operator_builders import make_trial as trial_of
from pod_manifests import RULES, template, variables

from podium_core.domain.population import Lineage
from podium_core.schema.lineage import lineage_from, parent_from
from podium_operator.act.inherited_checkpoint import Inheritance, ParentLostError, inheritance, is_inheriting
from podium_operator.act.pod_manifest import PodOrigin, make_pod, make_trial
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.trial_state import TrialState, parse_trial

SAVED = {"step": 12, "at": moment(), "path": "step-12.pt", "node": "node-1"}
CLAIM = {"path": "/ckpt", "volume": {"claimName": "c"}, "resumeArgs": ["--from=$(podium.checkpoint)"]}
ON_NODE = CLAIM | {"volume": {"hostPath": {"path": "/srv"}}}
LINEAGE = Lineage("sweep-0", "uid-sweep-0", 1, 10.0, "sweep-1")


def child(**status: Any) -> TrialState:
    manifest = make_trial(make_job(), 4, {"lr": 0.01}, parent_from(LINEAGE))
    manifest["metadata"] |= {"uid": "uid-sweep-4", "creationTimestamp": moment()}
    return parse_trial({**manifest, "status": status}, REGISTRY)


def made_for(checkpoint: dict[str, Any], parent: TrialState | None = None, **spec: Any) -> dict[str, Any]:
    job = make_job(checkpoint=checkpoint, **spec)
    copy = inheritance(job, parent or trial_of(0, checkpoint=SAVED), "podium:1", {"node-1"})
    return make_pod(job, child(), 0, RULES, PodOrigin({"node-1"}, inheritance=copy))


def test_the_copy_precedes_the_gate_and_the_command_names_it() -> None:
    made = made_for(CLAIM)["spec"]
    assert [one["name"] for one in made["initContainers"]] == ["podium-inherit", "podium-gate"]
    copy = made["initContainers"][0]
    assert copy["image"] == "podium:1"
    assert copy["command"] == ["python3", "-m", "podium.inherit", "/podium-parent", "/podium-child", "step-0-parent.pt"]
    assert [(one["mountPath"], one["subPath"], one.get("readOnly", False)) for one in copy["volumeMounts"]] == [
        ("/podium-parent", "lab-sweep-uid-swee/sweep-0-uid-swee", True),
        ("/podium-child", "lab-sweep-uid-swee/sweep-4-uid-swee", False),
    ]
    main = made["containers"][0]
    assert main["volumeMounts"][0]["subPath"] == copy["volumeMounts"][1]["subPath"]
    assert "--from=/ckpt/step-0-parent.pt" in (main.get("args") or main["command"])
    assert variables({"spec": made})["PODIUM_RESUME"] == "/ckpt/step-0-parent.pt"
    assert variables({"spec": made})["PODIUM_ATTEMPT"] == "0"


def test_a_checkpoint_that_is_the_folder_remains_so() -> None:
    made = made_for(CLAIM, trial_of(0, checkpoint=SAVED | {"path": "."}))
    assert made["spec"]["initContainers"][0]["command"][-1] == "."
    assert variables(made)["PODIUM_RESUME"] == "/ckpt"


@pytest.mark.parametrize(
    ("metrics", "left_out"),
    [
        ({"source": "file", "path": "m.jsonl"}, ["m.jsonl"]),
        ({"source": "file", "path": "/ckpt/logs/m.jsonl"}, ["logs/m.jsonl"]),
        ({"source": "tensorboard", "path": "/ckpt"}, ["."]),
        ({"source": "file", "path": "/tmp/m.jsonl"}, []),
        ({"source": "prometheus", "port": 9000}, []),
        ({}, []),
    ],
)
def test_the_copy_leaves_out_the_metrics_of_the_parent(metrics: dict[str, Any], left_out: list[str]) -> None:
    made = made_for(CLAIM, trial_of(0, checkpoint=SAVED | {"path": "."}), metrics=metrics)
    command = made["spec"]["initContainers"][0]["command"]
    assert command[3:] == ["/podium-parent", "/podium-child", ".", *left_out]


def test_with_a_folder_of_the_node_the_child_goes_there() -> None:
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    affinity = made_for(ON_NODE)["spec"]["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [here]
    assert "affinity" not in made_for(CLAIM)["spec"]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, {"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER", "CHOWN"]}}),
        ({"runAsUser": 1000}, {"runAsUser": 1000, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}),
        ({"runAsNonRoot": True}, {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}),
    ],
)
def test_the_copy_runs_as_the_trials_user(context: dict[str, Any], expected: dict[str, Any]) -> None:
    made = made_for(CLAIM, template=template(spec={"securityContext": context} if context else {}))
    assert expected.items() <= made["spec"]["initContainers"][0]["securityContext"].items()


@pytest.mark.parametrize(
    ("parent", "image", "checkpoint", "says"),
    [
        (None, "i", CLAIM, "deleted"),
        (trial_of(0), "i", CLAIM, "no checkpoint any more"),
        (trial_of(0, checkpoint=SAVED | {"node": "gone"}), "i", ON_NODE, "node gone, which is gone"),
        (trial_of(0, checkpoint=SAVED), None, CLAIM, "PODIUM_IMAGE is not set"),
    ],
)
def test_a_parent_that_cannot_be_read_is_an_error(
    parent: TrialState | None, image: str | None, checkpoint: dict[str, Any], says: str
) -> None:
    with pytest.raises(ParentLostError, match=says):
        inheritance(make_job(checkpoint=checkpoint), parent, image, {"node-1"})


def test_with_a_shared_volume_the_node_of_the_parent_does_not_matter() -> None:
    found = inheritance(make_job(checkpoint=CLAIM), trial_of(0, checkpoint=SAVED | {"node": "gone"}), "i", ())
    assert isinstance(found, Inheritance)
    assert found.resume.node is None


def test_later_attempts_continue_from_the_own_checkpoint() -> None:
    assert is_inheriting(child())
    assert not is_inheriting(trial_of(0))
    trial = child(checkpoint=SAVED | {"path": "step-15"})
    assert not is_inheriting(trial)
    made = make_pod(make_job(checkpoint=CLAIM), trial, 1, RULES)
    assert [one["name"] for one in made["spec"]["initContainers"]] == ["podium-gate"]
    assert variables(made)["PODIUM_RESUME"] == "/ckpt/step-15"


def test_the_planner_sees_the_lineage() -> None:
    trial = child()
    assert lineage_from(trial.spec.parent) == LINEAGE
    search = {"algorithm": "pbt", "settings": {"population": 4, "interval": 2}}
    cluster = make_cluster_state(make_job(search=search, checkpoint=CLAIM), trial, make_node())
    snapshot = build_snapshot(cluster, observe(cluster))
    assert [one.origin.lineage for one in snapshot.trials] == [LINEAGE]
    assert snapshot.jobs[0].population is not None
    assert snapshot.jobs[0].population.interval == 2.0

"""`podium drain`: trials that are moved, trials that cannot be moved, and the output for both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from podium_cli.commands import drain
from podium_cli.commands.drain import _GpuNode, lost_work_of, relocation_of, remaining_trials, supports_migration
from podium_cli.exit_codes import CliError, Exit
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, JOBS, NODES, PODS, TRIALS, Resource
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial

AT = "2026-01-02T03:04:05Z"
CLAIM = {"checkpoint": {"path": "/c", "volume": {"claimName": "runs"}}, "suspension": {"methods": ["app-checkpoint"]}}
ON_NODE = CLAIM | {"checkpoint": {"path": "/c", "volume": {"hostPath": {"path": "/srv"}}}}
METHODS = ["freeze", "cuda-checkpoint", "container-checkpoint"]
ALIVE = {"suspension": {"methods": METHODS[1:]}, "gpus": {"memory": "8Gi"}}
SAVED = {"checkpoint": {"step": 8, "at": AT}}


def job_of(name: str = "sweep", **spec: Any) -> dict[str, Any]:
    whole = {
        "objective": {"metric": "acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 0.1, "max": 1}],
        "trials": {"max": 2, "maxSteps": 20},
        "template": {"spec": {"containers": [{"name": "main", "image": "i", "command": ["t"]}]}},
    }
    return {"metadata": {"name": name, "namespace": "lab", "uid": f"uid-{name}"}, "spec": whole | spec}


def trial_of(number: int = 0, job: str = "sweep", **status: Any) -> dict[str, Any]:
    meta = {"name": f"{job}-{number}", "namespace": "lab", "uid": f"uid-{job}-{number}"}
    spec = {"job": job, "number": number, "parameters": {"lr": 0.5}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "lastStep": 11, **status}}


def pod_of(trial: Mapping[str, Any], phase: str = "Running", **meta: Any) -> dict[str, Any]:
    name = trial["metadata"]["name"]
    owner = {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "name": name,
        "uid": trial["metadata"]["uid"],
    }
    known = {
        "name": f"{name}-0",
        "namespace": "lab",
        "uid": f"pod-{name}",
        "labels": {"podium.dev/trial": name},
        "ownerReferences": [owner],
    }
    return {"metadata": known | meta, "status": {"phase": phase}}


COSTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("checkpoints to a claim", CLAIM, {}, ""),
    ("has a checkpoint in a claim", CLAIM, SAVED, ""),
    ("at its gate", {}, {"phase": "Gated"}, ""),
    ("frozen only", {}, {}, "writes no checkpoints (suspension.methods has no app-checkpoint); it would lose 11 steps"),
    ("reads a claim", {"checkpoint": CLAIM["checkpoint"]}, SAVED, "lose 3 steps (it is at 11, its checkpoint at 8)"),
    ("one step", {}, {"lastStep": 1}, "it would lose 1 step (it is at 1, its checkpoint at 0)"),
    ("a folder of the node", ON_NODE, SAVED, "its checkpoints are in a folder of this node"),
    (
        "a folder of the node, at its gate",
        ON_NODE,
        SAVED | {"phase": "Gated"},
        "its checkpoints are in a folder of this",
    ),
    ("a folder of the node, new", ON_NODE, {"phase": "Gated"}, ""),
    ("no GPU", {"gpus": {"perTrial": 0}}, {}, "it has no GPU (gpus.perTrial: 0)"),
    ("no GPU, checkpoints", CLAIM | {"gpus": {"perTrial": 0}}, SAVED, "trials with a GPU; it would lose 3 steps"),
]


@pytest.mark.parametrize(("spec", "status", "words"), [c[1:] for c in COSTS], ids=[c[0] for c in COSTS])
def test_work_that_a_trial_would_lose(spec: dict[str, Any], status: dict[str, Any], words: str) -> None:
    job, trial = HyperParamJob.model_validate(job_of(**spec)), HyperParamTrial.model_validate(trial_of(**status))
    cost = lost_work_of(job, trial)
    assert words in cost
    assert bool(cost) is bool(words)


FAILED_MIGRATION = {
    "phase": "Failed",
    "since": AT,
    "podUid": "pod-sweep-0",
    "attempt": 1,
    "sourceNode": "node-a",
    "targetNode": "node-b",
    "code": "RestoreDisabled",
    "message": "node-b starts no pod from a checkpoint",
}
HERE = {"phase": "Gated", "migration": FAILED_MIGRATION | {"phase": "PodCreated", "podUid": "x"}}
DEPARTURES: list[tuple[str, dict[str, Any], dict[str, Any], bool, str, str]] = [
    ("writes checkpoints", CLAIM, {}, True, "without lost work", ""),
    ("is migrated", ALIVE, {}, True, "is migrated live", ""),
    (
        "is migrated, in progress",
        ALIVE,
        {"migration": FAILED_MIGRATION | {"phase": "Requested"}},
        True,
        "is migrated live",
        "",
    ),
    ("the agents do not support live migration", ALIVE, {}, False, "", "it would lose 11 steps"),
    ("its job does not ask for it", {}, {}, True, "", "it would lose 11 steps"),
    ("is retried", ALIVE, {"migration": FAILED_MIGRATION | {"code": "TargetFull"}}, True, "is migrated live", ""),
    (
        "its migration failed",
        ALIVE,
        {"migration": FAILED_MIGRATION},
        True,
        "",
        "its live migration failed (RestoreDisabled: node-b",
    ),
    ("was migrated, at its gate", ALIVE, HERE, True, "was migrated here live", ""),
    ("was migrated, at its gate, and cannot be moved", ALIVE, HERE, False, "", "it would lose 11 steps"),
    ("was migrated and runs", ALIVE, {"migration": HERE["migration"] | {"phase": "Restored"}}, True, "is migrated", ""),
    (
        "the migration of an earlier pod failed",
        ALIVE,
        {"migration": FAILED_MIGRATION | {"podUid": "x"}},
        True,
        "is migrated live",
        "",
    ),
]


@pytest.mark.parametrize(
    ("spec", "status", "nodes", "way", "loss"), [c[1:] for c in DEPARTURES], ids=[c[0] for c in DEPARTURES]
)
def test_how_a_trial_is_moved(spec: dict[str, Any], status: dict[str, Any], nodes: bool, way: str, loss: str) -> None:
    job, trial = HyperParamJob.model_validate(job_of(**spec)), HyperParamTrial.model_validate(trial_of(**status))
    relocation, lost_work = relocation_of(job, trial, "pod-sweep-0", nodes)
    assert way in relocation
    assert loss in lost_work
    assert bool(relocation) is not bool(lost_work)


def test_both_nodes_must_support_live_migration() -> None:
    nodes = [_GpuNode.model_validate({"metadata": {"name": n}, "status": {"methods": METHODS}}) for n in "ab"]
    old = _GpuNode.model_validate({"metadata": {"name": "c"}, "status": {"methods": ["freeze"]}})
    assert supports_migration("a", nodes)
    assert not supports_migration("a", [nodes[0], old])
    assert not supports_migration("c", [*nodes, old])


def test_trials_that_remain_on_the_node() -> None:
    trials = [trial_of(0), trial_of(1), trial_of(2), trial_of(3, phase="EarlyStopped")]
    orphan = trial_of(9)
    pods = [
        pod_of(trials[0]),
        pod_of(trials[1], phase="Succeeded"),
        pod_of(trials[2], deletionTimestamp=AT),
        pod_of(trials[3]),
        pod_of(orphan),
    ]
    seen = remaining_trials(
        pods, [HyperParamTrial.model_validate(t) for t in trials], [HyperParamJob.model_validate(job_of())]
    )
    assert [(one.trial, bool(one.lost_work)) for one in seen] == [
        ("sweep-0", True),
        ("sweep-2", False),  # its pod is terminating
        ("sweep-3", False),  # it has ended
        ("sweep-9", False),  # its trial was deleted
    ]


def test_the_pod_of_a_workload_names_its_trial_by_a_label() -> None:
    trial = trial_of(0)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "sweep-0-0-worker-0",
        "uid": "uid-of-job",
        "controller": True,
    }
    labels = {"podium.dev/trial": "sweep-0", "podium.dev/trial-uid": trial["metadata"]["uid"]}
    pods = [
        pod_of(trial, ownerReferences=[job], labels=labels),
        pod_of(trial, ownerReferences=[job], labels=labels | {"podium.dev/trial-uid": "earlier"}, uid="old"),
    ]
    seen = remaining_trials(pods, [HyperParamTrial.model_validate(trial)], [HyperParamJob.model_validate(job_of())])
    assert {one.pod_uid: bool(one.lost_work) for one in seen} == {"pod-sweep-0": True, "old": False}


class Cluster:
    """An API server with two nodes. Each list of pods deletes one of `leave`, as the operator would."""

    def __init__(self, *trials: dict[str, Any], leave: tuple[str, ...] = (), **spec: Any) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self._objects: dict[Resource, list[dict[str, Any]]] = {
            JOBS: [job_of(**spec)],
            TRIALS: list(trials),
            PODS: [pod_of(trial) for trial in trials],
            GPUNODES: [{"metadata": {"name": name}, "status": {"methods": METHODS}} for name in ("node-a", "node-b")],
        }
        self._leave = list(leave)

    async def get(self, resource: Resource, name: str, _: str | None = None) -> dict[str, Any]:
        return {"metadata": {"name": name}}

    async def list(self, resource: Resource, **selectors: Any) -> dict[str, Any]:
        there = list(self._objects[resource])
        if resource is PODS:
            assert selectors == {"labels": "podium.dev/trial", "fields": "spec.nodeName=node-a"}
            if self._leave:
                self._gone(f"{self._leave.pop(0)}-0")
        return {"items": there}

    async def patch(self, resource: Resource, name: str, _: str | None, body: Any, *, manager: str) -> None:
        self.calls.append((resource.kind, manager, body["spec"]))

    async def apply(self, resource: Resource, body: Any, *, manager: str) -> None:
        assert body["metadata"] == {"name": "node-a"}
        self.calls.append((resource.kind, manager, body["spec"]))

    async def delete(self, resource: Resource, name: str, namespace: str, *, uid: str) -> None:
        assert uid == f"pod-{name.removesuffix('-0')}"
        self.calls.append((resource.kind, "", name))
        self._gone(name)

    def _gone(self, pod: str) -> None:
        self._objects[PODS] = [one for one in self._objects[PODS] if one["metadata"]["name"] != pod]


Drain = Callable[..., None]


@pytest.fixture
def drained(monkeypatch: pytest.MonkeyPatch) -> Drain:
    monkeypatch.setattr(drain, "POLL_SECONDS", 0.0)

    def run(cluster: Cluster, *, wait: float = 30.0, lose_steps: bool = False) -> None:
        asyncio.run(drain._until_empty(cast(Api, cluster), "node-a", wait, lose_steps=lose_steps))

    return run


def test_trials_are_reported_until_none_remains(drained: Drain, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(trial_of(0), trial_of(1), leave=("sweep-1", "sweep-0"), **CLAIM)
    drained(cluster)
    assert capsys.readouterr().out.splitlines() == [
        "lab/sweep-0 continues on another node without lost work",
        "lab/sweep-1 continues on another node without lost work",
        "lab/sweep-1 is gone (1 remaining)",
        "lab/sweep-0 is gone (0 remaining)",
        "no trial remains; `podium drain node-a --undo` admits trials again",
    ]
    assert cluster.calls == [], "the operator moves them"


def test_a_trial_that_cannot_be_moved_is_named_and_keeps_running(
    drained: Drain, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(trial_of(0), trial_of(1, phase="Gated"), leave=("sweep-1",))
    with pytest.raises(CliError) as caught:
        drained(cluster)
    assert (caught.value.code, caught.value.reason) == (Exit.FAILED, "TrialsRemaining")
    assert "lab/sweep-0 cannot be moved" in caught.value.message
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "lab/sweep-1 continues on another node without lost work"
    assert printed[1].startswith("lab/sweep-0 cannot be moved: its job writes no checkpoints")
    assert printed[1].endswith("it would lose 11 steps (it is at 11, its checkpoint at 0); it keeps running here")
    assert printed[2] == "lab/sweep-1 is gone (1 remaining)", "the command first waits for trials that can be moved"
    assert cluster.calls == []


def test_lose_steps_deletes_their_pods_and_reports_the_lost_work(
    drained: Drain, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(trial_of(0))
    drained(cluster, lose_steps=True)
    assert cluster.calls == [("Pod", "", "sweep-0-0")]
    assert "it would lose 11 steps" in capsys.readouterr().out


def test_the_command_ends_after_its_timeout(drained: Drain) -> None:
    with pytest.raises(CliError) as caught:
        drained(Cluster(trial_of(0), **CLAIM), wait=0.0)
    assert (caught.value.code, caught.value.reason) == (Exit.TIMEOUT, "DrainTimeout")
    assert "lab/sweep-0" in caught.value.message


@pytest.mark.parametrize("draining", [True, False])
def test_the_node_is_cordoned_and_marked_by_a_manager_of_its_own(draining: bool) -> None:
    cluster = Cluster()
    asyncio.run(drain._mark(cast(Api, cluster), "node-a", draining=draining))
    assert cluster.calls == [
        (NODES.kind, "podium-cli", {"unschedulable": draining or None}),
        (GPUNODES.kind, "podium-cli-drain", {"draining": draining}),
    ]

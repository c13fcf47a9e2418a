"""A tenant, an agent of another node and a stranger try to forge objects; the chart's policies and roles refuse it.

The tenant has more rights than a namespace's administrator: every verb on Podium's namespaced kinds and on pods. So a
refusal is the policy's. An administrator makes each attack too, which shows that it is well-formed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from podium_cluster.client import Api, ApiError, connect
from podium_cluster.resources import GPUNODES, JOBS, PODS, TRIALS
from podium_cluster.settings import ClusterSettings

pytestmark = pytest.mark.integration
CHART = Path(__file__).parents[2] / "charts" / "podium"
PARTS = ("operator/rbac", "operator/admission", "agent/rbac", "agent/admission")
TENANT_RULES = [
    {"apiGroups": ["podium.dev"], "resources": ["hyperparamjobs", "hyperparamtrials"], "verbs": ["create", "patch"]},
    {
        "apiGroups": ["podium.dev"],
        "resources": ["hyperparamjobs/status", "hyperparamtrials/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch"]},
]


@dataclass(frozen=True)
class Cluster:
    """A release in `system` with agents on two nodes, and a trial of the namespace `victim` on the first node."""

    kubectl: Callable[..., str]
    admin: dict[str, Any]
    folder: Path
    release: str
    system: str
    victim: str

    def token(self, actor: str) -> Path:
        """Return a kubeconfig of `admin`, `operator`, `tenant`, or the agent on `node-a` or `node-b`."""
        words = ["--namespace", self.system, f"{self.release}-{'operator' if actor == 'operator' else 'agent'}"]
        if actor == "tenant":
            words = ["--namespace", self.victim, "tenant"]
        elif actor.startswith("node"):
            words += ["--bound-object-kind=Pod", f"--bound-object-name=agent-{actor}"]
        config = self.admin
        if actor != "admin":
            token = self.kubectl("create", "token", *words).strip()
            config = {**self.admin, "users": [{"name": self.admin["users"][0]["name"], "user": {"token": token}}]}
        path = self.folder / f"of-{actor}"
        path.write_text(yaml.safe_dump(config))
        return path

    def answer(self, actor: str, attack: Attack) -> str:
        """Return the API server's error for an attack; empty if it is accepted."""
        token = self.token(actor)

        async def ask() -> str:
            async with connect(ClusterSettings(kubeconfig=token)) as api:
                try:
                    await attack(api, self)
                except ApiError as error:
                    return str(error)
            return ""

        return asyncio.run(ask())

    def refusal(self, actor: str, attack: Attack) -> str:
        """Return the refusal; the API server applies new policies and roles a moment after their creation."""
        end = time.monotonic() + 60
        while not (error := self.answer(actor, attack)) or ("OfOperator" not in error and "NodeMismatch" not in error):
            assert time.monotonic() < end, error or "accepted"
            time.sleep(0.2)
        return error


Attack = Callable[[Api, Cluster], Awaitable[Any]]


@pytest.fixture(scope="module")
def cluster(
    kubeconfig: Path, binary: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    mark = uuid.uuid4().hex[:6]
    system, victim, release = f"hostile-{mark}", f"victim-{mark}", f"podium-{mark}"

    def kubectl(*words: str, given: str = "") -> str:
        command = [str(binary("kubectl")), f"--kubeconfig={kubeconfig}", *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create(*objects: dict[str, Any]) -> None:
        kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    shown = [f"--show-only=templates/{part}.yaml" for part in PARTS]
    command = [str(binary("helm")), "template", release, str(CHART), "--kube-version=1.36.3", *shown]
    rights = subprocess.run(
        [*command, f"--namespace={system}"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    role = f"tenant-{mark}"
    nodes = [f"{mark}-node-{letter}" for letter in "ab"]
    try:
        create(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (system, victim)))
        kubectl("apply", "-f", "-", given=rights)
        rbac = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": victim}
        create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant", "namespace": victim}},
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": TENANT_RULES},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "tenant", "namespace": victim},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            },
        )
        for node, short in zip(nodes, ("node-a", "node-b"), strict=True):
            agent = {"nodeName": node, "serviceAccountName": f"{release}-agent", "containers": [CONTAINER]}
            create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}},
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"agent-{short}", "namespace": system},
                    "spec": agent,
                },
                {**GPUNODE, "metadata": {"name": node}},
            )
        create(JOB | {"metadata": {"name": "sweep", "namespace": victim}}, trial(victim, "sweep-0"))
        status = {"status": {"phase": "Running", "rank": 3, "nodes": [nodes[0]], "node": nodes[0]}}
        words = ("patch", "hpt", "sweep-0", f"--namespace={victim}", "--subresource=status", "--type=merge")
        kubectl(*words, "-p", json.dumps(status))
        kubectl("create", "-f", "-", given=json.dumps(pod(victim, "sweep-0-0", "sweep-0")))
        admin = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
        yield Cluster(kubectl, admin, tmp_path_factory.mktemp("tokens"), release, system, victim)
    finally:
        gone = ("delete", "--ignore-not-found", "--wait=false")
        kubectl(*gone, "-f", "-", given=rights)
        for kind in ("node", "gpunode"):
            kubectl(*gone, kind, *nodes)
        kubectl(*gone, "clusterrole", role)
        kubectl(*gone, "namespace", system, victim)


CONTAINER = {"name": "main", "image": "none"}
GPUNODE: dict[str, Any] = {"apiVersion": "podium.dev/v1alpha1", "kind": "GPUNode", "spec": {}}
JOB: dict[str, Any] = {
    "apiVersion": "podium.dev/v1alpha1",
    "kind": "HyperParamJob",
    "spec": {
        "objective": {"metric": "acc", "direction": "maximize"},
        "parameters": [{"name": "lr", "min": 0.001, "max": 0.1}],
        "trials": {"max": 3, "parallel": 2, "maxSteps": 10},
        "template": {"spec": {"containers": [CONTAINER]}},
    },
}


def trial(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "HyperParamTrial",
        "metadata": {"name": name, "namespace": namespace, "labels": {"podium.dev/job": "sweep"}},
        "spec": {"job": "sweep", "number": int(name.rpartition("-")[2]), "parameters": {"lr": 0.01}},
    }


def pod(namespace: str, name: str, of: str | None) -> dict[str, Any]:
    labels = {} if of is None else {"podium.dev/trial": of, "podium.dev/attempt": "0"}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": {"podium.dev/methods": "freeze"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [CONTAINER]}}


def fresh() -> str:
    return uuid.uuid4().hex[:8]


async def create_pod(api: Api, at: Cluster) -> None:
    await api.create(PODS, pod(at.victim, f"forged-{fresh()}", "sweep-0"), manager="test")


async def create_reservation(api: Api, at: Cluster) -> None:
    body = pod(at.victim, f"forged-{fresh()}", None)
    body["metadata"]["labels"] = {"podium.dev/gpu-reservation": "true"}
    await api.create(PODS, body, manager="test")


async def label_pod(api: Api, at: Cluster) -> None:
    body = pod(at.victim, f"plain-{fresh()}", None)
    await api.create(PODS, body, manager="test")
    change = {"metadata": {"labels": {"podium.dev/trial": "sweep-0"}}}
    await api.patch(PODS, body["metadata"]["name"], at.victim, change, manager="test")


async def relabel_trial_pod(api: Api, at: Cluster) -> None:
    change = {"metadata": {"labels": {"podium.dev/attempt": fresh()}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")


async def unlabel_trial_pod(api: Api, at: Cluster) -> None:
    """Remove one label of several; the operator gives it back, so that the attack can be repeated."""
    change = {"metadata": {"labels": {"podium.dev/attempt": None}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")
    await api.patch(PODS, "sweep-0-0", at.victim, {"metadata": {"labels": {"podium.dev/attempt": "0"}}}, manager="test")


async def ask_for_migration(api: Api, at: Cluster) -> None:
    change = {"metadata": {"annotations": {"podium.dev/migrate": fresh()}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")


async def change_methods(api: Api, at: Cluster) -> None:
    change = {"metadata": {"annotations": {"podium.dev/methods": fresh()}}}
    await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")


async def create_trial(api: Api, at: Cluster) -> None:
    await api.create(TRIALS, trial(at.victim, f"sweep-{uuid.uuid4().int % 10**6}"), manager="test")


async def relabel_trial(api: Api, at: Cluster) -> None:
    change = {"metadata": {"labels": {"podium.dev/job-uid": fresh()}}}
    await api.patch(TRIALS, "sweep-0", at.victim, change, manager="test")


async def rank_trial(api: Api, at: Cluster) -> None:
    await write_status(api, at, {"rank": uuid.uuid4().int % 1000})


async def end_trial(api: Api, at: Cluster) -> None:
    await write_status(api, at, {"message": fresh()})


async def forge_image(api: Api, at: Cluster) -> None:
    answer = {"podUid": fresh(), "image": "evil.example/miner:1"}
    await write_status(api, at, {"containerCheckpoint": answer})


async def forge_node(api: Api, at: Cluster) -> None:
    await write_status(api, at, {"nodes": [fresh()]})


async def write_status(api: Api, at: Cluster, status: dict[str, Any]) -> None:
    await api.patch(TRIALS, "sweep-0", at.victim, {"status": status}, manager="test", subresource="status")


async def accept_job(api: Api, at: Cluster) -> None:
    change = {"status": {"observedGeneration": uuid.uuid4().int % 10**6}}
    await api.patch(JOBS, "sweep", at.victim, change, manager="test", subresource="status")


BY_TENANT: list[tuple[Attack, str]] = [
    (create_pod, "LabelOfOperator"),
    (create_reservation, "LabelOfOperator"),
    (label_pod, "LabelOfOperator"),
    (relabel_trial_pod, "LabelOfOperator"),
    (unlabel_trial_pod, "LabelOfOperator"),
    (ask_for_migration, "LabelOfOperator"),
    (change_methods, "LabelOfOperator"),
    (create_trial, "TrialOfOperator"),
    (relabel_trial, "LabelOfOperator"),
    (rank_trial, "StatusOfOperator"),
    (end_trial, "StatusOfOperator"),
    (forge_image, "StatusOfOperator"),
    (accept_job, "StatusOfOperator"),
]


@pytest.mark.parametrize(("attack", "word"), BY_TENANT, ids=lambda one: getattr(one, "__name__", ""))
def test_a_tenant_cannot_forge(cluster: Cluster, attack: Attack, word: str) -> None:
    assert word in cluster.refusal("tenant", attack)
    assert cluster.answer("admin", attack) == ""


@pytest.mark.parametrize("write", [create_pod, create_trial, ask_for_migration, rank_trial, accept_job])
def test_the_operator_can_write_what_it_owns(cluster: Cluster, write: Attack) -> None:
    assert cluster.answer("operator", write) == ""


def test_a_tenant_can_do_what_users_do(cluster: Cluster) -> None:
    async def use(api: Api, at: Cluster) -> None:
        name = f"plain-{fresh()}"
        await api.create(PODS, pod(at.victim, name, None), manager="test")
        change: dict[str, Any] = {"metadata": {"labels": {"team": fresh()}}}
        await api.patch(PODS, name, at.victim, change, manager="test")
        await api.patch(PODS, "sweep-0-0", at.victim, change, manager="test")
        await api.patch(TRIALS, "sweep-0", at.victim, change, manager="test")
        await api.patch(TRIALS, "sweep-0", at.victim, {"spec": {"suspend": True}}, manager="test")
        await api.create(JOBS, JOB | {"metadata": {"name": name, "namespace": at.victim}}, manager="test")

    cluster.refusal("tenant", create_pod)  # the tenant's role is in force
    assert cluster.answer("tenant", use) == ""


async def report(api: Api, at: Cluster) -> None:
    await write_status(api, at, {"gpuSeconds": float(uuid.uuid4().int % 10**6), "logCursor": {"podUid": fresh()}})


def test_an_agent_reports_only_trials_that_were_on_its_node(cluster: Cluster) -> None:
    assert "NodeMismatch" in cluster.refusal("node-b", report)
    assert "NodeMismatch" in cluster.refusal("node-b", forge_image)
    assert cluster.answer("node-a", report) == ""


@pytest.mark.parametrize("attack", [rank_trial, end_trial, forge_node], ids=lambda one: str(one.__name__))
def test_an_agent_writes_only_its_own_fields(cluster: Cluster, attack: Attack) -> None:
    assert "FieldOfOperator" in cluster.refusal("node-a", attack)


def test_an_agent_writes_no_run_queue(cluster: Cluster) -> None:
    async def queue(api: Api, at: Cluster) -> None:
        name = f"{at.release.removeprefix('podium-')}-node-a"
        await api.patch(GPUNODES, name, None, {"spec": {"epoch": 1}}, manager="test")

    assert "FieldOfOperator" in cluster.refusal("node-a", queue)


@pytest.mark.parametrize("attack", [create_pod, create_trial, accept_job], ids=lambda one: str(one.__name__))
def test_an_agent_has_no_right_to_the_rest(cluster: Cluster, attack: Attack) -> None:
    assert "Forbidden" in cluster.answer("node-a", attack)

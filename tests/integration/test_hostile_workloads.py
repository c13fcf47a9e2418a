"""A tenant cannot let the Job controller, JobSet or Kubeflow's Trainer create the pods of trials; the operator can.

The API server has no controllers of JobSets and TrainJobs. Where it does not have these kinds either, the tests define
them without a schema, so the policy sees all fields. The audit log proves each refusal and each accepted write
(hostile_cluster.py).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attacks
import pytest
from attacks import CONTAINER, Attack, Site, fresh, pod
from hostile_cluster import Cluster, hostile_cluster

from podium_cluster.client import Api
from podium_cluster.resources import CLUSTER_RUNTIMES, JOBSETS, PODS, RUNTIMES, TRAIN_JOBS, Resource
from podium_devcluster.audit_log import AuditLog

pytestmark = pytest.mark.integration
BATCH_JOBS = Resource("batch", "v1", "jobs", "Job")
KINDS_OF_OTHERS = (JOBSETS, TRAIN_JOBS, RUNTIMES, CLUSTER_RUNTIMES)
OWNER_OF_RUNTIMES = "owner-of-runtimes"  # a user of the whole cluster
OF_TRIAL = {"podium.dev/trial": "sweep-0", "podium.dev/attempt": "0"}
# of the Job controller, with and without an account of its own
JOB_CONTROLLERS = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")
WORKLOAD_CONTROLLERS = (
    "system:serviceaccount:jobset-system:jobset-controller-manager",
    "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager",
)


def workload(resource: Resource, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    about = {"name": name, "namespace": namespace}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about, "spec": spec}


def job_spec(labels: dict[str, str]) -> dict[str, Any]:
    """The spec of a Job that creates no pods, as it is suspended. `labels` are those of its pods."""
    spec = {"containers": [CONTAINER], "restartPolicy": "Never"}
    return {"suspend": True, "template": {"metadata": {"labels": labels}, "spec": spec}}


def job_set_spec(labels: dict[str, str]) -> dict[str, Any]:
    """The spec of a JobSet. `labels` are those of the pods of its second Job."""
    jobs = [{"name": name, "template": {"spec": job_spec(of)}} for name, of in (("plain", {}), ("marked", labels))]
    return {"suspend": True, "replicatedJobs": jobs}


def train_job_spec(labels: dict[str, str]) -> dict[str, Any]:
    """The spec of a TrainJob. `labels` are those that its second patch gives to pods."""
    job = {"name": "node", "template": {"spec": {"template": {"metadata": {"labels": labels}}}}}
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"replicatedJobs": [job]}}
    patches = [{"manager": "a"}, {"manager": "b", "trainingRuntimeSpec": {"template": template}}]
    return {"runtimeRef": {"name": "torch"}, "suspend": True, "runtimePatches": patches}


async def create_job(api: Api, at: Site) -> None:
    """Create a Job whose pods would be those of a trial."""
    await api.create(
        BATCH_JOBS, workload(BATCH_JOBS, at.victim, f"forged-{fresh()}", job_spec(OF_TRIAL)), manager="test"
    )


async def annotate_template(api: Api, at: Site) -> None:
    """Mark the pods of a Job that exists."""
    name = f"plain-{fresh()}"
    await api.create(BATCH_JOBS, workload(BATCH_JOBS, at.victim, name, job_spec({})), manager="test")
    change = {"spec": {"template": {"metadata": {"annotations": {"podium.dev/methods": "freeze"}}}}}
    await api.patch(BATCH_JOBS, name, at.victim, change, manager="test")


async def scale_job_of_trial(api: Api, at: Site) -> None:
    """Let the Job of a trial create other pods than the operator asked for."""
    change = {"spec": {"parallelism": 2 + uuid.uuid4().int % 1000}}
    await api.patch(BATCH_JOBS, "sweep-0-job", at.victim, change, manager="test")


async def label_job_of_trial(api: Api, at: Site) -> None:
    change = {"metadata": {"labels": {"podium.dev/attempt": fresh()}}}
    await api.patch(BATCH_JOBS, "sweep-0-job", at.victim, change, manager="test")


async def create_job_set(api: Api, at: Site) -> None:
    body = workload(JOBSETS, at.victim, f"forged-{fresh()}", job_set_spec(OF_TRIAL))
    await api.create(JOBSETS, body, manager="test")


async def create_job_set_with_jobs_of_trial(api: Api, at: Site) -> None:
    body = workload(JOBSETS, at.victim, f"forged-{fresh()}", job_set_spec({}))
    body["spec"]["replicatedJobs"][1]["template"]["metadata"] = {"annotations": {"podium.dev/methods": "freeze"}}
    await api.create(JOBSETS, body, manager="test")


async def create_runtime(api: Api, at: Site) -> None:
    spec = {"template": {"spec": job_set_spec(OF_TRIAL)}}
    await api.create(RUNTIMES, workload(RUNTIMES, at.victim, f"forged-{fresh()}", spec), manager="test")


async def create_train_job(api: Api, at: Site) -> None:
    body = workload(TRAIN_JOBS, at.victim, f"forged-{fresh()}", train_job_spec(OF_TRIAL))
    await api.create(TRAIN_JOBS, body, manager="test")


async def create_train_job_of_old_trainer(api: Api, at: Site) -> None:
    """Its labels reach the JobSet; the Trainer before release 2.2 has this field."""
    body = workload(TRAIN_JOBS, at.victim, f"forged-{fresh()}", train_job_spec({}) | {"labels": OF_TRIAL})
    await api.create(TRAIN_JOBS, body, manager="test")


async def override_pods_of_old_trainer(api: Api, at: Site) -> None:
    overrides = [{"targetJobs": [{"name": "node"}], "metadata": {"labels": OF_TRIAL}}]
    spec = train_job_spec({}) | {"podTemplateOverrides": overrides}
    await api.create(TRAIN_JOBS, workload(TRAIN_JOBS, at.victim, f"forged-{fresh()}", spec), manager="test")


def crd(kind: Resource) -> dict[str, Any]:
    """Return a definition of the kind that accepts all fields, for an API server without its controller."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names, scope = {"plural": kind.plural, "kind": kind.kind}, "Namespaced" if kind.namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved"},
        },
        "spec": {"group": kind.group, "names": names, "scope": scope, "versions": [version]},
    }


@pytest.fixture(scope="module")
def cluster(
    kubeconfig: Path,
    audit_log: AuditLog | None,
    binary: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with hostile_cluster(kubeconfig, audit_log, binary, tmp_path_factory.mktemp("tokens")) as made:
        victim, role = made.site.victim, f"workloads-{made.release}"
        rules = [
            {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["create", "patch"]}
            for kind in (PODS, BATCH_JOBS, *KINDS_OF_OTHERS)
        ]
        subjects: list[dict[str, str]] = [{"kind": "ServiceAccount", "name": "tenant", "namespace": victim}]
        subjects += [{"kind": "User", "name": name} for name in (*JOB_CONTROLLERS, *WORKLOAD_CONTROLLERS)]
        rbac = "rbac.authorization.k8s.io"
        objects: list[dict[str, Any]] = [
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "workloads", "namespace": victim},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": subjects,
            },
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": role},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": OWNER_OF_RUNTIMES}],
            },
            workload(BATCH_JOBS, victim, "sweep-0-job", job_spec(OF_TRIAL)),
        ]
        present = made.kubectl("get", "crd", "-o", "name")
        missing = [crd(kind) for kind in KINDS_OF_OTHERS if f"/{kind.plural}.{kind.group}\n" not in present]
        names = [one["metadata"]["name"] for one in missing]
        try:
            objects += missing
            made.kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
            for name in names:
                made.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=20s")
            yield made
        finally:
            made.kubectl(
                "delete", "--ignore-not-found", "--wait=false", f"clusterrole/{role}", f"clusterrolebinding/{role}"
            )
            if names:
                made.kubectl("delete", "--ignore-not-found", "--wait=false", "crd", *names)


def error_of(cluster: Cluster, user: str, body: dict[str, Any]) -> str:
    """Return the API server's error if an administrator creates the object as this user; empty if it accepts it."""
    return cluster.ask("create", "--dry-run=server", f"--as={user}", "-f", "-", given=json.dumps(body)).stderr


def name_of(attack: Any) -> str:
    return getattr(attack, "__name__", "")


BY_TENANT: list[tuple[Attack, str]] = [
    (create_job, "create jobs forged-*"),
    (annotate_template, "patch jobs plain-*"),
    (scale_job_of_trial, "patch jobs sweep-0-job"),
    (label_job_of_trial, "patch jobs sweep-0-job"),
    (create_job_set, "create jobsets forged-*"),
    (create_job_set_with_jobs_of_trial, "create jobsets forged-*"),
    (create_runtime, "create trainingruntimes forged-*"),
    (create_train_job, "create trainjobs forged-*"),
    (create_train_job_of_old_trainer, "create trainjobs forged-*"),
    (override_pods_of_old_trainer, "create trainjobs forged-*"),
]


@pytest.mark.parametrize(("attack", "what"), BY_TENANT, ids=name_of)
def test_a_tenant_cannot_forge_the_workload_of_a_trial(cluster: Cluster, attack: Attack, what: str) -> None:
    cluster.is_refused("tenant", attack, what, "LabelOfOperator")
    cluster.is_accepted("admin", attack, what)


@pytest.mark.parametrize(
    ("write", "what"),
    [row for row in BY_TENANT if row[0] in (create_job_set, create_runtime, create_train_job)],
    ids=name_of,
)
def test_the_operator_can_create_the_workload_of_a_trial(cluster: Cluster, write: Attack, what: str) -> None:
    cluster.is_accepted("operator", write, what)


def test_a_tenant_can_write_its_own_workloads(cluster: Cluster) -> None:
    async def use(api: Api, at: Site) -> None:
        name, own = f"plain-{fresh()}", {"team": "a"}
        change: dict[str, Any] = {"metadata": {"labels": {"team": fresh()}, "annotations": {"team": "b"}}}
        for kind, spec in (
            (JOBSETS, job_set_spec(own)),
            (TRAIN_JOBS, train_job_spec(own)),
            (RUNTIMES, {"template": {"spec": job_set_spec(own)}}),
            (BATCH_JOBS, job_spec(own)),
        ):
            await api.create(kind, workload(kind, at.victim, name, spec), manager="test")
            await api.patch(kind, name, at.victim, change, manager="test")
        await api.patch(BATCH_JOBS, name, at.victim, {"spec": {"parallelism": 2}}, manager="test")
        await api.patch(BATCH_JOBS, "sweep-0-job", at.victim, change, manager="test")

    # the policy and the tenant's role are in force
    cluster.is_refused("tenant", create_job, "create jobs forged-*", "LabelOfOperator")
    cluster.is_accepted("tenant", use, "create jobs plain-*")


def test_a_runtime_of_the_whole_cluster_has_no_marks_of_trials(cluster: Cluster) -> None:
    """It has no namespace, in which the policy could ask what the user may do."""

    def runtime(labels: dict[str, str]) -> dict[str, Any]:
        body = workload(CLUSTER_RUNTIMES, "", f"runtime-{fresh()}", {"template": {"spec": job_set_spec(labels)}})
        del body["metadata"]["namespace"]
        return body

    cluster.is_refused("tenant", create_job, "create jobs forged-*", "LabelOfOperator")
    assert error_of(cluster, OWNER_OF_RUNTIMES, runtime({"team": "a"})) == ""
    assert "LabelOfOperator" in error_of(cluster, OWNER_OF_RUNTIMES, runtime(OF_TRIAL))
    cluster.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(runtime({"team": "a"})))


@pytest.mark.parametrize("user", JOB_CONTROLLERS)
def test_the_job_controller_creates_pods_of_trials_for_jobs_only(cluster: Cluster, user: str) -> None:
    cluster.is_refused("tenant", attacks.create_pod, "create pods forged-*", "LabelOfOperator")
    body = pod(cluster.site.victim, "sweep-0-1", "sweep-0")
    assert "LabelOfOperator" in error_of(cluster, user, body)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep-0-job", "uid": "u", "controller": True}
    for change, accepted in (({}, True), ({"controller": False}, False), ({"kind": "CronJob"}, False)):
        body["metadata"]["ownerReferences"] = [owner | change]
        error = error_of(cluster, user, body)
        assert (error == "") is accepted, error
        assert accepted or "LabelOfOperator" in error
    assert "LabelOfOperator" in error_of(
        cluster, user, workload(BATCH_JOBS, cluster.site.victim, "b", job_spec(OF_TRIAL))
    )


def test_the_real_job_controller_creates_the_pods_of_a_trials_job(cluster: Cluster) -> None:
    cluster.is_refused("tenant", attacks.create_pod, "create pods forged-*", "LabelOfOperator")
    victim = cluster.site.victim
    body = workload(BATCH_JOBS, victim, "sweep-1-0", job_spec({"podium.dev/trial": "sweep-1"}) | {"suspend": False})
    cluster.kubectl("create", "-f", "-", given=json.dumps(body))
    end = time.monotonic() + 60
    words = ("get", "pods", f"--namespace={victim}", "--selector=podium.dev/trial=sweep-1", "-o", "json")
    while not (pods := json.loads(cluster.kubectl(*words))["items"]):
        assert time.monotonic() < end, "the Job controller created no pod"
        time.sleep(0.2)
    assert [owner["name"] for owner in pods[0]["metadata"]["ownerReferences"]] == ["sweep-1-0"]


@pytest.mark.parametrize("user", WORKLOAD_CONTROLLERS)
def test_the_controllers_of_workloads_create_jobs_of_trials_and_no_pods(cluster: Cluster, user: str) -> None:
    cluster.is_refused("tenant", create_job, "create jobs forged-*", "LabelOfOperator")
    for kind, spec in ((BATCH_JOBS, job_spec(OF_TRIAL)), (JOBSETS, job_set_spec(OF_TRIAL))):
        assert error_of(cluster, user, workload(kind, cluster.site.victim, "sweep-0-1", spec)) == ""
    assert "LabelOfOperator" in error_of(cluster, user, pod(cluster.site.victim, "sweep-0-1", "sweep-0"))


def test_the_api_server_warns_of_no_expression(cluster: Cluster) -> None:
    """It checks each expression against the fields of each kind that the policy names."""
    end = time.monotonic() + 60
    for part in ("pods", "workloads", "trials", "statuses"):
        words = ("get", "validatingadmissionpolicy", f"{cluster.release}-operator-{part}", "-o", "json")
        while "typeChecking" not in (status := json.loads(cluster.kubectl(*words)).get("status", {})):
            assert time.monotonic() < end, f"{part}: {status}"
            time.sleep(0.2)
        assert status["typeChecking"].get("expressionWarnings", []) == []

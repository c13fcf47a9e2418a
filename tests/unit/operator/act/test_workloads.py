"""JobSets and TrainJobs as trials: their objects, their creation, and what a trial without pods waits for."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import ended, make_cluster_state, make_job, make_node, make_trial, pod_payload
from pod_manifests import RULES, template

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_core.domain.actions import CreatePod, EndTrial
from podium_core.schema.job import HyperParamJob
from podium_core.schema.template.workload import JOB_INDEX, JOBSET_NAME, POD_INDEX
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import make_pod
from podium_operator.act.workload_manifests import RuntimeNotUsableError, make_objects, merged_template
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.pod_state import PodState, parse_pod
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.settings import OperatorSettings

CONFLICT = ApiError(409, "AlreadyExists", "it exists")
RUNS: dict[str, Any] = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
RUNTIME: dict[str, Any] = {
    "metadata": {"name": "torch", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "initializer", "template": {"spec": {"template": {"spec": {"containers": []}}}}},
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "backoffLimit": 0,
                                "template": {
                                    "spec": {
                                        "nodeSelector": {"zone": "a"},
                                        "containers": [
                                            {"name": "sidecar", "image": "s"},
                                            {
                                                "name": "node",
                                                "image": "old",
                                                "env": [{"name": "A", "value": "runtime"}],
                                            },
                                        ],
                                    }
                                },
                            },
                        },
                    },
                ]
            }
        },
    },
}


def jobset(workers: int = 2, replicated: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    job = {"name": "worker", "template": {"spec": {"parallelism": workers, "template": template()}}}
    jobs = [
        {"name": "data", "template": {"spec": {"template": {"spec": {"containers": []}}}}},
        job | (replicated or {}),
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "replicatedJob": "worker",
        "spec": {"replicatedJobs": jobs, **spec},
    }


def train_job(**trainer: Any) -> dict[str, Any]:
    given = {"numNodes": 2, "image": "new", "command": ["train", "$(podium.args)"], "numProcPerNode": 1, **trainer}
    spec = {"runtimeRef": {"name": "torch"}, "trainer": given, "initializer": {"dataset": {}}}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}


def job(workload: Mapping[str, Any], workers: int = 2) -> HyperParamJob:
    made = make_job(trials={"max": 1, "maxSteps": 10, "workers": workers}, gpus={"perTrial": workers})
    spec = made.spec.model_dump(by_alias=True, exclude_unset=True, exclude={"given_template"})
    return made.model_copy(update={"spec": type(made.spec).model_validate({**spec, "workload": workload})})


def objects(made: HyperParamJob, runtime: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    workload = made.spec.workload
    assert workload is not None
    if runtime is not None:
        merged = made.spec.with_template(merged_template(workload, runtime))
        made = made.model_copy(update={"spec": merged})
    return list(make_objects(workload, make_pod(made, make_trial(), 1, RULES), runtime))


def member(rank: int = 0, workers: int = 2, attempt: int = 0, **how: Any) -> PodState:
    """Return a pod as the Job controller makes it."""
    payload = pod_payload(attempt=attempt, **how)
    labels = {"podium.dev/trial-uid": "uid-sweep-0", POD_INDEX: str(rank), JOBSET_NAME: f"sweep-0-{attempt}"}
    payload["metadata"]["labels"] |= labels | ({"podium.dev/workers": str(workers)} if workers > 1 else {})
    payload["metadata"]["annotations"] = {"podium.dev/rank-label": POD_INDEX}
    name = f"sweep-0-{attempt}-worker-0-{rank}-abcde"
    payload["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    payload["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep-0-0-worker-0", "uid": "uid-job", "controller": True}
    ]
    return parse_pod(payload)


# objects


def test_a_jobset_gets_the_pod_of_the_trial_and_replaces_none_by_itself() -> None:
    given = jobset(ttlSecondsAfterFinished=5, failurePolicy={"maxRestarts": 9})
    given["spec"]["replicatedJobs"][1]["template"]["spec"] |= {"backoffLimit": 3, "podFailurePolicy": {"rules": []}}
    (made,) = objects(job(given))
    assert (made["metadata"]["name"], made["metadata"]["ownerReferences"][0]["uid"]) == ("sweep-0-1", "uid-sweep-0")
    assert "ttlSecondsAfterFinished" not in made["spec"]
    assert made["spec"]["failurePolicy"] == {"maxRestarts": 0}
    assert made["spec"]["replicatedJobs"][0] == given["spec"]["replicatedJobs"][0]
    inner = made["spec"]["replicatedJobs"][1]["template"]["spec"]
    assert (inner["completionMode"], inner["parallelism"], inner["completions"]) == ("Indexed", 2, 2)
    assert (inner["backoffLimitPerIndex"], inner["podReplacementPolicy"]) == (0, "Failed")
    assert not {"backoffLimit", "podFailurePolicy"} & inner.keys()
    pod = inner["template"]
    assert pod["metadata"]["labels"]["podium.dev/trial-uid"] == "uid-sweep-0"
    assert pod["metadata"]["labels"]["podium.dev/workers"] == "2"
    assert "podium.dev/rank" not in pod["metadata"]["labels"]
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["podium-gate"]
    main = pod["spec"]["containers"][0]
    assert main["resources"]["limits"] == {"podium.dev/gpu": "1"}
    assert main["command"] == ["train", "--lr=0.01"]
    assert not {"hostname", "subdomain"} & pod["spec"].keys()


def test_the_rank_is_read_from_the_label_that_differs() -> None:
    def source(made: dict[str, Any]) -> tuple[str, str]:
        pod = made["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
        env = {one["name"]: one for one in pod["spec"]["containers"][0]["env"]}
        assert env["WORLD_SIZE"]["value"] == "2"
        path = env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert path == f"metadata.labels['{pod['metadata']['annotations']['podium.dev/rank-label']}']"
        return pod["metadata"]["annotations"]["podium.dev/rank-label"], env["MASTER_ADDR"]["value"]

    assert source(objects(job(jobset()))[0]) == (POD_INDEX, "sweep-0-1-worker-0-0.sweep-0-1")
    replicated = jobset(1, {"replicas": 2}, network={"subdomain": "shared", "enableDNSHostnames": False})
    (made,) = objects(job(replicated))
    assert source(made) == (JOB_INDEX, "sweep-0-1-worker-0-0.sweep-0-1")
    assert made["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}


def test_a_train_job_gets_a_runtime_of_its_own() -> None:
    runtime, made = objects(job(train_job(env=[{"name": "A", "value": "mine"}])), RUNTIME)
    assert (runtime["kind"], made["kind"]) == ("TrainingRuntime", "TrainJob")
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "sweep-0-1"}
    assert made["spec"]["runtimeRef"] == reference
    assert made["spec"]["trainer"] == {"numNodes": 2, "numProcPerNode": 1}
    assert made["spec"]["initializer"] == {"dataset": {}}
    assert runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] == "torch"
    assert runtime["spec"]["mlPolicy"] == RUNTIME["spec"]["mlPolicy"]
    node = runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]
    assert node["metadata"] == RUNTIME["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["metadata"]
    pod = node["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"zone": "a"}
    assert [one["name"] for one in pod["containers"]] == ["node", "sidecar"]
    main = pod["containers"][0]
    assert (main["image"], main["command"]) == ("new", ["train", "--lr=0.01"])
    assert [one["value"] for one in main["env"] if one["name"] == "A"] == ["mine"]
    assert pod["initContainers"][-1]["image"] == "new"


@pytest.mark.parametrize("where", ["nowhere", "JobSet", "replicated job"])
def test_jobset_writes_no_priority_into_a_label_of_pods_that_it_does_not_place(where: str) -> None:
    """JobSet 0.11 refuses all pods of a negative priority otherwise."""
    exclusive = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}
    given = jobset() | ({"metadata": exclusive} if where == "JobSet" else {})
    if where == "replicated job":
        given["spec"]["replicatedJobs"][1]["template"]["metadata"] = exclusive
    (made,) = objects(job(given))
    pod = made["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    assert ("alpha.jobset.sigs.k8s.io/node-selector" in pod["metadata"]["annotations"]) == (where == "nowhere")


def test_a_runtime_without_a_trainer_is_refused() -> None:
    workload = job(train_job()).spec.workload
    assert workload is not None
    with pytest.raises(RuntimeNotUsableError, match="no replicated job node"):
        merged_template(workload, {"metadata": {"name": "mpi"}, "spec": {"template": {"spec": {}}}})


# creation


class Server:
    """Replaces the API server. `there`: objects that exist, by kind and name; `lacks`: kinds that it does not serve."""

    def __init__(self, there: Mapping[tuple[str, str], Any] | None = None, lacks: tuple[str, ...] = ()) -> None:
        self.there = dict(there or {})
        self.calls: list[tuple[str, str, str]] = []
        self._lacks = lacks

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        name = body["metadata"].get("name", "")
        if resource.kind == "PodGroup":
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        self.calls.append(("create", resource.kind, name))
        if resource.kind in self._lacks:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if (resource.kind, name) in self.there:
            raise CONFLICT

    async def get(self, resource: Resource, name: str, _: Any = None) -> Any:
        if resource.kind in self._lacks:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if (resource.kind, name) not in self.there:
            raise ApiError(404, "NotFound", f'{resource.plural}.{resource.group} "{name}" not found')
        return self.there[(resource.kind, name)]

    async def delete(self, resource: Resource, name: str, *_: Any, **__: Any) -> None:
        self.calls.append(("delete", resource.kind, name))


def create(server: Server, cluster: ClusterState, attempt: int = 0) -> tuple[Actuator, tuple[EndTrial, ...]]:
    api = cast(Api, server)
    made = Actuator(api, WatchCaches(api, OperatorSettings()), RULES, Metrics())
    action = CreatePod(trial_key(cluster.trials[0]), attempt, "SlotAvailable", "")
    return made, asyncio.run(made.create(cluster, [action]))


def there(*conditions: tuple[str, str], owner: str = "uid-sweep-0") -> dict[str, Any]:
    found = [{"type": kind, "status": "True", "reason": "R", "message": text} for kind, text in conditions]
    return {
        "metadata": {"ownerReferences": [{"kind": "HyperParamTrial", "uid": owner}]},
        "status": {"conditions": found},
    }


def state(workload: Mapping[str, Any], *pods: PodState) -> ClusterState:
    return make_cluster_state(job(workload), make_trial(), make_node(), *pods)


def test_runtime_and_train_job_are_created_and_those_of_the_attempt_before_deleted() -> None:
    old = {(kind, "sweep-0-0"): there() for kind in ("TrainJob", "TrainingRuntime")}
    server = Server({("ClusterTrainingRuntime", "torch"): RUNTIME} | old)
    create(server, state(train_job()), attempt=1)
    assert server.calls == [
        ("delete", "TrainJob", "sweep-0-0"),
        ("delete", "TrainingRuntime", "sweep-0-0"),
        ("create", "TrainingRuntime", "sweep-0-1"),
        ("create", "TrainJob", "sweep-0-1"),
    ]


@pytest.mark.parametrize("deleting", [False, True])
def test_the_jobset_of_an_attempt_whose_pods_can_be_read_remains(deleting: bool) -> None:
    """A pod that is being deleted has ended, and the Job controller counts it before it is gone."""
    failed = member(phase="Failed", gate=ended(0), main=ended(1))
    failed = replace(failed, facts=replace(failed.facts, deleting=deleting))
    server = Server({("JobSet", "sweep-0-0"): there()})
    create(server, state(jobset(), failed), attempt=1)
    deleted = [("delete", "JobSet", "sweep-0-0")] if deleting else []
    assert server.calls == [*deleted, ("create", "JobSet", "sweep-0-1")]


def test_no_attempt_starts_while_pods_of_another_one_run() -> None:
    server = Server()
    create(server, state(jobset(), member(**RUNS)), attempt=1)
    assert server.calls == []


@pytest.mark.parametrize(
    ("conditions", "says"),
    [((), "JobSet sweep-0-0 has not created the pods that train yet"), ((("Suspended", "by Kueue"),), "by Kueue")],
)
def test_a_trial_without_pods_says_what_its_object_waits_for(conditions: Any, says: str) -> None:
    made, ends = create(Server({("JobSet", "sweep-0-0"): there(*conditions)}), state(jobset()))
    (text,) = made.waiting().values()
    assert says in text
    assert ends == ()
    assert made.refused() == {}
    cluster = state(jobset(), member(**RUNS))
    asyncio.run(made.create(cluster, []))
    assert made.waiting() == {}


def test_an_object_that_failed_ends_the_trial() -> None:
    _, ends = create(Server({("JobSet", "sweep-0-0"): there(("Failed", "no data"))}), state(jobset()))
    assert [(end.reason, "JobSet sweep-0-0 has failed: R: no data" in end.message) for end in ends] == [
        ("WorkloadFailed", True)
    ]


@pytest.mark.parametrize(
    ("server", "workload", "says"),
    [
        (Server(lacks=("JobSet",)), jobset(), "the cluster has no JobSet (jobset.x-k8s.io/v1alpha2): install"),
        (Server(), train_job(), "ClusterTrainingRuntime torch is missing"),
        (Server(lacks=("ClusterTrainingRuntime",)), train_job(), "the cluster has no ClusterTrainingRuntime"),
        (
            Server({("JobSet", "sweep-0-0"): {"metadata": {"ownerReferences": [{"kind": "App", "uid": "x"}]}}}),
            jobset(),
            "exists and is not the trial's",
        ),
    ],
)
def test_what_the_cluster_lacks_is_said_and_tried_again(server: Server, workload: Any, says: str) -> None:
    made, ends = create(server, state(workload))
    assert ends == ()
    message = made.refused()[trial_key(make_trial())]
    assert message.startswith("The trial cannot start: ")
    assert says in message


def test_a_runtime_whose_pods_cannot_be_trials_is_looked_at_again() -> None:
    """An administrator can correct it."""
    bad, forged = copy.deepcopy(RUNTIME), copy.deepcopy(RUNTIME)
    jobs = bad["spec"]["template"]["spec"]["replicatedJobs"]
    jobs[1]["template"]["spec"]["template"]["spec"]["containers"][1]["startupProbe"] = {}
    others = forged["spec"]["template"]["spec"]["replicatedJobs"]
    others[0]["template"]["metadata"] = {"labels": {"podium.dev/trial": "other-0"}}
    for runtime, says in (
        ({**RUNTIME, "spec": {"template": {"spec": {"replicatedJobs": []}}}}, "has no replicated job node"),
        (bad, "remove startupProbe of container node"),
        (forged, "the runtime has a label or annotation of Podium"),
    ):
        server = Server({("ClusterTrainingRuntime", "torch"): runtime})
        made, ends = create(server, state(train_job()))
        assert ends == ()
        assert says in made.refused()[trial_key(make_trial())]
        assert server.calls == []


def test_a_users_metadata_names_no_other_object() -> None:
    given = jobset() | {
        "metadata": {"name": "evil", "namespace": "kube-system", "ownerReferences": [], "labels": {"team": "a"}}
    }
    (made,) = objects(job(given))
    about = made["metadata"]
    assert (about["name"], about["namespace"], about["labels"]["team"]) == ("sweep-0-1", "lab", "a")
    assert [one["uid"] for one in about["ownerReferences"]] == ["uid-sweep-0"]


def test_a_runtime_of_that_name_that_is_not_the_trials_is_neither_used_nor_deleted() -> None:
    foreign = {"metadata": {"uid": "x", "ownerReferences": [{"kind": "App", "uid": "x"}]}}
    server = Server(
        {("ClusterTrainingRuntime", "torch"): RUNTIME}
        | {("TrainingRuntime", f"sweep-0-{attempt}"): foreign for attempt in (0, 1)}
    )
    made, _ = create(server, state(train_job()), attempt=1)
    assert server.calls == [("create", "TrainingRuntime", "sweep-0-1")]
    assert "exists and is not the trial's" in made.refused()[trial_key(make_trial())]


def test_fields_that_are_null_are_missing() -> None:
    given = jobset()
    spec = given["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    spec |= {"affinity": None, "initContainers": None, "volumes": None}
    spec["containers"][0] |= {"resources": None, "lifecycle": None}
    (made,) = objects(job(given))
    pod = made["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"podium.dev/gpu": "1"}


def test_an_action_that_raises_anything_affects_its_trial_only() -> None:
    given = jobset()
    given["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": 5}
    server = Server()
    assert create(server, state(given))[1] == ()
    assert server.calls == []


# pods


def test_pods_of_a_job_belong_to_the_trial_by_their_labels() -> None:
    pods = [member(rank, node=f"node-{rank + 1}", **RUNS) for rank in (0, 1)]
    assert [(pod.trial_uid, pod.rank, pod.size, pod.of_job) for pod in pods] == [
        ("uid-sweep-0", rank, 2, True) for rank in (0, 1)
    ]
    (combined,) = state(jobset(), *pods).latest_pod.values()
    assert combined.name == "sweep-0-0-worker-0-0-abcde"
    assert not combined.broken


def test_a_pod_that_another_object_made_from_a_template_of_the_trial_is_not_the_trials() -> None:
    """A TrainJob of a user may name the runtime of an attempt; JobSet writes the name of its JobSet."""
    payload = pod_payload()
    payload["metadata"]["labels"] |= {"podium.dev/trial-uid": "uid-sweep-0", JOBSET_NAME: "mine"}
    payload["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "mine-node-0", "uid": "uid-job", "controller": True}
    ]
    with pytest.raises(ValueError, match="nor a Job of one"):
        parse_pod(payload)


def test_a_pod_that_its_job_has_not_created_yet_is_not_a_lost_one() -> None:
    assert state(jobset(), member(**RUNS)).latest_pod == {}
    (late,) = state(jobset(), member(created=-61.0, **RUNS)).latest_pod.values()
    assert late.broken

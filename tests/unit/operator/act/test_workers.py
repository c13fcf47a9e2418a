"""Pods of trials that have several workers: their manifests, and that all of them are created and deleted together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import ended, make_cluster_state, make_job, make_node, make_pod, make_trial
from pod_manifests import RULES, template, variables

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_core.domain.actions import CreatePod, DeletePod, Requeue
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import MEMORY_ANNOTATION, PodOrigin
from podium_operator.act.pod_manifest import make_pod as manifest
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.observe.worker_pods import WORKER_ENDED
from podium_operator.settings import OperatorSettings

RUNS: dict[str, Any] = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
CRASHED: dict[str, Any] = {"phase": "Failed", "gate": ended(0), "main": ended(1)}
OTHER_PODS = {
    "labelSelector": {"matchLabels": {"podium.dev/trial": "sweep-0"}},
    "topologyKey": "kubernetes.io/hostname",
}
CONFLICT = ApiError(409, "AlreadyExists", "it exists")


def job(workers: int = 2, **spec: Any) -> Any:
    return make_job(
        **{"trials": {"max": 1, "maxSteps": 10, "workers": workers}, "gpus": {"perTrial": 2 * workers}} | spec
    )


def worker(rank: int, workers: int = 2, **how: Any) -> PodState:
    return make_pod(rank=rank, workers=workers, **{"node": f"node-{rank + 1}"} | how)


class Server:
    """Replaces the API server: it records what it gets.

    `refuse` maps "verb name" to an error; `there` is the metadata of a Service that exists.
    """

    def __init__(self, refuse: Mapping[str, ApiError] | None = None, there: Mapping[str, Any] | None = None) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.reasons: dict[str, Any] = {}
        self.manifests: list[Mapping[str, Any]] = []
        self.groups = False  # whether it serves PodGroups
        self._refuse, self._there = dict(refuse or {}), there

    async def _note(self, verb: str, kind: str, name: str) -> None:
        await asyncio.sleep(0)
        self.calls.append((verb, kind, name))
        if (error := self._refuse.get(f"{verb} {name}")) is not None:
            raise error

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        if resource.kind == "PodGroup" and not self.groups:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if resource.kind != "Event":
            await self._note("create", resource.kind, body["metadata"]["name"])
            self.manifests.append(body)

    async def get(self, resource: Resource, name: str, _: Any) -> Any:
        if self._there is None:
            raise ApiError(404, "NotFound", name)
        return {"metadata": self._there}

    async def patch(self, resource: Resource, name: str, _: Any, body: Mapping[str, Any], **__: Any) -> None:
        await self._note("patch", resource.kind, name)
        self.reasons[name] = body["metadata"]["annotations"]["podium.dev/requeue"]

    async def delete(self, resource: Resource, name: str, *_: Any, uid: str | None = None) -> None:
        await self._note("delete", resource.kind, name)

    def of(self, verb: str) -> list[str]:
        return [name for what, _, name in self.calls if what == verb]


def actuator(server: Server) -> Actuator:
    api = cast(Api, server)
    return Actuator(api, WatchCaches(api, OperatorSettings()), RULES, Metrics())


def create(server: Server, cluster: ClusterState, attempt: int = 0) -> Actuator:
    made = actuator(server)
    action = CreatePod(trial_key(cluster.trials[0]), attempt, "SlotAvailable", "")
    asyncio.run(made.create(cluster, [action]))
    return made


# manifests


def test_each_worker_requests_its_part_of_the_gpus_on_a_node_of_its_own() -> None:
    made = [manifest(job(), make_trial(), 1, RULES, rank=rank) for rank in (0, 1)]
    assert [pod["metadata"]["name"] for pod in made] == ["sweep-0-1", "sweep-0-1-w1"]
    for rank, pod in enumerate(made):
        assert (
            pod["metadata"]["labels"] | {"podium.dev/rank": str(rank), "podium.dev/workers": "2"}
            == (pod["metadata"]["labels"])
        )
        main = pod["spec"]["containers"][0]
        assert main["resources"]["limits"] == {"podium.dev/gpu": "2"}
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"sweep-0-{rank}", "sweep-0")
        affinity = pod["spec"]["affinity"]["podAntiAffinity"]
        assert affinity == {"requiredDuringSchedulingIgnoredDuringExecution": [OTHER_PODS]}


def test_affinities_of_the_template_remain() -> None:
    own = {"labelSelector": {}, "topologyKey": "zone"}
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    given = {"affinity": {"podAntiAffinity": {field: [own]}, "podAffinity": {field: [own]}}}
    made = manifest(job(template=template(spec=given)), make_trial(), 0, RULES)["spec"]["affinity"]
    assert made == {"podAntiAffinity": {field: [own, OTHER_PODS]}, "podAffinity": {field: [own]}}


def test_workers_find_each_other_by_the_environment_and_the_users_values_win() -> None:
    made = variables(manifest(job(3), make_trial(), 0, RULES, rank=2))
    assert made["MASTER_ADDR"] == "sweep-0-0.sweep-0"
    assert [made[name] for name in ("RANK", "NODE_RANK", "PODIUM_RANK")] == ["2", "2", "2"]
    assert [made[name] for name in ("WORLD_SIZE", "NNODES", "PODIUM_WORKERS")] == ["3", "3", "3"]
    assert int(made["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"]) >= 86400
    own = template(env=[{"name": "MASTER_PORT", "value": "1234"}])
    assert variables(manifest(job(3, template=own), make_trial(), 0, RULES))["MASTER_PORT"] == "1234"


def test_a_trial_of_one_pod_has_nothing_of_this() -> None:
    made = manifest(job(1), make_trial(), 0, RULES)
    assert not {"hostname", "subdomain", "affinity"} & made["spec"].keys()
    assert not {"podium.dev/rank", "podium.dev/workers"} & made["metadata"]["labels"].keys()
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "PODIUM_RANK"} & variables(made).keys()


def test_only_worker_0_continues_from_a_checkpoint_in_a_folder_of_its_node() -> None:
    saved = {"step": 3, "at": "2026-01-01T00:00:00Z", "path": "step-3", "node": "node-1"}
    trial, origin = make_trial(checkpoint=saved), PodOrigin({"node-1", "node-2"})

    def resume(volume: dict[str, Any], rank: int) -> tuple[str | None, bool]:
        spec: dict[str, Any] = {
            "checkpoint": {"path": "/c", "volume": volume},
            "suspension": {"methods": ["freeze", "app-checkpoint"]},
        }
        made = manifest(job(**spec), trial, 1, RULES, origin, rank)
        return variables(made).get("PODIUM_RESUME"), "nodeAffinity" in made["spec"]["affinity"]

    folder = {"hostPath": {"path": "/runs"}}
    assert [resume(folder, rank) for rank in (0, 1)] == [("/c/step-3", True), (None, False)]
    assert [resume({"claimName": "runs"}, rank) for rank in (0, 1)] == [("/c/step-3", False)] * 2


def test_the_memory_that_a_worker_moves_is_that_of_its_own_gpus() -> None:
    spec = {
        "gpus": {"perTrial": 4, "memory": "1Gi"},
        "suspension": {"methods": ["freeze", "cuda-checkpoint"]},
        "template": template(resources={"requests": {"memory": "1Gi"}}),
    }
    made = manifest(job(**spec), make_trial(), 0, RULES)
    assert made["spec"]["containers"][0]["resources"]["requests"]["memory"] == str(3 << 30)
    assert made["metadata"]["annotations"][MEMORY_ANNOTATION] == str(1 << 30)


# creation


def test_the_service_comes_first_and_worker_0_last() -> None:
    server = Server()
    create(server, make_cluster_state(job(3), make_trial(), make_node()))
    assert server.of("create") == ["sweep-0", "sweep-0-0-w2", "sweep-0-0-w1", "sweep-0-0"]
    service = server.manifests[0]
    assert service["kind"] == "Service"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"podium.dev/trial": "sweep-0"}
    assert [one["uid"] for one in service["metadata"]["ownerReferences"]] == ["uid-sweep-0"]


def test_where_the_cluster_has_pod_groups_the_pods_of_an_attempt_are_in_one() -> None:
    server = Server()
    server.groups = True
    create(server, make_cluster_state(job(3), make_trial(), make_node()))
    group, _, *pods = server.manifests
    assert (group["kind"], group["metadata"]["name"]) == ("PodGroup", "sweep-0-0")
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}}
    assert [pod["spec"]["schedulingGroup"] for pod in pods] == [{"podGroupName": "sweep-0-0"}] * 3
    assert [one["uid"] for one in group["metadata"]["ownerReferences"]] == ["uid-sweep-0"]


def test_a_cluster_without_pod_groups_is_asked_once() -> None:
    server = Server()
    cluster = make_cluster_state(job(3), make_trial(), make_node())
    made = create(server, cluster)
    server.groups = True
    asyncio.run(made.create(cluster, [CreatePod(trial_key(cluster.trials[0]), 0, "SlotAvailable", "")]))
    assert not any("schedulingGroup" in one["spec"] for one in server.manifests if one["kind"] == "Pod")


def test_if_one_pod_is_refused_the_others_are_deleted() -> None:
    server = Server({"create sweep-0-0-w1": ApiError(403, "Forbidden", "exceeded quota: pods")})
    cluster = make_cluster_state(job(3), make_trial(), make_node())
    made = create(server, cluster)
    assert server.of("create")[-1] == "sweep-0-0-w1"
    assert server.of("delete") == ["sweep-0-0-w2"]
    assert "exceeded quota" in made.refused()[trial_key(cluster.trials[0])]


@pytest.mark.parametrize(
    ("old", "created"),
    [
        (worker(1, **CRASHED), True),
        (worker(1, **RUNS), False),
        (worker(1, deleting=True, **RUNS), False),
        (worker(1, attempt=1), True),  # another reconcile was interrupted after it
        (worker(1, attempt=1, deleting=True), False),
    ],
)
def test_a_new_attempt_waits_until_all_old_pods_have_ended(old: PodState, created: bool) -> None:
    server = Server()
    cluster = make_cluster_state(job(), make_trial(phase="Requeued", attempt=0), make_node(), old)
    create(server, cluster, attempt=1)
    assert bool(server.calls) is created


@pytest.mark.parametrize(
    ("there", "created"),
    [
        ({"ownerReferences": [{"kind": "HyperParamTrial", "uid": "uid-sweep-0"}]}, True),
        ({"ownerReferences": [{"kind": "HyperParamTrial", "uid": "uid-of-an-earlier-trial"}]}, False),
        ({"ownerReferences": [{"kind": "HyperParamTrial", "uid": "uid-sweep-0"}], "deletionTimestamp": "now"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_service_that_exists_must_be_the_trials_own(there: Mapping[str, Any] | None, created: bool) -> None:
    server = Server({"create sweep-0": CONFLICT}, there)
    cluster = make_cluster_state(job(), make_trial(), make_node())
    made = create(server, cluster)
    assert ("sweep-0-0" in server.of("create")) is created
    refused = made.refused().get(trial_key(cluster.trials[0]), "")
    assert ("delete or rename it" in refused) is (there == {})


# deletion


def test_a_requeue_deletes_all_workers_after_the_reason_is_on_each() -> None:
    server, trial = Server(), make_trial(phase="Running", pod="sweep-0-0")
    cluster = make_cluster_state(job(), trial, make_node(), worker(0, **RUNS), worker(1, **RUNS))
    action = Requeue(trial_key(trial), "NodeDraining", "The node is drained.")
    asyncio.run(actuator(server).write_run_queues(cluster, [action]))
    both = ["sweep-0-0", "sweep-0-0-w1"]
    assert [(verb, name) for verb, _, name in server.calls] == [("patch", one) for one in both] + [
        ("delete", one) for one in both
    ]
    assert server.reasons == dict.fromkeys(both, "NodeDraining")


def test_the_end_of_a_trial_deletes_all_workers_that_run() -> None:
    server, trial = Server(), make_trial(phase="EarlyStopped", pod="sweep-0-0")
    cluster = make_cluster_state(job(), trial, make_node(), worker(0, **RUNS), worker(1, **RUNS))
    asyncio.run(actuator(server).write_run_queues(cluster, [DeletePod(trial_key(trial), "StoppedByUser", "")]))
    assert set(server.of("delete")) == {"sweep-0-0", "sweep-0-0-w1"}
    assert server.reasons == {}


def ended_workers(trial: Any, *pods: PodState, **how: Any) -> Server:
    server = Server(how.pop("refuse", None))
    asyncio.run(actuator(server).write_run_queues(make_cluster_state(job(), trial, make_node(), *pods, **how), []))
    return server


def test_workers_that_lost_another_one_are_deleted_with_a_reason() -> None:
    trial, gone = make_trial(phase="Running", pod="sweep-0-0"), worker(1, deleting=True, **RUNS)
    for pods in ((worker(0, **RUNS), worker(1, **CRASHED)), (worker(0, **RUNS), gone)):
        server = ended_workers(trial, *pods)
        assert (server.of("delete"), server.reasons) == (["sweep-0-0"], {"sweep-0-0": WORKER_ENDED})
    assert ended_workers(trial, worker(0, **RUNS), worker(1, **RUNS)).calls == []


def test_a_pod_keeps_the_reason_that_it_has() -> None:
    first = worker(0, **RUNS)
    explained = replace(first, facts=replace(first.facts, requeue="NodeDraining"))
    server = ended_workers(make_trial(phase="Running", pod="sweep-0-0"), explained, worker(1, deleting=True, **RUNS))
    assert (server.of("delete"), server.reasons) == (["sweep-0-0"], {})


def test_a_pod_on_a_silent_node_is_not_a_consequence() -> None:
    trial = make_trial(phase="Running", pod="sweep-0-0")
    server = ended_workers(trial, worker(0, **CRASHED), worker(1, **RUNS), unresponsive=("node-2",))
    assert (server.of("delete"), server.reasons) == (["sweep-0-0-w1"], {})


def test_the_other_workers_of_a_trial_that_succeeded_are_deleted_once_that_is_stored() -> None:
    done = worker(0, phase="Succeeded", gate=ended(0), main=ended(0))
    assert ended_workers(make_trial(phase="Running", pod="sweep-0-0"), done, worker(1, **RUNS)).calls == []
    server = ended_workers(make_trial(phase="Succeeded", pod="sweep-0-0"), done, worker(1, **RUNS))
    assert (server.of("delete"), server.reasons) == (["sweep-0-0-w1"], {})


def test_a_refused_deletion_is_tried_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    refuse = {"delete sweep-0-0": ApiError(403, "Forbidden", "a webhook refuses it")}
    server, trial = Server(refuse), make_trial(phase="Running", pod="sweep-0-0")
    cluster = make_cluster_state(job(), trial, make_node(), worker(0, **RUNS), worker(1, **CRASHED))
    made = actuator(server)
    for _ in range(2):
        asyncio.run(made.write_run_queues(cluster, []))
    assert server.of("delete") == ["sweep-0-0"]
    assert "a webhook refuses it" in caplog.text

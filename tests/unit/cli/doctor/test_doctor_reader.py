"""Facts that `podium doctor` reads over HTTP, from a whole installation to an API server that refuses everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_server import ApiServer, kubeconfig_of, serving, status, with_version
from doctor_facts import UNREADABLE

from podium_cli.doctor import reader
from podium_cli.doctor.facts import ClusterFacts, KubeletConfig, LocalQueue, NodeFacts, ResourceSlice, Unread, Webhook
from podium_cli.doctor.installation_checks import EXPECTED_CRDS
from podium_cli.doctor.reader import read_facts
from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cluster.client import ApiError, connect
from podium_cluster.resources import PRIORITY_CLASSES
from podium_cluster.settings import ClusterSettings

KINDS = (
    *(reader.DEPLOYMENTS, reader.DAEMON_SETS, reader.CRDS, reader.RUNTIME_CLASSES, *reader.WEBHOOKS),
    *(reader.ENDPOINT_SLICES, reader.SLICES, reader.DEVICE_CLASSES, reader.LOCAL_QUEUES, PRIORITY_CLASSES),
)
LABELS = {
    "app.kubernetes.io/name": "podium",
    "app.kubernetes.io/instance": "podium",
    "helm.sh/chart": "podium-0.1.0",
}
CONFIGZ, METRICS = "/api/v1/nodes/gpu-1/proxy/configz", "/api/v1/nodes/gpu-1/proxy/metrics"


def made(kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return with_version({"kind": kind, "metadata": meta | fields.pop("metadata", {}), **fields})


def part(kind: str, component: str, **status: Any) -> dict[str, Any]:
    container = {
        "name": component,
        "image": "podium:1",
        "env": [
            {"name": "PODIUM_GPU_MODE", "value": "reservations"},
            {"name": "PODIUM_RESERVATION_QUEUE", "value": "research"},
            {"name": "PODIUM_NAMESPACE", "valueFrom": {}},
        ],
    }
    pod = {"containers": [container], "priorityClassName": "podium-system", "runtimeClassName": "nvidia"}
    labels = LABELS | {"app.kubernetes.io/component": component}
    spec = {"replicas": 2, "template": {"spec": pod}}
    return made(kind, f"podium-{component}", "gpus", metadata={"labels": labels}, spec=spec, status=status)


OBJECTS = [
    made(
        "LocalQueue",
        "research",
        "lab",
        spec={"clusterQueue": "cq"},
        status={"conditions": [{"type": "Active", "status": "True", "reason": "Ready"}]},
    ),
    made("LocalQueue", "research", "ops"),
    made("LocalQueue", "other", "lab"),
    made(
        "Node",
        "gpu-1",
        metadata={"labels": {"nvidia.com/gpu.present": "true"}},
        status={
            "allocatable": {"nvidia.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no\nnetwork"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.1.9"},
            "runtimeHandlers": [{"name": ""}, {"name": "nvidia", "features": {}}],
        },
    ),
    made("Node", "cpu-1", status={"conditions": [{"type": "Ready", "status": "True"}]}),
    part("Deployment", "operator", readyReplicas=1),
    part("DaemonSet", "agent", desiredNumberScheduled=3, numberReady=2),
    made(
        "Pod",
        "podium-agent-x",
        "gpus",
        metadata={"labels": LABELS | {"app.kubernetes.io/component": "agent"}},
        spec={"nodeName": "gpu-1", "containers": [{"name": "agent", "image": "podium:0"}]},
        status={
            "phase": "Pending",
            "containerStatuses": [
                {"name": "agent", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
            ],
        },
    ),
    *(
        made(
            "CustomResourceDefinition",
            name,
            spec={"versions": versions},
            status={"conditions": [{"type": "Established", "status": "True"}]},
        )
        for name, versions in EXPECTED_CRDS.items()
    ),
    made("Lease", "podium-agent-gpu-1", "gpus", spec={"renewTime": "2020-01-01T00:00:00.000000Z"}),
    made("Lease", "podium-operator", "gpus", spec={"renewTime": "2020-01-01T00:00:00.000000Z"}),
    made("GPUNode", "gpu-1", status={"driver": "580.1"}),
    made("PriorityClass", "podium-trial", value=-1),
    made("RuntimeClass", "nvidia", handler="nvidia"),
    made("Namespace", "gpus", metadata={"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}),
    made(
        "ValidatingWebhookConfiguration",
        "policy",
        webhooks=[
            {
                "name": name,
                "failurePolicy": policy,
                "clientConfig": {"service": {"namespace": "policy", "name": "hook"}},
                "rules": [{"apiGroups": groups, "resources": [resource], "operations": ["CREATE"]}],
            }
            for name, policy, groups, resource in (
                ("pods.policy", "Fail", [""], "pods"),
                ("ignored.policy", "Ignore", [""], "pods"),
                ("deployments.policy", "Fail", ["apps"], "*"),
                ("services.policy", "Fail", [""], "services"),
            )
        ],
    ),
    made(
        "MutatingWebhookConfiguration",
        "outside",
        webhooks=[
            {
                "name": "all",
                "failurePolicy": "Fail",
                "clientConfig": {"url": "https://hooks.example"},
                "rules": [{"apiGroups": ["*"], "resources": ["*/*"], "operations": ["*"]}],
            }
        ],
    ),
    made(
        "EndpointSlice",
        "hook-1",
        "policy",
        endpoints=[{"conditions": {"ready": True}}, {"conditions": {"ready": False}}, {"conditions": {}}],
    ),
    made("DeviceClass", "gpu.nvidia.com", spec={"extendedResourceName": "nvidia.com/gpu"}),
    made("ResourceSlice", "s", spec={"driver": "gpu.nvidia.com", "nodeName": "gpu-1", "devices": [{"name": "gpu-0"}]}),
]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with serving() as started:
        started.kinds = KINDS
        started.put(*OBJECTS)
        config = {"cgroupDriver": "systemd", "failCgroupV1": True, "featureGates": {"ContainerCheckpoint": False}}
        started.answers = {
            "/version": lambda: web.json_response({"gitVersion": "v1.36.3"}),
            CONFIGZ: lambda: web.json_response({"kubeletconfig": config}),
            METRICS: lambda: web.Response(text="go_info 1\n# TYPE\nkubelet_cgroup_version 2\nz 1\n"),
        }
        yield started


def read(server: ApiServer, folder: Path, only: str = "", namespace: str | None = None) -> ClusterFacts:
    async def main() -> ClusterFacts:
        async with connect(ClusterSettings(kubeconfig=kubeconfig_of(server, folder))) as api:
            return await read_facts(api, only=only, namespace=namespace)

    return asyncio.run(main())


def test_the_facts_of_a_whole_installation(server: ApiServer, tmp_path: Path) -> None:
    facts = read(server, tmp_path)
    assert (facts.server_version, facts.namespace, facts.mode) == ("v1.36.3", "gpus", "reservations")
    assert facts.checked_nodes == (
        NodeFacts(
            "gpu-1",
            "v1.36.3",
            "containerd://2.1.9",
            ready=False,
            ready_message="KubeletNotReady: no network",
            labels={"nvidia.com/gpu.present": "true"},
            allocatable={"nvidia.com/gpu": "2"},
            handlers=frozenset({"", "nvidia"}),
            kubelet=KubeletConfig("systemd", True, {"ContainerCheckpoint": False}),
            cgroup_version=2,
        ),
    )
    operator, agent = facts.workload("operator"), facts.workload("agent")
    assert operator is not None
    assert agent is not None
    assert (operator.ready, operator.desired, operator.version) == (1, 2, "0.1.0")
    assert operator.environment == {"PODIUM_GPU_MODE": "reservations", "PODIUM_RESERVATION_QUEUE": "research"}
    assert facts.local_queues == (
        LocalQueue("lab", "research", "cq"),
        LocalQueue("ops", "research", "", "Kueue has not reported its state"),
    )
    assert (agent.ready, agent.desired, agent.runtime_class) == (2, 3, "nvidia")
    assert not isinstance(facts.pods, Unread)
    assert [(pod.name, pod.node, pod.trouble) for pod in facts.pods] == [
        ("podium-agent-x", "gpu-1", "ErrImagePull: not found")
    ]
    assert not isinstance(facts.crds, Unread)
    assert {one.name for one in facts.crds if one.established} == set(EXPECTED_CRDS)
    assert not isinstance(facts.heartbeats, Unread)
    assert list(facts.heartbeats) == ["gpu-1"]
    assert facts.heartbeats["gpu-1"] > 1e6
    assert facts.priority_classes == {"podium-trial": -1}
    assert facts.namespace_labels == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert facts.webhooks == (
        Webhook("outside", "all", "", "https://hooks.example"),
        Webhook("policy", "pods.policy", "policy/hook", endpoints=2),
    )
    assert facts.device_classes == {"gpu.nvidia.com": "nvidia.com/gpu"}
    assert facts.slices == (ResourceSlice("gpu.nvidia.com", "gpu-1", 1),)


def test_an_account_without_rights_gets_a_reason_for_every_fact(server: ApiServer, tmp_path: Path) -> None:
    server.before = lambda path: refuse()
    facts = read(server, tmp_path)
    unread = {name: fact for name in UNREADABLE if isinstance(fact := getattr(facts, name), Unread)}
    assert set(unread) == set(UNREADABLE)
    assert {fact.reason for fact in unread.values()} == {"you may not read it: pods is forbidden"}


def refuse() -> None:
    body = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "pods is forbidden"}
    raise web.HTTPForbidden(text=json.dumps(body), content_type="application/json")


def test_a_cluster_without_the_kinds_says_so(server: ApiServer, tmp_path: Path) -> None:
    server.kinds, server.objects = (), [one for one in server.objects if one["kind"] in ("Node", "Namespace")]
    facts = read(server, tmp_path)
    for fact in (facts.slices, facts.device_classes, facts.webhooks):
        assert fact == Unread("the API server does not serve this kind")
    assert facts.crds == ()
    assert facts.namespace == "podium-system"
    assert facts.namespace_labels is None


def test_a_kubelet_that_may_not_be_asked_or_answers_nonsense_is_skipped(server: ApiServer, tmp_path: Path) -> None:
    server.answers[CONFIGZ] = lambda: status(403, "Forbidden", "nodes/proxy is forbidden")
    server.answers[METRICS] = lambda: web.Response(text="kubelet_cgroup_version_other 2\n")
    (node,) = read(server, tmp_path).checked_nodes
    assert isinstance(node.kubelet, Unread)
    assert node.kubelet.reason == "you may not read it: nodes/proxy is forbidden"
    assert node.cgroup_version == Unread("the kubelet's metrics do not have kubelet_cgroup_version")
    server.answers[CONFIGZ] = lambda: web.json_response({"kubeletconfig": {"featureGates": {"A": "perhaps"}}})
    (node,) = read(server, tmp_path).checked_nodes
    assert isinstance(node.kubelet, Unread)
    assert "featureGates.A" in node.kubelet.reason


def test_kubelets_that_hang_cost_one_time_limit_together(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "KUBELET_SECONDS", 0.0)
    (node,) = read(server, tmp_path).checked_nodes
    assert node.kubelet == node.cgroup_version == Unread("it did not answer within 0 s")


def test_more_objects_than_the_limit_are_not_read(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_OBJECTS", 1)
    server.answers["/api/v1/nodes"] = lambda: web.json_response(
        {"metadata": {"resourceVersion": "1", "continue": "more"}, "items": OBJECTS[:2]}
    )
    assert read(server, tmp_path).nodes == Unread("there are more than 1 objects of the kind Node")


def test_an_object_of_another_form_is_a_reason(server: ApiServer, tmp_path: Path) -> None:
    server.put(made("RuntimeClass", "odd"))
    facts = read(server, tmp_path)
    assert isinstance(facts.runtime_classes, Unread)
    assert "a RuntimeClass is not of the expected form" in facts.runtime_classes.reason


def test_the_namespace_of_the_caller_is_the_only_one_that_is_searched(server: ApiServer, tmp_path: Path) -> None:
    facts = read(server, tmp_path, namespace="elsewhere")
    assert (facts.namespace, facts.workloads) == ("elsewhere", ())


def test_wrong_credentials_end_the_command(server: ApiServer, tmp_path: Path) -> None:
    server.token = "another"
    with pytest.raises(ApiError, match="Unauthorized"):
        read(server, tmp_path)


def test_the_command_fails_with_an_error_and_names_a_missing_node(
    server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["doctor", "--kubeconfig", str(kubeconfig_of(server, tmp_path))]
    assert run(line) is Exit.FAILED
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["RESULT", "CHECK", "WHERE", "WHY"]
    assert out[1].startswith("error  ")
    assert "KubeletNotReady: no network. See kubectl describe node" in "\n".join(out)
    assert "skipped" in out[-1]
    assert run([*line, "-o", "json"]) is Exit.FAILED
    data = json.loads(capsys.readouterr().out)
    assert data["counts"]["error"] == sum(one["result"] == "error" for one in data["items"])
    assert run([*line, "cpu-1", "-o", "json"]) is Exit.FAILED
    nodes = {one["where"] for one in json.loads(capsys.readouterr().out)["items"] if one["group"] == "Node"}
    assert nodes == {"cpu-1"}
    assert run([*line, "nowhere"]) is Exit.NOT_FOUND
    assert "NodeNotFound: there is no node nowhere" in capsys.readouterr().err

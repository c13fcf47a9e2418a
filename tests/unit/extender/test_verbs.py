"""filter and prioritize over HTTP: reasons of refusals, scores, and responses to invalid requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import pytest

from podium_cluster.resources import GPUNODES, LEASES, PODS
from podium_extender.metrics import Metrics

FRESH = "2027-01-15T07:59:50Z"  # ten seconds before the tests' clock
OLD = "2027-01-15T07:00:00Z"
GIB = 2**30
Json = Mapping[str, Any]
Ask = Callable[..., httpx.Response]


def gpu(uuid: str, **changes: Any) -> Json:
    """Return a healthy 80 GiB GPU with four slots."""
    return {
        "uuid": uuid,
        "index": 0,
        "product": "NVIDIA-H100-80GB-HBM3",
        "memoryTotal": 80 * GIB,
        "health": "Healthy",
        "slots": 4,
    } | changes


def trial(number: int) -> Json:
    return {
        "namespace": "default",
        "trial": f"job-{number}",
        "uid": f"t{number}",
        "pod": f"job-{number}-0",
        "podUID": f"p{number}",
        "state": "Running",
        "since": FRESH,
    }


def gpunode(name: str, *gpus: Json, updated: str = FRESH) -> Json:
    return {"metadata": {"name": name}, "spec": {}, "status": {"updatedAt": updated, "gpus": list(gpus)}}


def pod(name: str, node: str = "", phase: str = "Pending", gpus: int = 1, **annotations: str) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": {f"podium.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "train", "resources": {"requests": {"podium.dev/gpu": str(gpus)}}}],
            "initContainers": [{"name": "podium-gate", "resources": {"requests": {"podium.dev/gpu": str(gpus)}}}],
        },
        "status": {"phase": phase},
    }


def lease(node: str, renewed: str) -> Json:
    return {
        "metadata": {"name": f"podium-agent-{node}", "namespace": "podium-system"},
        "spec": {"renewTime": renewed},
    }


def question(pod_object: Json, *nodes: str) -> Json:
    return {"Pod": pod_object, "Nodes": None, "NodeNames": list(nodes)}


HEALTHY = gpunode("a", gpu("GPU-a"))
PLAIN = pod("new")
TRIAL_POD = {**PLAIN, "metadata": PLAIN["metadata"] | {"labels": {"podium.dev/trial": "new"}}}


@pytest.mark.parametrize(
    ("why", "node", "asked", "place", "message"),
    [
        ("a healthy GPU takes it", HEALTHY, TRIAL_POD, "NodeNames", ""),
        ("an unreported node is unknown, not refused", gpunode("other"), TRIAL_POD, "NodeNames", ""),
        ("old data is unknown", gpunode("a", gpu("GPU-a"), updated=OLD), TRIAL_POD, "NodeNames", ""),
        (
            "its only GPU is broken",
            gpunode("a", gpu("GPU-a", health="Unhealthy", healthReason="Xid 79")),
            TRIAL_POD,
            "FailedAndUnresolvableNodes",
            "Unhealthy: 0 of 1 GPUs fit and are not unhealthy; 1 needed (Xid 79)",
        ),
        (
            "another product",
            HEALTHY,
            pod("new", gpu_products="NVIDIA-A100, NVIDIA-L4"),
            "FailedAndUnresolvableNodes",
            "NVIDIA-A100",
        ),
        ("one of its products", HEALTHY, pod("new", gpu_products="X,NVIDIA-H100-80GB-HBM3"), "NodeNames", ""),
        ("too small for ever", HEALTHY, pod("new", gpu_memory=str(90 * GIB)), "FailedAndUnresolvableNodes", "90"),
        (
            "too full now: preemption would help",
            gpunode("a", gpu("GPU-a", memoryReserved=70 * GIB, trials=[trial(1)])),
            pod("new", gpu_memory=str(20 * GIB)),
            "FailedNodes",
            "20",
        ),
        ("two GPUs where there is one", HEALTHY, pod("new", gpus=2), "FailedAndUnresolvableNodes", "2"),
        (
            "an annotation that is not a number",
            HEALTHY,
            pod("new", gpu_memory="lots"),
            "FailedAndUnresolvableNodes",
            "InvalidPod: annotation podium.dev/gpu-memory='lots'",
        ),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_filter(ask: Ask, why: str, node: Json, asked: Json, place: str, message: str) -> None:
    answer = ask({GPUNODES: [node]}, "/filter", question(asked, "a"))
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["Error"] == ""
    assert result["Nodes"] is None
    assert list(result[place]) == ["a"], result
    if place != "NodeNames":
        assert result["NodeNames"] == []
        assert message in result[place]["a"]


def test_memory_of_a_pod_that_no_agent_has_reported_counts(ask: Ask) -> None:
    placed = pod("p1", node="a", gpu_memory=str(70 * GIB))
    asked = question(pod("new", gpu_memory=str(20 * GIB)), "a")
    full = ask({GPUNODES: [HEALTHY], PODS: [placed]}, "/filter", asked).json()
    assert list(full["FailedNodes"]) == ["a"]
    over = pod("p1", node="a", phase="Succeeded", gpu_memory=str(70 * GIB))
    assert ask({GPUNODES: [HEALTHY], PODS: [over]}, "/filter", asked).json()["NodeNames"] == ["a"]


def test_declared_memory_is_read_from_the_containers_variable_too(ask: Ask) -> None:
    asked = json.loads(json.dumps(TRIAL_POD))
    asked["spec"]["containers"][0]["env"] = [{"name": "PODIUM_GPU_MEMORY_BYTES", "value": str(90 * GIB)}]
    answer = ask({GPUNODES: [HEALTHY]}, "/filter", question(asked, "a")).json()
    assert list(answer["FailedAndUnresolvableNodes"]) == ["a"]


def scores(answer: httpx.Response) -> dict[str, int]:
    assert answer.status_code == 200, answer.text
    return {row["Host"]: row["Score"] for row in answer.json()}


@pytest.mark.parametrize(
    ("why", "objects", "better", "worse"),
    [
        (
            "fewer trials",
            {GPUNODES: [gpunode("a", gpu("GPU-a", trials=[trial(1), trial(2)])), gpunode("b", gpu("GPU-b"))]},
            "b",
            "a",
        ),
        (
            "a pod that was placed a moment ago counts before its agent has seen it",
            {GPUNODES: [HEALTHY, gpunode("b", gpu("GPU-b"))], PODS: [pod("p9", node="a")]},
            "b",
            "a",
        ),
        (
            "a pod that its agent reports counts once",
            {
                GPUNODES: [
                    gpunode("a", gpu("GPU-a", trials=[trial(1)])),
                    gpunode("b", gpu("GPU-b", trials=[trial(2), trial(3)])),
                ],
                PODS: [pod("p1", node="a", phase="Running")],
            },
            "a",
            "b",
        ),
        (
            "unknown is better than loaded",
            {
                GPUNODES: [
                    gpunode("a", gpu("GPU-a", trials=[trial(1), trial(2)])),
                    gpunode("b", gpu("GPU-b"), updated=OLD),
                    gpunode("c", gpu("GPU-c")),
                ]
            },
            "b",
            "a",
        ),
        (
            "unknown is worse than idle",
            {
                GPUNODES: [
                    gpunode("a", gpu("GPU-a", trials=[trial(1), trial(2)])),
                    gpunode("b", gpu("GPU-b"), updated=OLD),
                    gpunode("c", gpu("GPU-c")),
                ]
            },
            "c",
            "b",
        ),
        (
            "a heartbeat keeps old data valid",
            {
                GPUNODES: [
                    gpunode("a", gpu("GPU-a", trials=[trial(1)])),
                    gpunode("b", gpu("GPU-b"), updated=OLD),
                    gpunode("c", gpu("GPU-c", trials=[trial(2)])),
                ],
                LEASES: [lease("b", FRESH)],
            },
            "b",
            "c",
        ),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) and len(value) > 1 else "",
)
def test_prioritize(ask: Ask, why: str, objects: Mapping[Any, Sequence[Json]], better: str, worse: str) -> None:
    names = [node["metadata"]["name"] for node in objects[GPUNODES]]
    given = scores(ask(objects, "/prioritize", question(TRIAL_POD, *names)))
    assert list(given) == names
    assert given[better] > given[worse], given
    assert all(0 <= score <= 10 for score in given.values())


def test_by_default_trials_are_spread_and_other_pods_fill_used_nodes(ask: Ask) -> None:
    """Pairs of GPUs are typical, and only the empty node can run them."""
    full, half = [trial(i) for i in range(4)], [trial(4), trial(5)]
    begun = gpunode("a", gpu("GPU-a", trials=half), gpu("GPU-b", trials=full))
    nodes = [begun, gpunode("b", gpu("GPU-c"), gpu("GPU-d"))]
    objects = {GPUNODES: nodes, PODS: [pod(f"pair-{i}", gpus=2) for i in range(3)]}
    assert scores(ask(objects, "/prioritize", question(TRIAL_POD, "a", "b"))) == {"a": 0, "b": 10}
    assert scores(ask(objects, "/prioritize", question(PLAIN, "a", "b"))) == {"a": 10, "b": 0}


def test_unknown_nodes_get_the_middle_score(ask: Ask) -> None:
    assert scores(ask({}, "/prioritize", question(TRIAL_POD, "a", "b"))) == {"a": 5, "b": 5}
    assert scores(ask({}, "/prioritize", question(pod("new", gpu_memory="lots"), "a"))) == {"a": 5}


def test_full_form_is_answered_with_whole_nodes(ask: Ask) -> None:
    nodes = [{"metadata": {"name": name, "labels": {"kept": "yes"}}, "status": {"x": 1}} for name in ("a", "b")]
    broken = gpunode("b", gpu("GPU-b", health="Unhealthy"))
    body = {"Pod": TRIAL_POD, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}
    answer = ask({GPUNODES: [HEALTHY, broken]}, "/filter", body).json()
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == nodes[:1]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["b"]


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body: Invalid JSON"),
        (b"{", "body: Invalid JSON"),
        (b"[]", "should be an object"),
        (b"null", "should be an object"),
        (b"{}", "Pod: Field required"),
        ({"Pod": None, "NodeNames": ["a"]}, "Pod: Field required"),
        ({"Pod": TRIAL_POD, "Nodes": None, "NodeNames": None}, "NodeNames or Nodes must be given"),
        ({"Pod": TRIAL_POD, "NodeNames": "a"}, "NodeNames: Input should be a valid array"),
        ({"Pod": TRIAL_POD, "NodeNames": [1]}, "NodeNames.0: Input should be a valid string"),
        ({"Pod": {"metadata": {}, "spec": {"containers": 7}}, "NodeNames": []}, "Pod.spec.containers"),
        (b"\xff\xfe", "body: Invalid JSON"),
        (b"[" * 100_000, "body: Invalid JSON"),
    ],
)
def test_the_response_to_a_malformed_request_names_the_error(ask: Ask, path: str, body: Any, message: str) -> None:
    answer = ask({}, path, body)
    assert answer.status_code == 400
    assert message in answer.json()["Error"]


def test_a_null_list_is_an_empty_one(ask: Ask) -> None:
    body = {"Pod": {"metadata": {"labels": None}, "spec": {"containers": None}}, "NodeNames": [], "Unknown": 1}
    answer = ask({}, "/filter", body)
    assert answer.status_code == 200
    assert answer.json()["NodeNames"] == []


def test_a_request_too_large_is_refused_before_it_is_read(ask: Ask) -> None:
    answer = ask({}, "/filter", b"x" * 2000, body_limit=1000)
    assert answer.status_code == 413
    assert "PODIUM_BODY_LIMIT" in answer.json()["Error"]


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/bind", 404), ("GET", "/filter", 405)])
def test_an_unknown_verb_gets_the_list_of_verbs(ask: Ask, method: str, path: str, status: int) -> None:
    answer = ask({}, path, b"", method=method)
    assert answer.status_code == status
    assert "POST /filter" in answer.json()["Error"]


def test_a_response_before_the_first_lists_names_the_missing_ones(ask: Ask) -> None:
    body = question(TRIAL_POD, "a")
    filtered = ask({}, "/filter", body, warm=False)
    assert filtered.status_code == 200
    assert "waiting for the first list of GPUNodes and pods and heartbeats and trials" in filtered.json()["Error"]
    assert ask({}, "/prioritize", body, warm=False).status_code == 503


def test_rejections_and_latencies_are_counted(ask: Ask) -> None:
    metrics = Metrics()
    broken = gpunode("b", gpu("GPU-b", health="Unhealthy"))
    ask({GPUNODES: [HEALTHY, broken]}, "/filter", question(TRIAL_POD, "a", "b"), metrics=metrics)
    ask({}, "/filter", b"{", metrics=metrics)
    value = metrics.registry.get_sample_value
    assert value("podium_extender_request_seconds_count", {"verb": "filter"}) == 1
    assert value("podium_extender_requests_total", {"verb": "filter", "status": "200"}) == 1
    assert value("podium_extender_requests_total", {"verb": "filter", "status": "400"}) == 1
    refused = [s for m in metrics.registry.collect() for s in m.samples if s.name.endswith("rejections_total")]
    assert sum(sample.value for sample in refused) == 1

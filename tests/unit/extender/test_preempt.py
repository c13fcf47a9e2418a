"""preempt over HTTP in both forms, responses before the caches are filled or at the limit, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS, TRIALS
from podium_cluster.watch import WatchCache
from podium_extender.metrics import Metrics
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.verbs.events import EventRecorder
from podium_extender.verbs.wire import RequestError

Json = Mapping[str, Any]
Ask = Callable[..., httpx.Response]


def pod(name: str, node: str = "a", priority: int = -1, trial: bool = True, **spec: Any) -> Json:
    labels = {"podium.dev/trial": name} if trial else {}
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": "1", "cpu": "500m"}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels},
        "spec": {"nodeName": node, "priority": priority, "schedulerName": "podium", "containers": [container]} | spec,
        "status": {"phase": "Running"},
    }


def trial(name: str, seconds: float, saved: float = 0.0) -> Json:
    status = {"rank": 3, "gpuSeconds": seconds, "lastStep": 7.0, "checkpoint": {"step": 2.0, "gpuSeconds": saved}}
    return {"metadata": {"name": name, "namespace": "default", "uid": f"trial-{name}"}, "status": status}


PREEMPTOR = pod("urgent", node="", priority=1000, trial=False)
OBJECTS = {
    PODS: [pod("x"), pod("y"), pod("z", node="b")],
    TRIALS: [trial("x", 90.0), trial("y", 90.0, saved=80.0), trial("z", 90.0, saved=50.0)],
}


def meta(violations: int = 0, **victims: str) -> Json:
    nodes = {
        node: {"Pods": [{"UID": f"uid-{name}"} for name in names.split()], "NumPDBViolations": violations}
        for node, names in victims.items()
    }
    return {"Pod": PREEMPTOR, "NodeNameToVictims": None, "NodeNameToMetaVictims": nodes}


def evicted(answer: httpx.Response) -> Json:
    assert answer.status_code == 200, answer.text
    return {
        node: [victim["UID"] for victim in victims["Pods"]]
        for node, victims in answer.json()["NodeNameToMetaVictims"].items()
    }


@pytest.mark.parametrize(
    ("why", "body", "expected"),
    [
        ("least loss of all", meta(a="x", b="z"), {"a": ["uid-y"]}),
        ("the usable node", meta(a="other", b="z"), {"b": ["uid-z"]}),
        ("no pod that may be preempted", meta(a="other"), {}),
        ("no nodes", meta(), {}),
        ("several", meta(a="x y"), {"a": ["uid-y", "uid-x"]}),
        ("budgets first", meta(1, a="x"), {"a": ["uid-x"]}),
    ],
)
def test_victims_in_the_short_form(ask: Ask, why: str, body: Json, expected: Json) -> None:
    answer = ask(OBJECTS, "/preempt", body)
    assert evicted(answer) == expected
    violations = {node: victims["NumPDBViolations"] for node, victims in answer.json()["NodeNameToMetaVictims"].items()}
    assert all(count == (1 if why == "budgets first" else 0) for count in violations.values())


@pytest.mark.parametrize(
    ("why", "victim", "expected"),
    [
        ("a trial that no watch has shown", pod("new"), ["uid-new"]),
        ("a pod of another scheduler that calls itself a trial", pod("new", schedulerName="default-scheduler"), None),
        ("a pod that is not a trial", pod("new", trial=False), None),
        ("a trial of the same priority", pod("new", priority=1000), None),
    ],
)
def test_victims_in_the_full_form(ask: Ask, why: str, victim: Json, expected: list[str] | None) -> None:
    nodes = {"a": {"Pods": [victim], "NumPDBViolations": 0}}
    body = {"Pod": PREEMPTOR, "NodeNameToVictims": nodes, "NodeNameToMetaVictims": None}
    assert evicted(ask({}, "/preempt", body)) == ({"a": expected} if expected else {})


def test_a_trial_is_preempted_instead_of_a_proposed_other_pod(ask: Ask) -> None:
    nodes = {"a": {"Pods": [pod("other", trial=False)], "NumPDBViolations": 0}}
    body = {"Pod": PREEMPTOR, "NodeNameToVictims": nodes, "NodeNameToMetaVictims": None}
    assert evicted(ask(OBJECTS, "/preempt", body)) == {"a": ["uid-y"]}


def test_an_invalid_pod_preempts_no_trial(ask: Ask) -> None:
    body = {**meta(a="x"), "Pod": pod("bad", node="", priority=1000) | {"spec": {"containers": [_container("many")]}}}
    assert evicted(ask(OBJECTS, "/preempt", body)) == {}


def _container(gpus: str) -> Json:
    return {"name": "c", "resources": {"requests": {"podium.dev/gpu": gpus}}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "body: Invalid JSON"),
        ({"Pod": PREEMPTOR}, "NodeNameToMetaVictims or NodeNameToVictims must be given"),
        (
            {"Pod": PREEMPTOR, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": 7}]}}},
            "NodeNameToMetaVictims.a.Pods.0.UID",
        ),
        ({"NodeNameToMetaVictims": {}}, "Pod: Field required"),
    ],
)
def test_the_response_to_a_malformed_request_names_the_error(ask: Ask, body: Any, message: str) -> None:
    answer = ask({}, "/preempt", body)
    assert answer.status_code == 400
    assert message in answer.json()["Error"]


def test_no_victims_are_named_until_the_caches_are_filled(ask: Ask) -> None:
    answer = ask({}, "/preempt", meta(a="x"), warm=False)
    assert answer.status_code == 503
    assert "waiting for the first list" in answer.json()["Error"]


def test_outcomes_and_phases_are_counted(ask: Ask) -> None:
    metrics = Metrics()
    ask(OBJECTS, "/preempt", meta(a="x"), metrics=metrics)
    ask(OBJECTS, "/preempt", meta(a="other"), metrics=metrics)
    value = metrics.registry.get_sample_value
    assert value("podium_extender_preemptions_total", {"code": "Evicted"}) == 1
    assert value("podium_extender_preemptions_total", {"code": "VictimNotPreemptible"}) == 1
    for phase in ("read", "parse", "decide"):
        assert value("podium_extender_phase_seconds_count", {"verb": "preempt", "phase": phase}) == 2
    assert value("podium_extender_request_seconds_count", {"verb": "preempt"}) == 2


class Posted:
    """A fake API server that refuses the first Event."""

    def __init__(self) -> None:
        self.tried: asyncio.Queue[Json] = asyncio.Queue()
        self.errors = [ApiError(500, "Error", "etcd is away")]

    async def create(self, resource: Any, manifest: Json, **_: Any) -> None:
        self.tried.put_nowait(manifest)
        if self.errors:
            raise self.errors.pop()


def test_an_event_names_the_work_that_a_victim_may_lose(ask: Ask) -> None:
    events = EventRecorder()
    ask(OBJECTS, "/preempt", meta(a="x y"), events=events)

    async def two() -> list[Json]:
        server = Posted()
        writing = asyncio.create_task(events.run(cast(Api, server)))
        async with asyncio.timeout(300):
            found = [await server.tried.get() for _ in range(2)]
        writing.cancel()
        return found

    why = "Pod default/urgent of priority 1000 gets its slot of a. Without a new checkpoint, 5 steps and"
    assert [(event["involvedObject"]["uid"], event["reason"], event["message"]) for event in asyncio.run(two())] == [
        ("trial-y", "WorkAtRisk", f"{why} 10.0 GPU-seconds are lost."),
        ("trial-x", "WorkAtRisk", f"{why} 90.0 GPU-seconds are lost."),
    ]


def test_the_metrics_show_the_present_ages_of_the_caches() -> None:
    metrics, age = Metrics(), [1.0]
    cache = cast(WatchCache[Any], SimpleNamespace(age=lambda: age[0]))
    metrics.watch({"pods": cache})
    assert metrics.registry.get_sample_value("podium_extender_cache_age_seconds", {"cache": "pods"}) == 1.0
    age[0] = 9.0
    assert metrics.registry.get_sample_value("podium_extender_cache_age_seconds", {"cache": "pods"}) == 9.0


def test_the_concurrency_limit_refuses_further_requests() -> None:
    async def visit(limit: ConcurrencyLimit) -> str:
        try:
            async with limit.hold():
                return "served"
        except RequestError as error:
            return f"{error.status} {error}"

    async def crowd() -> list[str]:
        limit = ConcurrencyLimit(3)
        first = list(await asyncio.gather(*(visit(limit) for _ in range(5))))
        return [*first, await visit(limit)]

    refused = "503 3 requests are being processed, as many as allowed (PODIUM_MAX_REQUESTS)"
    assert asyncio.run(crowd()) == ["served"] * 3 + [refused] * 2 + ["served"]


@pytest.mark.parametrize(
    ("why", "changes", "status"),
    [
        ("statuses without containers", {"spec": {"containers": []}}, 200),
        ("a time without a zone", {"metadata": {"uid": "u", "deletionTimestamp": "0001-01-01T00:00:00"}}, 400),
    ],
)
def test_an_unusual_victim_does_not_cause_a_crash(ask: Ask, why: str, changes: Json, status: int) -> None:
    running = {"containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2027-01-15T07:00:00Z"}}}]}
    victim = {**pod("other"), "status": running, **changes}
    body = {"Pod": PREEMPTOR, "NodeNameToVictims": {"a": {"Pods": [victim], "NumPDBViolations": 0}}}
    assert ask(OBJECTS, "/preempt", body).status_code == status

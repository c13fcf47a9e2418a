"""preempt over HTTP in both forms, what a not_ready or crowded extender answers, and what is counted."""

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
from podium_extender.server.limits import ConcurrencyLimit, RequestError
from podium_extender.verbs.events import EventRecorder

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


URGENT = pod("urgent", node="", priority=1000, trial=False)
OBJECTS = {
    PODS: [pod("x"), pod("y"), pod("z", node="b")],
    TRIALS: [trial("x", 90.0), trial("y", 90.0, saved=80.0), trial("z", 90.0, saved=50.0)],
}


def meta(violations: int = 0, **victims: str) -> Json:
    nodes = {
        node: {"Pods": [{"UID": f"uid-{name}"} for name in names.split()], "NumPDBViolations": violations}
        for node, names in victims.items()
    }
    return {"Pod": URGENT, "NodeNameToVictims": None, "NodeNameToMetaVictims": nodes}


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
        ("the usable node", meta(a="stranger", b="z"), {"b": ["uid-z"]}),
        ("nobody that may go", meta(a="stranger"), {}),
        ("no nodes", meta(), {}),
        ("several", meta(a="x y"), {"a": ["uid-y", "uid-x"]}),
        ("budgets first", meta(1, a="x"), {"a": ["uid-x"]}),
    ],
)
def test_short_form(ask: Ask, why: str, body: Json, expected: Json) -> None:
    answer = ask(OBJECTS, "/preempt", body)
    assert evicted(answer) == expected
    violations = {node: victims["NumPDBViolations"] for node, victims in answer.json()["NodeNameToMetaVictims"].items()}
    assert all(count == (1 if why == "budgets first" else 0) for count in violations.values())


@pytest.mark.parametrize(
    ("why", "victim", "expected"),
    [
        ("a trial that no watch has shown yet", pod("new"), ["uid-new"]),
        ("a pod of another scheduler that calls itself a trial", pod("new", schedulerName="default-scheduler"), None),
        ("a pod that is no trial", pod("new", trial=False), None),
        ("a trial of the same priority", pod("new", priority=1000), None),
    ],
)
def test_full_form(ask: Ask, why: str, victim: Json, expected: list[str] | None) -> None:
    nodes = {"a": {"Pods": [victim], "NumPDBViolations": 0}}
    body = {"Pod": URGENT, "NodeNameToVictims": nodes, "NodeNameToMetaVictims": None}
    assert evicted(ask({}, "/preempt", body)) == ({"a": expected} if expected else {})


def test_a_strangers_room_is_made_by_a_trial(ask: Ask) -> None:
    nodes = {"a": {"Pods": [pod("stranger", trial=False)], "NumPDBViolations": 0}}
    body = {"Pod": URGENT, "NodeNameToVictims": nodes, "NodeNameToMetaVictims": None}
    assert evicted(ask(OBJECTS, "/preempt", body)) == {"a": ["uid-y"]}


def test_a_pod_that_can_be_placed_nowhere_evicts_nobody(ask: Ask) -> None:
    body = {**meta(a="x"), "Pod": pod("bad", node="", priority=1000) | {"spec": {"containers": [_container("many")]}}}
    assert evicted(ask(OBJECTS, "/preempt", body)) == {}


def _container(gpus: str) -> Json:
    return {"name": "c", "resources": {"requests": {"podium.dev/gpu": gpus}}}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "body: Invalid JSON"),
        ({"Pod": URGENT}, "NodeNameToMetaVictims or NodeNameToVictims must be given"),
        ({"Pod": URGENT, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": 7}]}}}, "NodeNameToMetaVictims.a.Pods.0.UID"),
        ({"NodeNameToMetaVictims": {}}, "Pod: Field required"),
    ],
)
def test_a_malformed_request_is_told_what_is_wrong(ask: Ask, body: Any, says: str) -> None:
    answer = ask({}, "/preempt", body)
    assert answer.status_code == 400
    assert says in answer.json()["Error"]


def test_nobody_is_named_while_it_is_not_known_who_is_a_trial(ask: Ask) -> None:
    answer = ask({}, "/preempt", meta(a="x"), warm=False)
    assert answer.status_code == 503
    assert "waiting for the first list" in answer.json()["Error"]


def test_outcomes_and_phases_are_counted(ask: Ask) -> None:
    metrics = Metrics()
    ask(OBJECTS, "/preempt", meta(a="x"), metrics=metrics)
    ask(OBJECTS, "/preempt", meta(a="stranger"), metrics=metrics)
    value = metrics.registry.get_sample_value
    assert value("podium_extender_preemptions_total", {"code": "Evicted"}) == 1
    assert value("podium_extender_preemptions_total", {"code": "VictimNotPreemptible"}) == 1
    for phase in ("read", "parse", "decide"):
        assert value("podium_extender_phase_seconds_count", {"verb": "preempt", "phase": phase}) == 2
    assert value("podium_extender_request_seconds_count", {"verb": "preempt"}) == 2


class Posted:
    """Stands where the API server would; the first Event is refused."""

    def __init__(self) -> None:
        self.tried: asyncio.Queue[Json] = asyncio.Queue()
        self.errors = [ApiError(500, "Error", "etcd is away")]

    async def create(self, resource: Any, manifest: Json, **_: Any) -> None:
        self.tried.put_nowait(manifest)
        if self.errors:
            raise self.errors.pop()


def test_who_leaves_is_told_what_that_may_cost_by_what_chose_it(ask: Ask) -> None:
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


def test_the_ages_of_the_caches_are_shown_as_they_are_now() -> None:
    metrics, age = Metrics(), [1.0]
    cache = cast(WatchCache[Any], SimpleNamespace(age=lambda: age[0]))
    metrics.watch({"pods": cache})
    assert metrics.registry.get_sample_value("podium_extender_cache_age_seconds", {"cache": "pods"}) == 1.0
    age[0] = 9.0
    assert metrics.registry.get_sample_value("podium_extender_cache_age_seconds", {"cache": "pods"}) == 9.0


def test_a_crowd_is_turned_away_at_the_door() -> None:
    async def visit(door: ConcurrencyLimit) -> str:
        try:
            async with door.hold():
                return "served"
        except RequestError as error:
            return f"{error.status} {error}"

    async def crowd() -> list[str]:
        door = ConcurrencyLimit(3)
        first = list(await asyncio.gather(*(visit(door) for _ in range(5))))
        return [*first, await visit(door)]

    refused = "503 3 requests are being processed, as many as allowed (PODIUM_MAX_REQUESTS)"
    assert asyncio.run(crowd()) == ["served"] * 3 + [refused] * 2 + ["served"]


@pytest.mark.parametrize(
    ("why", "changes", "status"),
    [
        ("statuses without containers", {"spec": {"containers": []}}, 200),
        ("a time of no zone", {"metadata": {"uid": "u", "deletionTimestamp": "0001-01-01T00:00:00"}}, 400),
    ],
)
def test_a_strange_victim_is_no_crash(ask: Ask, why: str, changes: Json, status: int) -> None:
    running = {"containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2027-01-15T07:00:00Z"}}}]}
    victim = {**pod("stranger"), "status": running, **changes}
    body = {"Pod": URGENT, "NodeNameToVictims": {"a": {"Pods": [victim], "NumPDBViolations": 0}}}
    assert ask(OBJECTS, "/preempt", body).status_code == status

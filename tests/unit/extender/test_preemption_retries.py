"""Retries of pods from the back-off queue over real caches: what is written, and what is not changed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, cast

import pytest
from live_caches import caches_over, event, gpunode, running

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, PODS, Resource
from podium_extender.metrics import Metrics
from podium_extender.requeue.preemption_retries import retry_preemptions, toggle_nomination
from podium_extender.requeue.unschedulable_queue import TokenBucket, UnschedulableQueue
from podium_extender.requeue.wakeups import RETRY_ANNOTATION, follow_pods
from podium_extender.verbs.preempt import DEFAULT_LIMITS, PreemptVerb
from podium_extender.verbs.preemption_limits import PreemptionLimits
from podium_extender.verbs.wire import PreemptArgs

NOW = 1_800_000_000.0
Json = Mapping[str, Any]
CONFLICT = ApiError(409, "Conflict", "the object has been modified")


class Server:
    """A fake API server with two trials, a GPU and one pod with a version; `errors` are raised by the next patches."""

    def __init__(self, health: str = "Unhealthy", **status: Any) -> None:
        self.lists = {GPUNODES: [gpunode(health)], PODS: [pod("x"), pod("y")]}
        self.pod: dict[str, Any] = {"metadata": {"annotations": {}}, "spec": {}, "status": status}
        self.version = 7
        self.events: defaultdict[Resource, asyncio.Queue[Json]] = defaultdict(asyncio.Queue)
        self.nominations: asyncio.Queue[str | None] = asyncio.Queue()
        self.errors: list[ApiError | None] = []

    async def list(self, resource: Resource, *_: Any, **__: Any) -> Json:
        return {"metadata": {"resourceVersion": "1"}, "items": self.lists.get(resource, [])}

    async def watch(self, resource: Resource, *_: Any, **__: Any) -> AsyncIterator[Json]:
        while True:
            yield await self.events[resource].get()

    async def get(self, resource: Resource, name: str, namespace: str) -> Json:
        assert (resource, name, namespace) == (PODS, "urgent", "default")
        return {**self.pod, "metadata": {**self.pod["metadata"], "resourceVersion": str(self.version)}}

    async def patch(self, _: Resource, name: str, namespace: str, patch: Json, **named: Any) -> Json:
        assert named["subresource"] == "status"
        if self.errors and (error := self.errors.pop(0)) is not None:
            self.version += 1  # another client wrote
            raise error
        assert patch["metadata"]["resourceVersion"] == str(self.version)
        self.version += 1
        self.pod["metadata"]["annotations"] |= patch["metadata"].get("annotations", {})
        self.pod["status"] = {"nominatedNodeName": patch["status"]["nominatedNodeName"] or ""}
        self.nominations.put_nowait(patch["status"]["nominatedNodeName"])
        return await self.get(PODS, name, namespace)


def pod(name: str, node: str = "a") -> Json:
    """Return a trial's pod if it has a node, else the important pod."""
    container = {"name": "c", "resources": {"requests": {"podium.dev/gpu": "1"}}}
    labels = {"podium.dev/trial": name} if node else {}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"nodeName": node, "priority": -1 if node else 1000, "containers": [container]},
        "status": {"phase": "Running" if node else "Pending"},
    }


class Play:
    """One extender, and a clock that the test moves."""

    def __init__(self, server: Server, limits: PreemptionLimits) -> None:
        self.server, self.now = server, NOW
        self.node_cache = caches_over(server, lambda: self.now)
        self.metrics = Metrics()
        self.preempt_verb = PreemptVerb(self.node_cache, self.metrics, 600.0, limits)

    def ask(self, pod_name: str = "urgent", victim: str = "x") -> list[str]:
        """Return the nodes of the response."""
        proposed = {"a": {"Pods": [{"UID": victim}]}}
        body = PreemptArgs.model_validate({"Pod": pod(pod_name, ""), "NodeNameToMetaVictims": proposed})
        return list(self.preempt_verb.answer(body).node_name_to_meta_victims)

    def gpu(self, health: str) -> None:
        self.server.events[GPUNODES].put_nowait(event("MODIFIED", gpunode(health)))


def run(
    server: Server, story: Callable[[Play], Coroutine[Any, Any, None]], limits: PreemptionLimits = DEFAULT_LIMITS
) -> None:
    async def main() -> None:
        play = Play(server, limits)
        follow_pods(play.node_cache, UnschedulableQueue(600.0, TokenBucket(1.0, 10)), play.preempt_verb.backoff_queue)
        retrying = retry_preemptions(cast(Api, server), play.node_cache, play.preempt_verb, play.metrics)
        async with running(play.node_cache, retrying):
            await story(play)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("why", "errors", "written"),
    [
        ("the nomination is set and cleared", [], ["a", None]),
        ("the scheduler writes a condition first", [CONFLICT], ["a", None]),
        ("the scheduler writes a condition between", [None, CONFLICT], ["a", None]),
    ],
)
def test_a_pod_is_retried_when_the_gpu_recovers(
    why: str, errors: list[ApiError | None], written: list[str | None]
) -> None:
    server = Server()
    server.errors = errors

    async def story(play: Play) -> None:
        assert play.ask() == [], "the GPU is unhealthy, so the end of x would not help"
        play.gpu("Healthy")
        assert [await server.nominations.get() for _ in written] == written
        float(server.pod["metadata"]["annotations"][RETRY_ANNOTATION])  # a time, and no node any more
        assert play.ask() == ["a"]
        assert len(play.preempt_verb.backoff_queue) == 0

    run(server, story)


@pytest.mark.parametrize("retried_before", [False, True])
def test_a_nomination_by_the_scheduler_is_not_changed(retried_before: bool) -> None:
    """Its victims are terminating, which a new extender does not know, even if it is the node of an earlier retry."""
    server, pressing = Server(), ("default", "urgent")
    if retried_before:
        asyncio.run(toggle_nomination(cast(Api, server), pressing, "a"))
    server.pod["status"] = {"nominatedNodeName": "a"}
    server.nominations = asyncio.Queue()
    asyncio.run(toggle_nomination(cast(Api, server), pressing, "b"))
    assert server.nominations.empty()
    assert server.pod["status"] == {"nominatedNodeName": "a"}


def test_a_nomination_set_by_a_crashed_extender_is_cleared() -> None:
    server = Server(nominatedNodeName="a")
    server.pod["metadata"]["annotations"] = {RETRY_ANNOTATION: "1800000000.000 a"}
    asyncio.run(toggle_nomination(cast(Api, server), ("default", "urgent"), "b"))
    assert server.nominations.get_nowait() is None


def test_a_pod_is_retried_when_the_limit_allows_it() -> None:
    server = Server("Healthy")

    async def story(play: Play) -> None:
        assert play.ask("first", "x") == ["a"]
        assert play.ask("urgent", "y") == [], "the budget is spent"
        assert play.preempt_verb.backoff_queue.retry_at() == NOW + 60
        play.now = NOW + 60
        play.gpu("Healthy")  # an event, because the clock of the test sends none
        assert [await server.nominations.get() for _ in range(2)] == ["a", None]
        assert play.ask("urgent", "y") == ["a"]

    run(server, story, PreemptionLimits(per_minute=1))


def test_a_pod_that_waits_at_the_start_is_retried_once() -> None:
    server = Server("Healthy")
    server.lists[PODS].append(pod("urgent", ""))

    async def story(play: Play) -> None:
        assert [await server.nominations.get() for _ in range(2)] == ["a", None]
        assert len(play.preempt_verb.backoff_queue) == 0

    run(server, story)

"""Free CPUs of nodes: counted like kube-scheduler, event by event, and unknown without reliable data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

import pytest
from live_caches import Live

from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, LEASES, NODES, PODS, TRIALS, Page, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.free_cpus import CpuRequest, NodeCpus, cpu_request_of, node_cpus_of, others_selector
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.views import PodNeed
from podium_extender.state.free_cpus import FreeCpus
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.trials import parse_trial

Json = dict[str, Any]
NOW = 1_800_000_000.0


def container(cpu: str | None, policy: str = "") -> Json:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}} if cpu else {}, "restartPolicy": policy or None}


def meta(name: str, namespace: str = "") -> Json:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "2"}


def pod(name: str, node: str, cpu: str, gpus: int = 0) -> Json:
    requests = {"cpu": cpu} | ({"podium.dev/gpu": str(gpus)} if gpus else {})
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    return {"metadata": meta(name, "default"), "spec": spec, "status": {"phase": "Running"}}


def node(name: str, cpu: str) -> Json:
    return {"metadata": meta(name), "status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}}


def gpunode(name: str) -> Json:
    status = {"updatedAt": "2027-01-15T07:59:50Z", "gpus": [{"uuid": name, "index": 0, "slots": 4}]}
    return {"metadata": meta(name), "status": status}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1500m"), container("2")]}, 3500),
        ({"containers": [container(None)]}, 0),
        ({"containers": [container("1")], "initContainers": [container("500m", "Always"), container("4")]}, 4500),
        ({"containers": None}, 0),
    ],
)
def test_the_cpu_request_of_a_pod(spec: Json, cpu: int) -> None:
    assert cpu_request_of({"spec": {"nodeName": "a", **spec}}) == CpuRequest("a", cpu)


def test_an_invalid_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        cpu_request_of({"spec": {"nodeName": "a", "containers": [container("much")]}})


def test_equal_pods_share_an_object() -> None:
    assert cpu_request_of(pod("x", "a", "1")) is cpu_request_of(pod("y", "a", "1000m"))
    assert node_cpus_of(node("a", "7910m")) == NodeCpus(7910)
    assert "spec.schedulerName!=podium," in others_selector("podium")


class Setup:
    """A node cache with free CPUs over servers of its own."""

    def __init__(self, silence: float = 60.0) -> None:
        self.own, self.others, self.nodes = Live(PODS, {}), Live(PODS, {}), Live(NODES, {})
        self.gpunodes = Live(GPUNODES, {"a": gpunode("a"), "b": gpunode("b")})
        beats = WatchCache(cast(Api, Live(LEASES, {})), Selection(LEASES), Heartbeats(lambda: NOW).parse)
        self.free_cpus = FreeCpus(
            WatchCache(cast(Api, self.nodes), Selection(NODES), node_cpus_of),
            WatchCache(cast(Api, self.others), Selection(PODS, page=1), cpu_request_of),
            silence,
        )
        self.node_cache = NodeCache(
            Watches(
                WatchCache(cast(Api, self.gpunodes), Selection(GPUNODES), parse_gpunode),
                WatchCache(cast(Api, self.own), Selection(PODS), parse_pod),
                beats,
                WatchCache(cast(Api, Live(TRIALS, {})), Selection(TRIALS), parse_trial),
            ),
            namespace="podium-system",
            clock=lambda: NOW,
            free_cpus=self.free_cpus,
        )

    def free(self) -> Mapping[str, int | None]:
        views = self.node_cache.views()
        return {name: views.get(name).cpu_free for name in ("a", "b")}

    async def settle(self) -> None:
        for live in (self.own, self.others, self.nodes, self.gpunodes):
            await live.events.join()


def play(story: Callable[[Setup], Coroutine[Any, Any, None]], silence: float = 60.0) -> None:
    async def run() -> None:
        setup = Setup(silence)
        setup.nodes.objects["a"] = node("a", "8")
        setup.others.objects["there"] = pod("there", "a", "500m")
        caches = {**setup.node_cache.caches, **setup.node_cache.optional_caches}
        runs = [asyncio.create_task(cache.run()) for cache in caches.values()]
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*(cache.wait_synced() for cache in caches.values()))
                await story(setup)
        finally:
            for one in runs:
                one.cancel()

    asyncio.run(run())


def test_free_cpus_are_those_that_no_pod_requests() -> None:
    async def story(setup: Setup) -> None:
        assert setup.free() == {"a": 7500, "b": None}  # of b no Node was seen
        assert setup.node_cache.cpus_known
        setup.nodes.put("b", node("b", "4"))
        setup.others.put("other", pod("other", "a", "2"))
        setup.own.put("own", pod("own", "a", "1", gpus=1))
        await setup.settle()
        assert setup.free() == {"a": 4500, "b": 4000}
        setup.others.put("other", pod("other", "a", "3"))  # resized in place
        setup.others.put("there", None)
        await setup.settle()
        assert setup.free() == {"a": 4000, "b": 4000}
        expected = PlacedPod("u", "b", PodNeed(1), requests={"cpu": 250})
        setup.node_cache.assume(("default", "expected"), expected)
        assert setup.free() == {"a": 4000, "b": 3750}

    play(story)


def test_a_pod_of_another_scheduler_does_not_change_the_gpus_of_a_view() -> None:
    async def story(setup: Setup) -> None:
        gpus = setup.node_cache.views().get("a").gpus
        setup.others.put("other", pod("other", "a", "2"))
        await setup.settle()
        assert setup.free()["a"] == 5500
        assert setup.node_cache.views().get("a").gpus is gpus

    play(story)


def test_free_cpus_are_unknown_after_a_long_silence() -> None:
    async def story(setup: Setup) -> None:
        assert setup.free() == {"a": None, "b": None}
        assert not setup.node_cache.cpus_known

    play(story, silence=-1.0)


def test_the_extender_does_not_wait_for_optional_watches() -> None:
    setup = Setup()
    assert "nodes" not in (setup.node_cache.not_ready() or "").split()
    assert not setup.free_cpus.known()
    assert setup.free() == {"a": None, "b": None}


class Paged(Live):
    """A server that returns a list in pages, as the API server does."""

    async def list(self, *_: Any, page: Page, **__: Any) -> Json:
        begin, limit, whole = int(page.after or 0), page.limit, list(self.objects.values())
        more = {"continue": str(begin + limit)} if begin + limit < len(whole) else {}
        return {"metadata": {"resourceVersion": "1"} | more, "items": whole[begin : begin + limit]}


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_a_long_list_is_read_in_pages(count: int) -> None:
    async def main() -> None:
        server = Paged(PODS, {str(i): pod(f"p{i}", "a", f"{i}") for i in range(count)})
        cache = WatchCache(cast(Api, server), Selection(PODS, page=2), cpu_request_of)
        run = asyncio.create_task(cache.run())
        async with asyncio.timeout(30):
            await cache.wait_synced()
        run.cancel()
        assert [seat.cpu for seat in cache.values()] == [1000 * i for i in range(count)]

    asyncio.run(main())

"""podium_cluster with a real kube-apiserver: verbs, errors, watch caches, events and heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from podium_agent.report.node_reporter import send_heartbeats
from podium_cluster import events
from podium_cluster.client import Api, ApiError, connect
from podium_cluster.resources import EVENTS, LEASES, Resource, Selection
from podium_cluster.settings import ClusterSettings
from podium_cluster.watch import WatchCache

pytestmark = pytest.mark.integration
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@contextlib.asynccontextmanager
async def cache_of(api: Api, parse: Any = lambda payload: payload) -> AsyncIterator[tuple[WatchCache[Any], Any]]:
    """Run a cache of config maps; yield it with a function that waits for a condition."""
    cache: WatchCache[Any] = WatchCache(api, Selection(CONFIGMAPS, namespace="default"), parse)
    changed = asyncio.Event()
    cache.subscribe(changed.set)
    task = asyncio.create_task(cache.run())

    async def until(condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                changed.clear()
                await changed.wait()

    try:
        await asyncio.wait_for(cache.wait_synced(), 10)
        yield cache, until
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def run(kubeconfig: Path, body: Any) -> None:
    async def main() -> None:
        async with connect(ClusterSettings(kubeconfig=kubeconfig)) as api:
            await body(api)

    asyncio.run(main())


def test_a_watch_cache_follows_creations_changes_and_deletions(kubeconfig: Path) -> None:
    async def body(api: Api) -> None:
        async with cache_of(api) as (cache, until):
            await api.apply(CONFIGMAPS, config_map("seen", x="1"), manager="one")
            await until(lambda: cache.get("default", "seen"))
            await api.apply(CONFIGMAPS, config_map("seen", y="2"), manager="two")
            await until(lambda: cache.get("default", "seen")["data"] == {"x": "1", "y": "2"})
            await api.delete(CONFIGMAPS, "seen", "default")
            await until(lambda: cache.get("default", "seen") is None)
            await api.delete(CONFIGMAPS, "seen", "default")  # gone already: no error

    run(kubeconfig, body)


def test_an_object_that_cannot_be_parsed_does_not_stop_the_cache(kubeconfig: Path) -> None:
    def parse(payload: Mapping[str, Any]) -> str:
        return str(int(payload["data"]["number"]))

    async def body(api: Api) -> None:
        await api.apply(CONFIGMAPS, config_map("bad", number="many"), manager="one")
        async with cache_of(api, lambda p: parse(p) if "number" in p.get("data", {}) else "") as (cache, until):
            assert cache.get("default", "bad") is None
            await api.apply(CONFIGMAPS, config_map("good", number="7"), manager="one")
            await until(lambda: cache.get("default", "good") == "7")
        for name in ("bad", "good"):
            await api.delete(CONFIGMAPS, name, "default")

    run(kubeconfig, body)


def test_errors_contain_the_servers_message(kubeconfig: Path) -> None:
    async def body(api: Api) -> None:
        with pytest.raises(ApiError, match="not found") as missing:
            await api.get(CONFIGMAPS, "missing", "default")
        assert missing.value.not_found
        with pytest.raises(ApiError, match="RFC 1123"):
            await api.apply(CONFIGMAPS, config_map("No_Good"), manager="one")
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("twice")}
        await api.create(CONFIGMAPS, manifest, manager="one")
        with pytest.raises(ApiError) as conflict:
            await api.create(CONFIGMAPS, manifest, manager="one")
        assert conflict.value.conflict
        await api.delete(CONFIGMAPS, "twice", "default")

    run(kubeconfig, body)


def test_an_apply_with_a_uid_does_not_create_a_deleted_object_again(kubeconfig: Path) -> None:
    async def body(api: Api) -> None:
        created = await api.apply(CONFIGMAPS, config_map("once", x="1"), manager="one")
        again = config_map("once", x="2")
        again["metadata"]["uid"] = created["metadata"]["uid"]
        assert (await api.apply(CONFIGMAPS, again, manager="one"))["data"] == {"x": "2"}
        await api.delete(CONFIGMAPS, "once", "default")
        with pytest.raises(ApiError) as refused:
            await api.apply(CONFIGMAPS, again, manager="one")
        assert refused.value.conflict
        with pytest.raises(ApiError, match="not found"):
            await api.get(CONFIGMAPS, "once", "default")

    run(kubeconfig, body)


def test_heartbeat_and_event_are_written(kubeconfig: Path) -> None:
    async def body(api: Api) -> None:
        beat = asyncio.create_task(send_heartbeats(api, node="me", namespace="default", seconds=5))
        about = {"name": "thing", "namespace": "default", "uid": "u-1"}
        await events.emit(api, CONFIGMAPS, about, events.EventText("Tried", "once"), component="podium-test")
        found = await api.list(EVENTS, "default", fields="involvedObject.name=thing")
        assert [event["reason"] for event in found["items"]] == ["Tried"]
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(ApiError):
                    assert (await api.get(LEASES, "podium-agent-me", "default"))["spec"]["leaseDurationSeconds"] == 20
                    break
                await asyncio.sleep(0.05)
        beat.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beat

    run(kubeconfig, body)

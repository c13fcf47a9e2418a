"""Affinities of other pods and soft taints of nodes, event by event."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from live_caches import Live

from podium_cluster.client import Api
from podium_cluster.resources import NODES, PODS, Selection
from podium_cluster.watch import WatchCache, wait_all_synced
from podium_core.placement.free_cpus import cpu_request_of, node_cpus_of
from podium_core.schema.pod import Pod
from podium_extender.main import watch_cluster
from podium_extender.settings import ExtenderSettings
from podium_extender.state.assumptions import AssumedPods
from podium_extender.state.soft_preferences import SoftPreferences

Json = dict[str, Any]
LOUD = {"noise": "loud"}
ASKED = Pod.model_validate({"metadata": {"namespace": "default", "labels": LOUD}, "spec": {}})


def quiet(name: str, node: str = "a") -> Json:
    term = {"labelSelector": {"matchLabels": LOUD}, "topologyKey": "kubernetes.io/hostname"}
    weighted = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    meta = {"name": name, "namespace": "default", "resourceVersion": "2"}
    return {"metadata": meta, "spec": {"nodeName": node, "affinity": {"podAntiAffinity": weighted}}}


def node(*effects: str) -> Json:
    taints = [{"key": "k", "effect": effect} for effect in effects]
    return {"metadata": {"name": "a", "resourceVersion": "2"}, "spec": {"taints": taints}, "status": {}}


def test_a_preference_counts_while_its_pod_exists() -> None:
    async def main() -> None:
        pods, nodes = Live(PODS, {"one": quiet("one")}), Live(NODES, {})
        others = WatchCache(cast(Api, pods), Selection(PODS), cpu_request_of)
        machines = WatchCache(cast(Api, nodes), Selection(NODES), node_cpus_of)
        preferences = SoftPreferences(machines, [others])
        assert preferences.may_match(ASKED), "nothing was seen yet"
        runs = [asyncio.create_task(cache.run()) for cache in (others, machines)]
        async with asyncio.timeout(30):
            await wait_all_synced((others, machines))
            for name, payload, meant in [
                ("two", quiet("two"), True),
                ("one", None, True),
                ("two", quiet("two", node="b"), True),
                ("two", None, False),
                ("three", quiet("three", node=""), False),
                ("three", quiet("three"), True),
                ("three", quiet("three") | {"spec": {"nodeName": "a"}}, False),
            ]:
                pods.put(name, payload)
                await pods.events.join()
                assert preferences.may_match(ASKED) is meant, (name, payload)
            for payload, prefer_no_schedule in [
                (node("NoSchedule"), set()),
                (node("NoExecute", "PreferNoSchedule"), {"a"}),
                (node(), set()),
                (node("PreferNoSchedule"), {"a"}),
                (None, set()),
            ]:
                nodes.put("a", payload)
                await nodes.events.join()
                assert preferences.prefer_no_schedule == prefer_no_schedule
        for run in runs:
            run.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(("all_pods", "more"), [(True, ["nodes", "other pods"]), (False, ["nodes"])])
def test_nodes_are_watched_for_taints_even_without_other_schedulers_pods(all_pods: bool, more: list[str]) -> None:
    settings = ExtenderSettings(namespace="podium-system", watch_all_pods=all_pods)
    node_cache = watch_cluster(cast(Api, None), settings, AssumedPods())
    assert list(node_cache.optional_caches) == more

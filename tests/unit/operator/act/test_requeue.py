"""A trial whose requeue the API server refuses is reported as what it is: a trial that continues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from operator_builders import (
    ended,
    make_cluster_state,
    make_job,
    make_node,
    make_pod,
    make_reconciler,
    make_trial,
    pod_payload,
)

import podium_operator.reconciler
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS, Resource
from podium_core.domain.actions import LazyRanks, Plan, Requeue, TrialRank
from podium_core.planning.planner import Decision
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import REQUEUE_ANNOTATION, PodRules
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.settings import OperatorSettings


@pytest.mark.parametrize(("refused", "recorded"), [(False, "NodeDraining"), (True, "PodDeletionRefused")])
def test_a_pod_that_was_not_deleted_is_not_reported_as_requeued(
    monkeypatch: pytest.MonkeyPatch, refused: bool, recorded: str
) -> None:
    """With that reason stored, any later end of the pod would be attributed to Podium."""
    reasons: list[str] = []

    class Server:
        async def _take(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {}

        apply = create = patch = _take

        async def delete(self, *_: Any, **__: Any) -> None:
            if refused:
                raise ApiError(403, "Forbidden", "a webhook refuses it")

        async def apply_status(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> dict[str, Any]:
            if resource is TRIALS:
                reasons.append(body["status"]["reason"])
                assert ("a webhook refuses it" in body["status"]["message"]) is refused
            return {}

    trial = make_trial(phase="Running")
    pod = make_pod(phase="Running", gate=ended(0), main={"running": {}})
    metrics, settings, api = Metrics(), OperatorSettings(), cast(Api, Server())
    caches, key = WatchCaches(api, settings), trial_key(trial)
    monkeypatch.setattr(caches, "cluster_state", lambda: make_cluster_state(make_job(), trial, pod, make_node()))
    go, stand = Requeue(key, "NodeDraining", "The node drains."), TrialRank(key, 1, "GPURetained", "It keeps its GPU.")
    decision = Decision(Plan((go,), LazyRanks(lambda: iter((stand,))), None))
    monkeypatch.setattr(podium_operator.reconciler, "decide", lambda _: decision)
    reconciler = make_reconciler(api, caches, settings, metrics)
    asyncio.run(reconciler.reconcile())
    assert reasons == [recorded]


class Pods:
    """One pod whose deletion is answered with `refusal`; `deleting`: the server has started it nevertheless."""

    def __init__(self, refusal: ApiError, *, deleting: bool = False, refuses: str = "delete") -> None:
        self.refusal, self.deleting, self.refuses = refusal, deleting, refuses
        self.calls: list[str] = []
        self.reason: str | None = None

    async def _call(self, verb: str) -> None:
        self.calls.append(verb)
        if verb == self.refuses:
            raise self.refusal

    async def delete(self, *_: Any, **__: Any) -> None:
        await self._call("delete")

    async def create(self, *_: Any, **__: Any) -> None:
        await self._call("event")

    async def patch(self, *args: Any, **_: Any) -> None:
        await self._call("patch")
        self.reason = args[3]["metadata"]["annotations"][REQUEUE_ANNOTATION]

    async def get(self, *_: Any, **__: Any) -> dict[str, Any]:
        await self._call("get")
        return pod_payload(deleting=self.deleting)


def requeue(api: Pods, *, reconciles: int = 1) -> tuple[Actuator, Metrics, ClusterState]:
    cluster, metrics = make_cluster_state(make_job(), make_trial(phase="Running"), make_pod(phase="Running")), Metrics()
    wire = cast(Api, api)
    actuator = Actuator(wire, WatchCaches(wire, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), metrics)
    for _ in range(reconciles):
        go = Requeue(trial_key(cluster.trials[0]), "NodeDraining", "The node drains.")
        asyncio.run(actuator.write_run_queues(cluster, [go]))
    return actuator, metrics, cluster


COUNTERS = ("podium_operator_actions_total", "podium_operator_actions_failed_total")
TIMEOUT = ApiError(504, "Timeout", "request did not complete within the requested timeout")


@pytest.mark.parametrize(
    ("api", "undeleted"),
    [
        (Pods(TIMEOUT), True),  # or a webhook that cannot be reached: 500
        (Pods(TIMEOUT, deleting=True), False),
        (Pods(ApiError(0, "Unreachable", "no answer")), False),
    ],
    ids=["the pod is there", "it was deleted nevertheless", "unknown"],
)
def test_after_a_server_error_the_pod_shows_whether_it_is_deleted(api: Pods, undeleted: bool) -> None:
    actuator, _, _ = requeue(api)
    assert bool(actuator.undeleted()) is undeleted
    assert api.reason == (None if undeleted else "NodeDraining")


@pytest.mark.parametrize("verb", ["delete", "patch"])
def test_a_refused_requeue_has_a_backoff_and_is_counted_as_failed(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr("podium_operator.act.postponed_actions.FIRST_PAUSE", 3600.0)
    api = Pods(ApiError(403, "Forbidden", "a webhook refuses it"), refuses=verb)
    actuator, metrics, cluster = requeue(api, reconciles=3)
    assert api.calls.count(verb) == 1
    assert list(actuator.undeleted().values()) == ["a webhook refuses it"], "it is reported all the same"
    assert actuator.in_backoff() == {cluster.pods[0].uid}
    counted = [metrics.registry.get_sample_value(name, {"kind": "Requeue"}) for name in COUNTERS]
    assert counted == [None, 1]


def test_a_pause_that_ends_within_a_reconcile_lasts_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rebalancer knew that it backs off, so it did not check capacity and stored no move."""
    monkeypatch.setattr("podium_operator.act.postponed_actions.FIRST_PAUSE", 3600.0)
    api = Pods(ApiError(403, "Forbidden", "a webhook refuses it"))
    actuator, _, cluster = requeue(api)
    go = Requeue(trial_key(cluster.trials[0]), "Rebalancing", "The GPUs are balanced.", "node-2")
    for ends, calls in ((False, 1), (True, 2)):
        in_backoff = actuator.in_backoff()
        assert in_backoff == (set() if ends else {cluster.pods[0].uid})
        monkeypatch.setattr("podium_operator.act.postponed_actions.RefusedAction.in_backoff", False)
        asyncio.run(actuator.write_run_queues(cluster, [go]))
        assert api.calls.count("delete") == calls

"""Live migration: what the operator sends, what it does when that is refused, and which Events it records."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from migration_builders import IMAGE, OLD, PUSHED, cluster, migration_status, pod
from operator_builders import NOW, carry_out

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_core.domain.actions import CreatePod, WriteRunQueues
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.schema.trial import Migration
from podium_operator.act.actuator import Actuator
from podium_operator.act.migration import MigrationNews, migrations_to_store
from podium_operator.act.pod_manifest import PodRules
from podium_operator.jobs.events import EventRecorder
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.report.trial_status import TrialReport, trial_status
from podium_operator.settings import OperatorSettings

NEW_POD = pod(1, migrated=True)


class Wire:
    """Records what is sent; refuses pods with `refusal`."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._refusal = refusal

    async def patch(self, _: Resource, name: str, __: str, body: Any, **___: Any) -> None:
        self.calls.append((name, body["metadata"]["annotations"]))

    async def apply(self, _: Resource, body: Any, **__: Any) -> None:
        self.calls.append((body["metadata"]["name"], body["spec"]))

    async def delete(self, _: Resource, name: str, __: str, **how: Any) -> None:
        self.calls.append((name, how))

    async def create(self, resource: Resource, body: Any, **_: Any) -> None:
        self.calls.append((body["metadata"].get("name", resource.kind), body))
        if self._refusal is not None:
            raise self._refusal


def test_the_old_pod_gets_one_second_because_it_has_nothing_to_checkpoint() -> None:
    wire, seen = Wire(), cluster(pod(migrate_to="node-2"), NEW_POD, **PUSHED)
    api = cast(Api, wire)
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(carry_out(actuator, seen, []))
    assert wire.calls == [("sweep-0-0", {"uid": OLD, "grace_seconds": 1})]


@pytest.mark.parametrize(
    ("pods", "orders"),
    [
        ((pod(),), 0),  # its agent has to be asked first
        ((pod(migrate_to="node-2"), NEW_POD), 0),  # the old pod has to be deleted first
        ((pod(migrate_to="node-2"),), 1),
    ],
)
def test_run_queues_between_two_reconciles_wait_for_deletions_and_requests(
    pods: tuple[PodState, ...], orders: int
) -> None:
    wire, seen = Wire(), cluster(*pods, **PUSHED)
    api = cast(Api, wire)
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(actuator.write_run_queues_only(seen, [WriteRunQueues("node-1", 2, ())]))
    assert len(wire.calls) == orders


@pytest.mark.parametrize("status", [403, 422])
def test_a_refused_new_pod_does_not_end_the_trial(status: int) -> None:
    wire, seen = Wire(ApiError(status, "No", "exceeded quota")), cluster(pod(), **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    assert asyncio.run(carry_out(actuator, seen, [CreatePod(key, 1, "Migrated", "")])) == ()
    assert [name for name, _ in wire.calls] == ["sweep-0-0", "sweep-0-1"]
    assert wire.calls[0][1] == {"podium.dev/migrate": "node-2"}
    assert wire.calls[1][1]["spec"]["containers"][0]["image"] == IMAGE
    assert actuator.refused_migrations() == {key: "exceeded quota"}
    assert actuator.refused() == {}
    asyncio.run(carry_out(actuator, seen, []))
    assert actuator.refused_migrations() == {}, "each refusal is reported once: the migration has failed by then"


@pytest.mark.parametrize("status", [0, 429, 500, 504])
def test_an_unanswered_creation_of_the_new_pod_does_not_end_the_migration(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The migration must not fail: both pods would be deleted, and the image with them."""
    monkeypatch.setattr("podium_operator.act.actuator.ECHO_SECONDS", 3600.0)
    wire, seen = Wire(ApiError(status, "Timeout", "no answer")), cluster(pod(migrate_to="node-2"), **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(carry_out(actuator, seen, [CreatePod(key, 1, "Migrated", "")]))
    assert [name for name, _ in wire.calls] == ["sweep-0-1"]
    assert actuator.refused_migrations() == {}
    assert key in actuator.refused(), "after a pause"
    nowhere = cluster(pod(), target=False, **PUSHED)
    stored = migrations_to_store(nowhere, observe(nowhere), MigrationNews(sent=actuator.sent())).get(key)
    assert stored is not None
    assert stored.phase is MigrationPhase.IMAGE_PUSHED, "the migration fails once the pod surely does not exist"


def test_a_new_pod_that_the_cache_does_not_show_is_not_created_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota that the first pod fills would refuse the second one, and the migration would fail with both pods."""
    monkeypatch.setattr("podium_operator.act.actuator.ECHO_SECONDS", 3600.0)
    wire, seen = Wire(), cluster(pod(migrate_to="node-2"), **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    for _ in range(2):
        asyncio.run(carry_out(actuator, seen, [CreatePod(key, 1, "Migrated", "")]))
    assert [name for name, _ in wire.calls] == ["sweep-0-1"]


def test_no_pod_is_created_for_a_node_that_accepts_none() -> None:
    wire, seen = Wire(), cluster(pod(migrate_to="node-2"), target=False, **PUSHED)
    api, key = cast(Api, wire), trial_key(seen.trials[0])
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(carry_out(actuator, seen, [CreatePod(key, 1, "Migrated", "")]))
    assert (wire.calls, list(actuator.sent())) == ([], [])


def test_a_failed_restore_does_not_count_as_a_failure_of_the_trial() -> None:
    end = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "criu: no"}}
    seen = cluster(
        pod(1, migrated=True, phase="Failed", main=end), attempt=1, **migration_status("PodCreated"), phase="Pending"
    )
    (observation,) = observe(seen).values()
    assert (observation.phase, observation.reason) == (TrialPhase.REQUEUED, "MigrationFailed")
    assert observation.attempts.failures == 0


@pytest.mark.parametrize(
    ("before", "now", "recorded"),
    [
        (None, "Requested", ["MigrationStarted"]),
        ("Requested", "Requested", []),
        ("Requested", "ImagePushed", []),
        ("Requested", "Failed", ["MigrationFailed"]),
        ("PodCreated", "Restored", ["Migrated"]),
    ],
)
def test_a_migration_is_stored_and_recorded_once(before: str | None, now: str, recorded: list[str]) -> None:
    wire = Wire()
    seen = cluster(pod(), **(migration_status(before) if before else {}))
    stored = Migration.model_validate(migration_status(now, code="RestoreDisabled", message="no")["migration"])
    observation = next(iter(observe(seen).values()))
    status = trial_status(seen.trials[0], seen.jobs[0], observation, TrialReport(migration=stored), NOW)
    assert Migration.model_validate(status["migration"]) == stored
    asyncio.run(EventRecorder(cast(Api, wire)).migration_changed(seen.trials[0], status))
    assert [body["reason"] for _, body in wire.calls] == recorded


@pytest.mark.parametrize(
    ("code", "kind"), [("RestoreDisabled", "Warning"), ("TrialEnded", "Normal"), ("DrainCancelled", "Normal")]
)
def test_a_cancelled_migration_is_a_normal_event(code: str, kind: str) -> None:
    wire, seen = Wire(), cluster(pod(), **migration_status("Requested"))
    status = migration_status("Failed", code=code, message="no")
    asyncio.run(EventRecorder(cast(Api, wire)).migration_changed(seen.trials[0], status))
    assert [body["type"] for _, body in wire.calls] == [kind]


@pytest.mark.parametrize(
    ("reason", "recorded"),
    [
        ("NodeDraining", "NodeDraining: the trial is migrated from node-1 to node-2 while it runs."),
        ("Rebalancing", "Rebalancing: the trial is migrated from node-1 to node-2 while it runs."),
    ],
)
def test_the_event_names_the_reason_of_the_migration(reason: str, recorded: str) -> None:
    wire = Wire()
    asyncio.run(
        EventRecorder(cast(Api, wire)).migration_changed(
            cluster(pod()).trials[0], migration_status("Requested", reason=reason)
        )
    )
    assert [body["message"] for _, body in wire.calls] == [recorded]

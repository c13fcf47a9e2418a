"""A policy or a prediction that fails on one job's trials does not affect the other jobs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from operator_builders import make_cluster_state, make_reconciler
from operator_builders import make_job as stored_job
from operator_builders import make_trial as stored_trial

from podium_cluster.client import Api
from podium_cluster.resources import JOBS, Resource
from podium_core.domain.actions import CreateTrial
from podium_core.domain.snapshot import JobView, Snapshot
from podium_core.policies.slaq import Slaq
from podium_core.testing.builders import make_gpu, make_job, make_snapshot, make_trial
from podium_operator import reconciler as reconciler_module
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.reconciler import plan_guarded, predict
from podium_operator.reservations.controller import ReservationController
from podium_operator.settings import OperatorSettings


def test_the_other_jobs_are_planned_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def rank(*_: Any) -> Any:
        raise ZeroDivisionError

    jobs = [make_job("broken", policy="slaq"), make_job("other"), make_job("broken-too", policy="slaq")]
    trials = [make_trial(0, job="broken"), make_trial(0, job="broken-too")]
    snapshot = make_snapshot(jobs=jobs, trials=trials, gpus=[make_gpu(slots=4)])
    assert not plan_guarded(snapshot).left_out
    monkeypatch.setattr(Slaq, "rank", rank)
    guarded = plan_guarded(snapshot)
    why = "policy slaq could not rank its trials (ZeroDivisionError; read the traceback in the operator's log)"
    assert {key.name: text for key, text in guarded.left_out.items()} == {"broken": why, "broken-too": why}
    actions = guarded.plan.actions
    assert {action.job.name for action in actions if isinstance(action, CreateTrial)} == {"other"}
    assert not [action for action in actions if "broken" in str(action)]
    assert caplog.text.count("is left unchanged: policy slaq could not rank its trials") == 2
    assert "ZeroDivisionError" in caplog.text


def test_the_other_jobs_are_predicted(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    real = reconciler_module.predictions

    def predictions(job: JobView, snapshot: Snapshot) -> Any:
        if job.key.name == "broken":
            raise ZeroDivisionError
        return real(job, snapshot)

    jobs = [make_job("broken", max_steps=8.0), make_job("other", max_steps=8.0)]
    trials = [make_trial(0, job=job.key.name, values=[0.1, 0.2, 0.3]) for job in jobs]
    snapshot = make_snapshot(jobs=jobs, trials=trials)
    assert len(predict(snapshot)[0]) == 2
    monkeypatch.setattr(reconciler_module, "predictions", predictions)
    found, failed = predict(snapshot)
    assert (list(found), failed) == ([trials[1].key], 1)
    assert "broken: the final values of its trials could not be predicted" in caplog.text


def test_a_job_without_ranking_is_reported_and_keeps_its_reservations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reservations of running trials are requested whether or not the trials can be ranked."""
    written: list[dict[str, Any]] = []
    demand: list[int] = []

    class Server:
        async def _take(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {}

        apply = create = patch = _take

        async def apply_status(self, resource: Resource, body: dict[str, Any], **_: Any) -> dict[str, Any]:
            if resource is JOBS:
                written.append(body["status"])
            return {}

    def rank(*_: Any) -> Any:
        raise ZeroDivisionError

    async def once(_: ReservationController, __: ClusterState, snapshot: Snapshot) -> Any:
        demand.append(len(snapshot.jobs))
        return {}, None

    monkeypatch.setattr(Slaq, "rank", rank)
    monkeypatch.setattr(ReservationController, "reconcile", once)
    metrics, settings, api = Metrics(), OperatorSettings(), cast(Api, Server())
    caches = WatchCaches(api, settings)
    monkeypatch.setattr(
        caches, "cluster_state", lambda: make_cluster_state(stored_job(policy={"name": "slaq"}), stored_trial())
    )
    asyncio.run(make_reconciler(api, caches, settings, metrics).reconcile())
    assert [one["reason"] for one in written[-1]["conditions"] if one["type"] == "Ranked"] == ["PolicyFailed"]
    assert demand == [1]

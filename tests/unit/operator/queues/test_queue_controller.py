"""Usage of queues over plans and restarts, their statuses on a server of plain objects, conditions and metrics."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any, cast

import pytest
from model_api import Server
from operator_builders import NOW, make_cluster_state, make_job, make_node, make_trial, moment
from prometheus_client import generate_latest

from podium_cluster.client import Api
from podium_cluster.resources import GPUQUEUES
from podium_core.domain.gpu_queue import QueueShare, QueueUsage
from podium_core.planning.eta import Eta
from podium_core.planning.queues.queue_ledger import WINDOW
from podium_core.planning.queues.queue_rules import JobQueue, Obstacle
from podium_core.schema.gpuqueue import GPUQueue, queue_view
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.queues.controller import FIGURES_SECONDS, MAX_UNSEEN_SECONDS, QueueController, job_queues
from podium_operator.report.job_status import JobReport, job_status

INTERVAL = 2.0
SHARE = QueueShare("team", nominal=2.0, deserved=1.5, target=1, held=2, borrowed=1, waiting=4)


def make_queue(name: str = "team", *, status: dict[str, Any] | None = None, **spec: Any) -> GPUQueue:
    meta = {"name": name, "uid": f"uid-{name}", "generation": 3}
    return GPUQueue.model_validate({"metadata": meta, "spec": spec, "status": status or {}})


class Stage:
    """A controller, and the server that has its queue."""

    def __init__(self, **spec: Any) -> None:
        self.server = Server(lambda: NOW)
        queue = make_queue(**spec)
        self.server.put(GPUQUEUES, queue.model_dump(by_alias=True, mode="json", exclude_none=True))
        self.metrics = Metrics()
        self.restart()

    def restart(self) -> None:
        self.controller = QueueController(cast(Api, self.server), INTERVAL, self.metrics)

    @property
    def stored(self) -> GPUQueue:
        found = self.server.find(GPUQUEUES, "team")
        assert found is not None
        return GPUQueue.model_validate(found)

    def cluster(self, at: float) -> ClusterState:
        return make_cluster_state(self.stored, make_job(queue="team"), now=NOW + at)

    def tick(self, at: float, *shares: QueueShare) -> int:
        """Record and write at this time; return the number of writes."""
        cluster, before = self.cluster(at), len(self.server.log)
        views = self.controller.views(cluster)
        snapshot = build_snapshot(cluster, observe(cluster), queues=views)
        self.controller.record(cluster, snapshot, shares)
        asyncio.run(self.controller.write(cluster, snapshot, shares))
        return len(self.server.log) - before

    def usage(self, at: float) -> QueueUsage:
        return next(view.usage for view in self.controller.views(self.cluster(at)) if view.name == "team")


def test_the_status_says_what_the_queue_has() -> None:
    stage = Stage(gpus=1)
    stage.tick(0.0, SHARE)
    stage.tick(30.0, SHARE)
    status = stage.stored.status
    assert status.gpus.model_dump() == {"nominal": 2.0, "deserved": 1.5, "used": 2, "borrowed": 1}
    assert (status.waiting, status.jobs, status.observed_generation) == (4, 1, 3)
    assert (status.gpu_seconds, status.window.used) == (60.0, pytest.approx(60.0, rel=0.01))
    assert [(c.type, c.status, c.reason) for c in status.conditions] == [("Active", "True", "SharesGPUs")]
    text = generate_latest(stage.metrics.registry).decode()
    assert 'podium_queue_gpus{queue="team",state="borrowed"} 1.0' in text
    assert 'podium_queue_gpu_seconds{queue="team"} 60.0' in text
    assert 'podium_queue_waiting_trials{queue="team"} 4.0' in text


def test_statuses_are_written_at_a_bounded_rate() -> None:
    stage = Stage()
    assert stage.tick(0.0, SHARE) == 1
    assert stage.tick(FIGURES_SECONDS - 1.0, SHARE) == 0, "only figures moved"
    assert stage.tick(FIGURES_SECONDS, SHARE) == 1
    changed = replace(SHARE, waiting=5)
    assert stage.tick(FIGURES_SECONDS + INTERVAL - 0.5, changed) == 0
    assert stage.tick(FIGURES_SECONDS + INTERVAL, changed) == 1
    idle = replace(SHARE, held=0, deserved=0.0, borrowed=0, waiting=0)
    stage.tick(100.0, idle)
    stage.tick(40 * WINDOW, idle)
    assert stage.tick(80 * WINDOW, idle) == 0, "nothing changes any more"


def test_a_new_operator_continues_with_the_stored_usage() -> None:
    stage = Stage()
    stage.tick(0.0, SHARE)
    stage.tick(60.0, SHARE)
    before = stage.usage(60.0)
    stage.restart()
    later = stage.usage(60.0 + WINDOW)
    assert later.used == pytest.approx(before.used / math.e, rel=0.01)
    assert later.total == pytest.approx(before.total, rel=0.01) == pytest.approx(120.0)


def test_a_time_without_plans_is_not_counted() -> None:
    stage = Stage()
    stage.tick(0.0, SHARE)
    stage.tick(MAX_UNSEEN_SECONDS + 1.0, SHARE)
    assert stage.usage(MAX_UNSEEN_SECONDS + 11.0).total == 20.0, "two GPUs since the second plan"


def test_a_queue_that_is_created_again_begins_anew() -> None:
    stage = Stage()
    stage.tick(0.0, SHARE)
    without = replace(stage.cluster(60.0), queues=())
    stage.controller.record(without, build_snapshot(without, observe(without)), ())
    assert stage.usage(61.0).total == 0.0


def test_a_spent_budget_is_a_condition() -> None:
    stage = Stage(budget={"gpuHours": 0.01})
    stage.tick(0.0, SHARE)
    stage.tick(30.0, SHARE)
    (active,) = stage.stored.status.conditions
    assert (active.status, active.reason) == ("False", "QueueBudgetSpent")
    assert "0.01 GPU-hours of spec.budget.gpuHours" in active.message


def test_without_queues_the_controller_does_nothing() -> None:
    controller = QueueController(cast(Api, None), INTERVAL, Metrics())
    cluster = make_cluster_state(make_job())
    assert controller.views(cluster) == ()
    snapshot = build_snapshot(cluster, observe(cluster))
    asyncio.run(controller.write(cluster, snapshot, ()))
    assert job_queues(snapshot) == {}


def test_the_default_queue_has_usage_without_an_object() -> None:
    stage = Stage()
    shares = (SHARE, QueueShare("default", 1.0, 1.0, 1, 1))
    stage.tick(0.0, *shares)
    (usage,) = [view.usage for view in stage.controller.views(stage.cluster(10.0)) if view.name == "default"]
    assert usage.total == 10.0


@pytest.mark.parametrize(
    ("spec", "borrowing"),
    [({}, None), ({"gpus": 2}, None), ({"gpus": 2, "borrowing": False}, 0), ({"gpus": 2, "borrowingLimit": 3}, 3)],
)
def test_what_a_queue_may_borrow(spec: dict[str, Any], borrowing: int | None) -> None:
    assert queue_view(make_queue(**spec)).borrowing == borrowing


def test_a_job_that_can_get_no_gpu_has_a_condition_and_a_reason() -> None:
    queue, job = make_queue(namespaces=["other"]), make_job(queue="team")
    cluster = make_cluster_state(queue, job, make_node("node-a"))
    snapshot = build_snapshot(cluster, observe(cluster), queues=(queue_view(queue),))
    (mine,) = job_queues(snapshot).values()
    assert mine.obstacle is not None
    status = job_status(job, [], {}, JobReport(3, Eta(None, ""), queue=mine), NOW)
    assert (status["phase"], status["reason"]) == ("Pending", "QueueForbidden")
    ready = next(c for c in status["conditions"] if c["type"] == "QueueReady")
    assert (ready["status"], ready["reason"]) == ("False", "QueueForbidden")
    assert "namespace lab may not use GPUQueue team" in ready["message"]
    fine = job_status(job, [], {}, JobReport(3, Eta(None, ""), queue=JobQueue("team", None)), NOW)
    ready = next(c for c in fine["conditions"] if c["type"] == "QueueReady")
    assert (ready["status"], ready["message"]) == ("True", "The job shares the GPUs of queue team.")
    assert not [c for c in job_status(job, [], {}, JobReport(3), NOW)["conditions"] if c["type"] == "QueueReady"]


def test_a_running_job_keeps_its_phase_when_its_queue_is_gone() -> None:
    job = make_job(queue="gone")
    trial = make_trial(0, phase="Succeeded", reason="Completed", finishedAt=moment())
    cluster = make_cluster_state(job, trial)
    lost = JobQueue("", Obstacle("QueueNotFound", "spec.queue: GPUQueue gone does not exist."))
    status = job_status(job, cluster.trials, observe(cluster), JobReport(3, queue=lost), NOW)
    assert (status["phase"], status["reason"]) == ("Running", "TrialsRunning")

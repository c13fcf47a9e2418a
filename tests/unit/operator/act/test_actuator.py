"""What the operator sends to the API server, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import operator_builders
import pytest
from operator_builders import make_cluster_state, make_job, make_node, make_pod, make_trial, moment

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_core.domain.actions import Action, CreatePod, CreateTrial, DeletePod, Requeue, WriteRunQueues
from podium_core.domain.keys import JobKey
from podium_core.domain.observe import FINAL_REPORT_SECONDS
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.act.postponed_actions import FinalReportWait
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.observation import observe
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.report.status_writer import Report, StatusWriter
from podium_operator.settings import OperatorSettings


class Wire:
    """Replaces the API server: it records what it gets, and refuses with `refusal` (`verb`: only this verb)."""

    def __init__(self, refusal: ApiError | None = None, verb: str = "") -> None:
        self.calls: list[tuple[str, str, Mapping[str, Any]]] = []
        self.uids: list[str | None] = []
        self._refusal, self._verb = refusal, verb

    async def _note(self, verb: str, resource: Resource, body: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        self.calls.append((verb, resource.kind, body))
        if self._refusal is not None and self._verb in ("", verb):
            raise self._refusal

    async def apply(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        await self._note("apply", resource, body)

    async def apply_status(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        await self._note("status", resource, body)

    async def patch(self, resource: Resource, name: str, _: Any, body: Mapping[str, Any], **__: Any) -> None:
        await self._note("patch", resource, body)

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        await self._note("create", resource, body)

    async def delete(self, resource: Resource, name: str, *_: Any, uid: str | None = None) -> None:
        self.uids.append(uid)
        await self._note("delete", resource, {"name": name})

    def versions(self) -> dict[str, str]:
        return {kind: body["metadata"]["resourceVersion"] for verb, kind, body in self.calls if verb == "status"}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_parameters_that_cannot_be_drawn_do_not_affect_other_trials(caplog: pytest.LogCaptureFixture) -> None:
    """The range is wider than a float can express."""
    wide = make_job("wide", parameters=[{"name": "lr", "min": -1.7e308, "max": 1.7e308}])
    wire, cluster = Wire(), make_cluster_state(wide, make_job())
    actuator = Actuator(
        cast(Api, wire),
        WatchCaches(cast(Api, wire), OperatorSettings()),
        PodRules("podium", "podium.dev/gpu"),
        Metrics(),
    )
    created = [CreateTrial(JobKey("lab", name), 0, "Free", "") for name in ("wide", "sweep")]
    asyncio.run(actuator.create(cluster, created))
    assert [body["metadata"]["name"] for _, _, body in wire.calls] == ["sweep-0"]
    assert "cannot be carried out: Range exceeds valid bounds" in caplog.text


ANOTHER = ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest version")


@pytest.mark.parametrize("refusal", [None, ANOTHER], ids=["written", "another object of that name"])
def test_a_status_is_written_for_exactly_this_object(
    refusal: ApiError | None, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(refusal)
    job, trial = (
        item.model_copy(update={"metadata": item.metadata.model_copy(update={"resource_version": version})})
        for item, version in ((make_job(), "7"), (make_trial(), "8"))
    )
    cluster = make_cluster_state(job, trial)
    observations = observe(cluster)
    status_writer = StatusWriter(cast(Api, wire), 1.0, Metrics())
    asyncio.run(status_writer.write(cluster, observations, build_snapshot(cluster, observations), Report()))
    assert wire.versions() == {"HyperParamTrial": "8", "HyperParamJob": "7"}
    assert not [record for record in caplog.records if record.levelname == "WARNING"], "the next reconcile retries"


def test_a_status_that_cannot_be_written_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    wire, good, wrong = Wire(), make_job(), make_job("wrong")
    wrong = wrong.model_copy(update={"status": wrong.status.model_copy(update={"started_at": "today"})})
    cluster = make_cluster_state(wrong, good)
    observations = observe(cluster)
    status_writer = StatusWriter(cast(Api, wire), 1.0, Metrics())
    asyncio.run(status_writer.write(cluster, observations, build_snapshot(cluster, observations), Report()))
    assert [body["metadata"]["name"] for verb, _, body in wire.calls if verb == "status"] == ["sweep"]
    assert "status of job lab/wrong was not written" in caplog.text


def carry_out(wire: Wire, cluster: ClusterState, *actions: Action) -> Actuator:
    api = cast(Api, wire)
    actuator = Actuator(api, WatchCaches(api, OperatorSettings()), PodRules("podium", "podium.dev/gpu"), Metrics())
    asyncio.run(operator_builders.carry_out(actuator, cluster, actions))
    return actuator


def test_a_requeue_writes_its_reason_and_the_work_at_risk_then_deletes_exactly_that_pod() -> None:
    wire = Wire()
    saved = {"step": 50, "at": moment(0), "gpuSeconds": 20.0}
    trial = make_trial(phase="Running", lastStep=53, gpuSeconds=21.25, checkpoint=saved)
    cluster = make_cluster_state(make_job(), trial, make_pod())
    carry_out(wire, cluster, Requeue(trial_key(trial), "NodeDraining", "The node drains."))
    reason = {"uid": "uid-sweep-0-0", "annotations": {"podium.dev/requeue": "NodeDraining"}}
    (patched, event, deleted) = wire.calls
    assert patched == ("patch", "Pod", {"metadata": reason})
    assert event[:2] == ("create", "Event")
    assert event[2]["involvedObject"]["name"] == "sweep-0"
    assert event[2]["reason"] == "WorkAtRisk"
    assert event[2]["message"] == ("The node drains. Without a new checkpoint, 3 steps and 1.2 GPU-seconds are lost.")
    assert deleted == ("delete", "Pod", {"name": "sweep-0-0"})
    assert wire.uids == ["uid-sweep-0-0"]


@pytest.mark.parametrize("refusal", [ApiError(404, "NotFound", "gone"), ApiError(500, "Error", "etcd is unreachable")])
def test_a_requeue_without_a_written_reason_deletes_nothing(refusal: ApiError) -> None:
    wire = Wire(refusal)
    trial = make_trial(phase="Running")
    carry_out(wire, make_cluster_state(make_job(), trial, make_pod()), Requeue(trial_key(trial), "Preempted", "room"))
    assert [verb for verb, _, _ in wire.calls] == ["patch"]


def test_a_pod_that_could_not_be_deleted_does_not_keep_the_reason() -> None:
    """Otherwise a later end for another reason would be attributed to Podium."""
    wire = Wire(ApiError(403, "Forbidden", "a webhook refuses it"), "delete")
    trial = make_trial(phase="Running")
    carry_out(wire, make_cluster_state(make_job(), trial, make_pod()), Requeue(trial_key(trial), "Preempted", "room"))
    written = [(verb, kind) for verb, kind, _ in wire.calls if kind == "Pod"]
    assert written == [("patch", "Pod"), ("delete", "Pod"), ("patch", "Pod")]
    assert wire.calls[-1][2]["metadata"]["annotations"] == {"podium.dev/requeue": None}


def test_a_pod_that_could_not_be_deleted_is_not_touched_during_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write to a pod wakes the next reconcile: without a pause it would be deleted twenty times a second."""
    monkeypatch.setattr("podium_operator.act.postponed_actions.FIRST_PAUSE", 3600.0)
    wire = Wire(ApiError(403, "Forbidden", "a webhook refuses it"), "delete")
    trial = make_trial(phase="Running")
    cluster, requeue = make_cluster_state(make_job(), trial, make_pod()), Requeue(trial_key(trial), "Preempted", "room")
    actuator = carry_out(wire, cluster, requeue)
    once = len(wire.calls)
    asyncio.run(operator_builders.carry_out(actuator, cluster, [requeue]))
    assert len(wire.calls) == once
    asyncio.run(operator_builders.carry_out(actuator, make_cluster_state(make_job(), trial), []))
    asyncio.run(operator_builders.carry_out(actuator, cluster, [requeue]))
    assert len(wire.calls) == 2 * once, "a deleted pod is not remembered"


def test_a_pod_that_is_being_deleted_is_not_touched() -> None:
    wire = Wire()
    trial = make_trial(phase="Running")
    cluster = make_cluster_state(make_job(), trial, make_pod(deleting=True))
    carry_out(wire, cluster, Requeue(trial_key(trial), "Preempted", "room"))
    assert wire.calls == []


def test_an_older_attempt_that_still_runs_is_deleted() -> None:
    wire = Wire()
    dead = make_pod("sweep-1", attempt=0, phase="Failed")
    pods = [make_pod(attempt=0, phase="Running"), make_pod(attempt=1), dead, make_pod("sweep-1", attempt=1)]
    carry_out(wire, make_cluster_state(make_job(), make_trial(attempt=1), make_trial(1, attempt=1), *pods))
    assert wire.calls == [("delete", "Pod", {"name": "sweep-0-0"})]


def test_a_new_attempt_waits_for_the_final_report_of_the_one_before() -> None:
    hold = {"gpus": ["GPU-1"], "node": "node-1", "start": moment(-60)}

    def verbs(*holds: dict[str, Any], unresponsive: tuple[str, ...] = ()) -> list[str]:
        wire = Wire()
        trial = make_trial(phase="Requeued", allocations=list(holds))
        cluster = make_cluster_state(make_job(), trial, make_node(), unresponsive=unresponsive)
        carry_out(wire, cluster, CreatePod(trial_key(trial), 1, "R", "m"))
        return [verb for verb, _, _ in wire.calls]

    assert verbs(hold) == []
    assert verbs(hold | {"end": moment()}) == ["create"]
    assert verbs() == ["create"]
    assert verbs(hold, unresponsive=("node-1",)) == ["create"], "that agent reports nothing more"
    assert verbs(hold | {"node": "gone"}) == ["create"]


@pytest.mark.parametrize(
    ("stored", "message", "alone"),
    [(True, "", True), (False, "CUDA out of memory", True), (False, "KeyError", False)],
    ids=["written", "observed in this reconcile, as after a restart", "another failure"],
)
def test_a_trial_that_ran_out_of_gpu_memory_is_retried_on_whole_gpus(stored: bool, message: str, alone: bool) -> None:
    node = make_node()
    gpu = node.status.gpus[0].model_copy(update={"memory_total": 24 << 30})
    node = node.model_copy(update={"status": node.status.model_copy(update={"gpus": [gpu]})})
    condition = {"type": "GPUMemoryExceeded", "status": "True", "reason": "OutOfMemory"}
    trial = make_trial(phase="Running", conditions=[condition] if stored else [])
    end = {"terminated": {"exitCode": 1, "message": message, "finishedAt": moment(-60)}}
    wire = Wire()
    cluster = make_cluster_state(make_job(), trial, make_pod(phase="Failed", main=end), node)
    carry_out(wire, cluster, CreatePod(trial_key(trial), 1, "Requeued", "again"))
    ((_, _, made),) = wire.calls
    assert ("podium.dev/whole-gpu" in made["metadata"]["annotations"]) is alone


def test_waiting_for_a_final_report_is_bounded() -> None:
    trial = make_trial(allocations=[{"gpus": ["GPU-1"], "node": "node-1", "start": moment(-60)}])
    cluster = make_cluster_state(make_job(), trial, make_node())
    final_reports = FinalReportWait()
    assert [final_reports.may_continue(cluster, trial, now) for now in (10.0, 54.9, 55.0)] == [False, False, True]


@pytest.mark.parametrize(
    ("reason", "seen", "responds", "waits"),
    [
        ("UnexpectedAdmissionError", True, True, True),
        ("UnexpectedAdmissionError", True, False, False),
        ("UnexpectedAdmissionError", False, True, False),
        ("Evicted", True, True, False),
    ],
)
def test_the_next_attempt_waits_for_a_denied_pod_that_may_still_write_a_checkpoint(
    reason: str, seen: bool, responds: bool, waits: bool
) -> None:
    """It was suspended, so its last allocation is closed. Its agent sees its processes until the kubelet kills them."""
    held = [{"gpus": ["GPU-1"], "node": "node-1", "start": moment(-60), "end": moment(-30)}]
    trial, pod = make_trial(allocations=held), make_pod(phase="Failed", reason=reason)
    node = make_node(trials={"sweep-0": "Suspended"} if seen else {})
    unresponsive = frozenset() if responds else frozenset({"node-1"})
    cluster = replace(make_cluster_state(make_job(), trial, pod, node), unresponsive=unresponsive)
    final_reports = FinalReportWait()
    last = 10.0 + FINAL_REPORT_SECONDS + make_job().spec.suspension.grace_period_seconds
    answers = [final_reports.may_continue(cluster, trial, now) for now in (10.0, last - 0.1, last)]
    assert answers == ([False, False, True] if waits else [True, True, True])


def test_run_queues_are_written_to_the_gpunode_that_was_read() -> None:
    """By its uid: an apply without it would create a deleted GPUNode again."""
    wire, node = Wire(), make_node()
    carry_out(wire, make_cluster_state(make_job(), node), WriteRunQueues("node-1", 2, (("GPU-1", ()),)))
    ((_, _, written),) = wire.calls
    assert node.metadata.uid
    assert written["metadata"] == {"name": "node-1", "uid": node.metadata.uid}


def test_deletions_come_before_run_queues_and_creations_last() -> None:
    """Otherwise the agent would suspend a trial that it has to resume at once for its SIGTERM."""
    wire = Wire()
    going, coming = make_trial(0, phase="Running"), make_trial(1)
    cluster = make_cluster_state(make_job(), going, coming, make_pod(), make_node())
    actions = [
        CreatePod(trial_key(coming), 0, "SlotAvailable", "room"),
        WriteRunQueues("node-1", 2, (("GPU-1", ()),)),
        DeletePod(trial_key(going), "StoppedByUser", "stopped"),
    ]
    carry_out(wire, cluster, *actions)
    assert [(verb, kind) for verb, kind, _ in wire.calls] == [
        ("delete", "Pod"),
        ("apply", "GPUNode"),
        ("create", "Pod"),
    ]

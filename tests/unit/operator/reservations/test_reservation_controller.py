"""Reservation pods as the operator requests and releases them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import NOW, make_cluster_state, make_job, make_node, make_trial, moment
from reservation_builders import JOB, POOL, reservation_node, seen

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_core.planning.slots.gpu_reservations import LINGER, Pool
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.observation import observe
from podium_operator.observe.reservation_state import ReservationPodState
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.reservations.condition import ReservationCondition
from podium_operator.reservations.controller import ReservationController
from podium_operator.reservations.reservation_pod import CHECKPOINT_ANNOTATION, COST_ANNOTATION
from podium_operator.settings import OperatorSettings

QUOTA = ApiError(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: gpus')
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for a pod"}


class Wire:
    """Records what the operator sends; `refusal` answers every reservation pod."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bodies: list[Mapping[str, Any]] = []
        self.refusal: ApiError | None = None

    async def get(self, resource: Resource, name: str, *_: Any) -> Mapping[str, Any]:
        return {"metadata": {"name": name, "uid": f"uid-{name}"}}

    async def create(self, resource: Resource, body: Mapping[str, Any], **_: Any) -> None:
        what = body["reason"] if resource.kind == "Event" else body["metadata"]["name"].rpartition("-")[2]
        self.calls.append(f"create {what}")
        self.bodies.append(body)
        if self.refusal is not None and resource.kind == "Pod":
            raise self.refusal

    async def patch(self, _: Resource, name: str, __: str, body: Mapping[str, Any], **___: Any) -> None:
        self.calls.append(f"mark {name.rpartition('-')[2]}")
        self.bodies.append(body)

    async def delete(self, _: Resource, name: str, namespace: str, *, uid: str) -> None:
        where = "" if namespace == "lab" else f" of {namespace}"
        self.calls.append(f"delete {name.rpartition('-')[2]}{where}")


class Controller:
    def __init__(self, **settings: Any) -> None:
        self.wire = Wire()
        given = {"gpu_mode": "reservations", "image": "i", **settings}
        self.reservation_controller = ReservationController(cast(Api, self.wire), OperatorSettings(**given), Metrics())
        self.wake: float | None = None
        self.unresponsive: frozenset[str] = frozenset()

    def reconciler(
        self, *objects: Any, reservations: tuple[ReservationPodState, ...] = (), now: float = 0.0
    ) -> ReservationCondition | None:
        """Reconcile; return the job's condition. Only the calls of this reconcile are kept."""
        self.wire.calls.clear()
        cluster: ClusterState = replace(
            make_cluster_state(*objects, now=NOW + now), reservations=reservations, unresponsive=self.unresponsive
        )
        recorded, self.wake = asyncio.run(
            self.reservation_controller.reconcile(cluster, build_snapshot(cluster, observe(cluster)))
        )
        return recorded.get(JOB)


TWO = make_job(trials={"max": 2, "parallel": 2, "maxSteps": 10}, status={"phase": "Running"})


def test_reservations_match_the_demand_and_belong_to_the_priority_class() -> None:
    controller = Controller(reservation_grace_seconds=5)
    said = controller.reconciler(TWO, reservation_node())
    assert controller.wire.calls == ["create 0", "create 1"]
    assert said == ReservationCondition(False, "Requesting", "0 of 2 GPUs that the trials can use are reserved.")
    body = controller.wire.bodies[0]
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-podium-reservation"
    assert body["spec"]["terminationGracePeriodSeconds"] == 40, "a trial's own 30 s and a margin"


def test_requests_that_a_quota_refuses_have_a_backoff() -> None:
    controller = Controller()
    controller.wire.refusal = QUOTA
    said = controller.reconciler(TWO, reservation_node())
    assert (controller.wire.calls, said and said.reason) == (["create 0"], "QuotaExceeded")
    assert controller.wake == NOW + 2
    controller.reconciler(TWO, now=1.0)
    assert controller.wire.calls == []
    controller.reconciler(TWO, now=2.0)
    assert (controller.wire.calls, controller.wake) == (["create 0"], NOW + 6)
    controller.wire.refusal = None
    said = controller.reconciler(TWO, now=6.0)
    assert (controller.wire.calls, said and said.reason) == (["create 0", "create 1"], "Requesting")


def test_a_refusal_causes_no_wake_up_without_demand() -> None:
    controller = Controller()
    controller.wire.refusal = QUOTA
    controller.reconciler(TWO, reservation_node(), reservations=(seen(0),))
    assert controller.wake == NOW + 2
    said = controller.reconciler(make_job(suspend=True), reservation_node(), now=3.0)
    assert (said and said.reason, controller.wake) == ("NoDemand", None)


def test_requests_after_preemptions_have_a_backoff_until_a_step_was_done() -> None:
    controller, node = Controller(), reservation_node()
    job = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10}, status={"phase": "Running"})
    taken = seen(0, deleting=True, conditions=[PREEMPTED])
    said = controller.reconciler(job, node, make_trial(lastStep=3), reservations=(taken,))
    assert controller.wire.calls == ["create ReservationPreempted"]
    assert (said and said.reason, controller.wake) == ("ReservationPreempted", NOW + 2)
    said = controller.reconciler(job, node, make_trial(lastStep=3), reservations=(taken,), now=2.0)
    assert controller.wire.calls == ["create 0"], "recorded once"
    assert said
    assert said.reason == "Requesting"
    again = replace(taken, uid="other")
    controller.reconciler(job, node, make_trial(lastStep=3), reservations=(again,), now=3.0)
    assert controller.wake == NOW + 7, "the second consecutive one"
    later = replace(taken, uid="third")
    controller.reconciler(job, node, make_trial(lastStep=4), reservations=(later,), now=10.0)
    assert controller.wake == NOW + 12, "a step was done"


def test_an_unneeded_reservation_is_marked_then_released_and_not_counted_as_preempted() -> None:
    controller, node = Controller(), reservation_node("lab/podium-reservation-x-0")
    idle = make_job(suspend=True)
    controller.reconciler(idle, node, reservations=(seen(0),))
    assert controller.wire.calls == ["mark 0"]
    marked = replace(seen(0), unneeded_since=NOW)
    controller.reconciler(idle, node, reservations=(marked,), now=LINGER)
    assert controller.wire.calls == ["delete 0"]
    controller.reconciler(idle, node, reservations=(replace(marked, deleting=True),), now=LINGER + 1)
    assert controller.wire.calls == []
    one = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10})
    controller.reconciler(one, node, reservations=(marked,), now=LINGER + 2)
    assert controller.wire.calls == ["mark 0"], "needed again"


def test_simultaneous_preemptions_count_once() -> None:
    controller, node = Controller(), reservation_node()
    taken = [seen(number, deleting=True, conditions=[PREEMPTED]) for number in range(3)]
    controller.reconciler(TWO, node, reservations=tuple(taken[:2]))
    assert controller.wire.calls == ["create ReservationPreempted"] * 2
    assert controller.wake == NOW + 2
    controller.reconciler(TWO, node, reservations=tuple(taken), now=1.0)
    assert controller.wake == NOW + 3, "for one pod with several GPUs"


def test_a_pod_that_vanished_between_two_reconciles_was_preempted_too() -> None:
    controller = Controller()
    job = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10}, status={"phase": "Running"})
    controller.reconciler(job, reservation_node("lab/podium-reservation-x-0"), reservations=(seen(0),))
    said = controller.reconciler(job, reservation_node(), now=1.0)
    assert controller.wire.calls == ["create ReservationPreempted"]
    assert (said and said.reason, controller.wake) == ("ReservationPreempted", NOW + 3)
    controller.reconciler(job, reservation_node(), now=1.5)
    assert controller.wire.calls == [], "recorded once"


def test_a_pod_released_by_an_earlier_operator_is_not_counted_a_preempted_one_is() -> None:
    job = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10}, status={"phase": "Running"})
    for conditions, calls in (([], ["create 0"]), ([PREEMPTED], ["create ReservationPreempted"])):
        controller = Controller()
        controller.reconciler(job, reservation_node(), reservations=(seen(0, deleting=True, conditions=conditions),))
        assert controller.wire.calls == calls


@pytest.mark.parametrize(
    ("namespace", "unresponsive", "calls"),
    [("lab", False, []), ("lab", True, ["delete 0"]), ("other", False, ["delete 0"])],
)
def test_after_the_last_search_a_reservation_is_released_once_its_pods_have_ended(
    namespace: str, unresponsive: bool, calls: list[str]
) -> None:
    controller = Controller()
    node = reservation_node("lab/podium-reservation-x-0", trials={"sweep-0": "Running"})
    (gpu,) = node.status.gpus
    there = [gpu.trials[0].model_copy(update={"namespace": namespace})]
    gpus = [gpu.model_copy(update={"trials": there})]
    node = node.model_copy(update={"status": node.status.model_copy(update={"gpus": gpus})})
    controller.unresponsive = frozenset({node.metadata.name}) if unresponsive else frozenset()
    controller.reconciler(node, reservations=(seen(0),))
    assert controller.wire.calls == calls
    controller.reconciler(reservation_node("lab/podium-reservation-x-0"), reservations=(seen(0),), now=1.0)
    assert controller.wire.calls == ["delete 0"]


def test_a_job_without_gpus_has_no_reservation_condition() -> None:
    cluster = make_cluster_state(TWO, make_job("plain", gpus={"perTrial": 0}), reservation_node())
    recorded, _ = asyncio.run(
        Controller().reservation_controller.reconcile(cluster, build_snapshot(cluster, observe(cluster)))
    )
    assert set(recorded) == {JOB}


def test_namespaces_have_separate_reservations_of_the_same_name() -> None:
    controller = Controller()
    own, other = seen(0), replace(seen(0), uid="their", pool=Pool("other"))
    one = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10})
    for reservations in ((own, other), (other, own)):
        controller.reconciler(one, reservation_node("lab/podium-reservation-x-0"), reservations=reservations)
        assert controller.wire.calls == ["delete 0 of other"], "no search is left there"


def test_a_reservation_pod_that_has_ended_is_deleted() -> None:
    controller = Controller()
    controller.reconciler(TWO, reservation_node(), reservations=(replace(seen(0), ended=True),))
    assert controller.wire.calls[0] == "delete 0"


def test_with_dedicated_gpus_nothing_is_requested_and_the_rest_is_released() -> None:
    controller = Controller(gpu_mode="dedicated")
    assert controller.reconciler(TWO, make_node()) is None
    assert controller.wire.calls == []
    controller.reconciler(TWO, make_node(), reservations=(seen(0),))
    assert controller.wire.calls == ["delete 0"]


def test_the_planner_knows_the_namespace_of_a_reserved_gpu() -> None:
    held, lost, owned = reservation_node("lab/podium-reservation-x-0"), reservation_node(), make_node()
    for node, expected in ((held, "lab"), (lost, ""), (owned, None)):
        cluster = make_cluster_state(TWO, node)
        (gpu,) = build_snapshot(cluster, observe(cluster)).gpus
        assert gpu.availability.reserved_for == expected
    cluster = make_cluster_state(make_job(suspension={"methods": ["freeze", "app-checkpoint"]}), held)
    assert not build_snapshot(cluster, observe(cluster)).jobs[0].abilities.suspendable, "freeze keeps its memory there"


def test_a_namespace_without_demand_is_forgotten_after_its_pause() -> None:
    controller = Controller()
    controller.reconciler(TWO, reservation_node(), reservations=(seen(0),))
    controller.reconciler(
        TWO, reservation_node(), reservations=(seen(0, deleting=True, conditions=[PREEMPTED]),), now=1.0
    )
    controller.reconciler(now=2.0)
    assert set(controller.reservation_controller._preemptions) == {POOL}, (
        "a namespace that returns within the pause waits for its end"
    )
    controller.reconciler(now=60.0)
    assert controller.reservation_controller._preemptions == {}


KUEUE = {"type": "TerminationTarget", "status": "True", "reason": "StoppedByKueue", "message": "Preempted"}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gates"}
ONE = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10}, status={"phase": "Running"}, queue="research")


def test_jobs_name_the_queue_of_their_reservations_and_others_get_the_default() -> None:
    for job, label in ((ONE, "research"), (make_job(), "all")):
        controller = Controller(reservation_queue="all")
        controller.reconciler(job, reservation_node())
        assert {body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for body in controller.wire.bodies} == {label}


def test_a_reservation_that_kueue_holds_back_or_ends_is_explained() -> None:
    controller, waits = Controller(), seen(0, bound=False, queue="research", conditions=[GATED])
    said = controller.reconciler(ONE, reservation_node(), reservations=(waits,))
    assert said
    assert (said.reason, "LocalQueue research has no quota left" in said.message) == ("WaitingForGPU", True)
    taken = seen(0, deleting=True, queue="research", conditions=[KUEUE])
    said = controller.reconciler(ONE, reservation_node(), reservations=(taken,))
    assert said
    assert (said.reason, "StoppedByKueue: Preempted" in said.message) == ("ReservationPreempted", True)


def test_a_reservation_says_when_its_trials_last_checkpointed_and_what_its_end_would_cost() -> None:
    """The oldest one counts; a trial without a checkpoint counts from its start, and an ended one not at all."""
    node = reservation_node("lab/podium-reservation-x-0")
    on_it = {"gpus": [node.status.gpus[0].uuid], "startedAt": moment(0)}
    saved = {"checkpoint": {"step": 3, "at": moment(60)}}
    trials = [
        make_trial(0, **on_it, **saved),
        make_trial(1, phase="Succeeded", **on_it),
        make_trial(2, startedAt=moment(0)),
    ]
    controller = Controller()
    controller.reconciler(TWO, node, *trials, reservations=(seen(0),))
    annotations = [
        body["metadata"]["annotations"] for body in controller.wire.bodies if "annotations" in body["metadata"]
    ]
    assert annotations == [{CHECKPOINT_ANNOTATION: "2025-10-09T08:54:20+00:00", COST_ANNOTATION: "0"}]
    controller.wire.bodies.clear()
    for at, marks in ((NOW + 60, 0), (NOW + 40, 0), (NOW + 20, 1)):
        recorded = replace(seen(0), last_checkpoint=at, preemption_cost=0.0)
        controller.reconciler(TWO, node, *trials, reservations=(recorded,))
        assert controller.wire.calls.count("mark 0") == marks, "every 30 s at most"
    controller.reconciler(TWO, node, *trials, make_trial(3, gpuSeconds=70.0, **on_it), reservations=(seen(0),))
    first = {CHECKPOINT_ANNOTATION: "2025-10-09T08:53:20+00:00", COST_ANNOTATION: "70"}
    assert controller.wire.bodies[-1]["metadata"]["annotations"] == first

"""Reservation pods as the operator requests and releases them, and the condition of the jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import NOW, make_cluster_state, make_job, make_node, make_trial, moment

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import Resource
from podium_core.domain.gpu_reservation import ReservationState
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.snapshot import GpuView, JobKey
from podium_core.planning.gpu_reservations import LINGER, Demand, Pool, Reservation
from podium_core.schema.gpunode import GPUNode
from podium_core.testing import builders as views
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.observe.observation import observe
from podium_operator.observe.reservation_state import ReservationPodState, parse_reservation_pod
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.reservations.condition import ReservationCondition, reservation_condition
from podium_operator.reservations.controller import ReservationController
from podium_operator.reservations.demand import PoolDemand, pool_demands, reservations_from
from podium_operator.reservations.reservation_pod import PRODUCTS_ANNOTATION, RESERVATION_LABEL, UNNEEDED_ANNOTATION
from podium_operator.settings import OperatorSettings

POOL, JOB = Pool("lab"), JobKey("lab", "sweep")
QUOTA = ApiError(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: gpus')
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for a pod"}


def seen(
    number: int = 0, *, bound: bool = True, deleting: bool = False, conditions: Any = (), **more: str
) -> ReservationPodState:
    name = f"podium-reservation-x-{number}"
    meta = {
        "name": name,
        "namespace": "lab",
        "uid": f"u{number}",
        "labels": {RESERVATION_LABEL: name},
        "annotations": more,
    }
    if deleting:
        meta["deletionTimestamp"] = moment()
    spec = {"nodeName": "node-1"} if bound else {}
    return parse_reservation_pod(
        {"metadata": meta, "spec": spec, "status": {"phase": "Running", "conditions": list(conditions)}}
    )


def reservation_node(reservation: str | None = None, **how: Any) -> GPUNode:
    node = make_node(slots=4 if reservation else 0, **how)
    gpus = [gpu.model_copy(update={"reservation": reservation}) for gpu in node.status.gpus]
    return node.model_copy(update={"status": node.status.model_copy(update={"mode": "reservations", "gpus": gpus})})


def test_a_reservation_pod_is_parsed_as_it_was_created() -> None:
    one = seen(**{PRODUCTS_ANNOTATION: "H100,H200", UNNEEDED_ANNOTATION: "2025-10-09T08:53:20+00:00"})
    assert (one.pool, one.unneeded_since, one.bound) == (Pool("lab", "", ("H100", "H200")), NOW, True)
    with pytest.raises(ValueError, match="differs from the pod's name"):
        parse_reservation_pod(
            {"metadata": {"name": "own", "namespace": "lab", "uid": "u", "labels": {RESERVATION_LABEL: "yours"}}}
        )


DEMANDS: list[tuple[str, dict[str, Any], int | None]] = [
    ("as many as run at a time", {"parallel": 3, "max_trials": 12}, 3),
    ("auto: every trial that is left", {"parallel": None, "max_trials": 5}, 5),
    ("several a trial", {"parallel": 2, "gpus_per_trial": 4}, 8),
    ("at most those that are left", {"parallel": 8, "max_trials": 2}, 2),
    ("suspended: none for now", {"suspended": True}, 0),
    ("not accepted", {"accepted": False}, None),
    ("over", {"finished": True}, None),
    ("without a GPU", {"gpus_per_trial": 0}, None),
]


@pytest.mark.parametrize(("job", "gpus"), [case[1:] for case in DEMANDS], ids=[case[0] for case in DEMANDS])
def test_how_many_gpus_a_search_can_use(job: dict[str, Any], gpus: int | None) -> None:
    snapshot = views.make_snapshot(jobs=[views.make_job(**job)])
    together = job.get("gpus_per_trial", 1) > 1
    assert pool_demands(snapshot, 4) == ({} if gpus is None else {POOL: PoolDemand(Demand(gpus, 4), together=together)})


def test_demand_is_summed_by_namespace_and_separate_by_product() -> None:
    jobs = [views.make_job(name, parallel=2) for name in ("a", "b")]
    other = views.make_job("c", parallel=1, products=("H200", "H100"))
    found = pool_demands(views.make_snapshot(jobs=[*jobs, other]), 9)
    assert found == {POOL: PoolDemand(Demand(4, 9)), Pool("lab", "", ("H100", "H200")): PoolDemand(Demand(1, 9))}


ONE, OTHER = views.make_gpu("gpu-0", reserved_for="lab"), views.make_gpu("gpu-1", node="node-b", reserved_for="lab")
TAKEN = replace(ONE, reserved_for="")
RUNNING_POD, OFF, GATED = TrialPhase.RUNNING, TrialPhase.SUSPENDED, TrialPhase.GATED
PLACED: list[tuple[str, int, list[TrialPhase], list[GpuView], PoolDemand]] = [
    ("both are on one GPU: another one would not help", 2, [RUNNING_POD, OFF], [ONE], PoolDemand(Demand(1, 9))),
    ("and an idle one is superfluous", 2, [RUNNING_POD, OFF], [ONE, OTHER], PoolDemand(Demand(1, 9))),
    ("one has no GPU yet", 2, [RUNNING_POD], [ONE], PoolDemand(Demand(2, 9))),
    ("its GPU was preempted: another one on its node", 1, [OFF], [TAKEN], PoolDemand(Demand(1, 9), ("node-a",))),
    ("an idle one does not help it", 1, [OFF], [TAKEN, OTHER], PoolDemand(Demand(2, 9), ("node-a",))),
    ("another trial can use any GPU", 2, [OFF], [TAKEN, OTHER], PoolDemand(Demand(2, 9))),
    ("it had not started: any GPU helps", 1, [GATED], [TAKEN], PoolDemand(Demand(1, 9))),
]


def test_a_migrated_trial_waits_for_its_own_gpu_at_its_gate_too() -> None:
    trial = views.make_trial(0, phase=GATED, gpus=["gpu-0"], migration=MigrationPhase.POD_CREATED, migrated=True)
    snapshot = views.make_snapshot(
        jobs=[views.make_job(parallel=1, max_trials=1)], trials=[trial], gpus=[replace(TAKEN, trials=(trial.key,))]
    )
    assert pool_demands(snapshot, 9) == {POOL: PoolDemand(Demand(1, 9), ("node-a",))}


@pytest.mark.parametrize(
    ("parallel", "phases", "gpus", "pool_demand"), [c[1:] for c in PLACED], ids=[c[0] for c in PLACED]
)
def test_the_nodes_where_a_gpu_helps_are_those_of_the_trials(
    parallel: int, phases: list[TrialPhase], gpus: list[GpuView], pool_demand: PoolDemand
) -> None:
    trials = [views.make_trial(i, phase=phase, gpus=["gpu-0"]) for i, phase in enumerate(phases)]
    there = [replace(gpu, trials=tuple(t.key for t in trials) if gpu.uuid == "gpu-0" else ()) for gpu in gpus]
    job = views.make_job(parallel=parallel, max_trials=parallel)
    assert pool_demands(views.make_snapshot(jobs=[job], trials=trials, gpus=there), 9) == {POOL: pool_demand}


def test_a_reservation_is_held_when_an_agent_names_its_gpu() -> None:
    node = reservation_node("lab/podium-reservation-x-0", trials={"sweep-0": "Running"})
    found = reservations_from([seen(0), seen(1), seen(2, bound=False), seen(3, deleting=True)], [node], NOW)
    assert [one.state for one in found] == [
        ReservationState.HELD,
        ReservationState.STARTING,
        ReservationState.REQUESTED,
        ReservationState.TERMINATING,
    ]
    assert [one.loss for one in found] == [1.0, 0.0, 0.0, 0.0]


def test_a_report_of_an_older_reservation_of_the_same_name_does_not_count() -> None:
    """Names recur: the pod of this name is bound to node-1, and node-2 has not observed the end of the older one."""
    old = reservation_node("lab/podium-reservation-x-0", name="node-2", trials={"sweep-0": "Running"})
    (found,) = reservations_from([seen(0)], [old, reservation_node(name="node-1")], NOW)
    assert (found.state, found.in_use) == (ReservationState.STARTING, False)


def reservation(state: ReservationState) -> Reservation:
    return Reservation("l", POOL, state, 0.0)


HELD, ASKED, STARTING = (
    reservation(state) for state in (ReservationState.HELD, ReservationState.REQUESTED, ReservationState.STARTING)
)
WORDS: list[tuple[Demand, list[Reservation], dict[str, str], bool, str, str]] = [
    (Demand(1, 8), [HELD], {}, True, "Held", "1 of 1 GPUs"),
    (Demand(0, 8), [], {}, True, "NoDemand", "0 of 0"),
    (Demand(9, 1), [HELD], {"refusal": "old"}, True, "Held", "(9 could be used, 1 are allowed)"),
    (Demand(2, 8), [HELD], {"refusal": "exceeded quota: gpus"}, False, "QuotaExceeded", "exceeded quota: gpus"),
    (Demand(2, 8), [], {"refusal": "no class"}, False, "ReservationRefused", "no class"),
    (Demand(2, 8), [HELD, ASKED], {"unscheduled": "0/3 nodes"}, False, "WaitingForGPU", "1 requested. 0/3 nodes"),
    (Demand(3, 8), [HELD, ASKED], {"refusal": "exceeded quota"}, False, "WaitingForGPU", "exceeded quota"),
    (Demand(2, 8), [HELD, STARTING], {}, False, "Starting", "1 starting"),
    (
        Demand(1, 8),
        [],
        {"preempted_by": "PreemptionByScheduler"},
        False,
        "ReservationPreempted",
        "PreemptionByScheduler",
    ),
    (Demand(1, 8), [], {}, False, "Requesting", "0 of 1"),
]


@pytest.mark.parametrize(("demand", "reservations", "how", "complete", "reason", "text"), WORDS)
def test_the_condition_of_a_job(
    demand: Demand, reservations: list[Reservation], how: dict[str, str], complete: bool, reason: str, text: str
) -> None:
    said = reservation_condition(demand, reservations, **how)
    assert (said.complete, said.reason) == (complete, reason)
    assert text in said.message


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


def test_requests_that_a_quota_refuses_back_off() -> None:
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


def test_requests_after_preemptions_back_off_until_a_step_was_done() -> None:
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
        assert gpu.reserved_for == expected
    cluster = make_cluster_state(make_job(suspension={"methods": ["freeze", "app-checkpoint"]}), held)
    assert not build_snapshot(cluster, observe(cluster)).jobs[0].suspendable, "freeze keeps its memory there"


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

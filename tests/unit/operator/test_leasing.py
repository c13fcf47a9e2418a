"""Placeholders of GPUs as the operator asks for them, gives them back and tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from operator_builders import NOW, make_job, make_node, make_trial, make_world, moment

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
from podium_operator.observe.cluster_state import World
from podium_operator.observe.observation import observe
from podium_operator.observe.reservation_state import SeenLease, parse_lease
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.reservations.condition import Leased, leased
from podium_operator.reservations.controller import Leasing
from podium_operator.reservations.demand import Wish, leases_of, wishes
from podium_operator.reservations.reservation_pod import LEASE_LABEL, PRODUCTS_ANNOTATION, UNNEEDED_ANNOTATION
from podium_operator.settings import OperatorSettings

POOL, JOB = Pool("lab"), JobKey("lab", "sweep")
QUOTA = ApiError(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: gpus')
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for a pod"}


def seen(
    number: int = 0, *, bound: bool = True, deleting: bool = False, conditions: Any = (), **more: str
) -> SeenLease:
    name = f"podium-reservation-x-{number}"
    meta = {"name": name, "namespace": "lab", "uid": f"u{number}", "labels": {LEASE_LABEL: name}, "annotations": more}
    if deleting:
        meta["deletionTimestamp"] = moment()
    spec = {"nodeName": "node-1"} if bound else {}
    return parse_lease({"metadata": meta, "spec": spec, "status": {"phase": "Running", "conditions": list(conditions)}})


def leasing_node(lease: str | None = None, **how: Any) -> GPUNode:
    node = make_node(shares=4 if lease else 0, **how)
    gpus = [gpu.model_copy(update={"reservation": lease}) for gpu in node.status.gpus]
    return node.model_copy(update={"status": node.status.model_copy(update={"mode": "reservations", "gpus": gpus})})


def test_a_placeholder_is_read_as_it_was_made() -> None:
    one = seen(**{PRODUCTS_ANNOTATION: "H100,H200", UNNEEDED_ANNOTATION: "2025-10-09T08:53:20+00:00"})
    assert (one.pool, one.unneeded_since, one.bound) == (Pool("lab", "", ("H100", "H200")), NOW, True)
    with pytest.raises(ValueError, match="is not its name"):
        parse_lease({"metadata": {"name": "mine", "namespace": "lab", "uid": "u", "labels": {LEASE_LABEL: "yours"}}})


DEMANDS: list[tuple[str, dict[str, Any], int | None]] = [
    ("as many as run at a time", {"parallel": 3, "max_trials": 12}, 3),
    ("auto: every trial that is left", {"parallel": None, "max_trials": 5}, 5),
    ("several a trial", {"parallel": 2, "gpus_per_trial": 4}, 8),
    ("no more than are left", {"parallel": 8, "max_trials": 2}, 2),
    ("suspended: none now", {"suspended": True}, 0),
    ("not accepted", {"accepted": False}, None),
    ("over", {"finished": True}, None),
    ("without a GPU", {"gpus_per_trial": 0}, None),
]


@pytest.mark.parametrize(("job", "gpus"), [case[1:] for case in DEMANDS], ids=[case[0] for case in DEMANDS])
def test_how_many_gpus_a_search_can_use(job: dict[str, Any], gpus: int | None) -> None:
    snapshot = views.make_snapshot(jobs=[views.make_job(**job)])
    together = job.get("gpus_per_trial", 1) > 1
    assert wishes(snapshot, 4) == ({} if gpus is None else {POOL: Wish(Demand(gpus, 4), together=together)})


def test_searches_of_a_namespace_ask_together_and_products_apart() -> None:
    jobs = [views.make_job(name, parallel=2) for name in ("a", "b")]
    other = views.make_job("c", parallel=1, products=("H200", "H100"))
    found = wishes(views.make_snapshot(jobs=[*jobs, other]), 9)
    assert found == {POOL: Wish(Demand(4, 9)), Pool("lab", "", ("H100", "H200")): Wish(Demand(1, 9))}


ONE, OTHER = views.make_gpu("gpu-0", reserved_for="lab"), views.make_gpu("gpu-1", node="node-b", reserved_for="lab")
TAKEN = replace(ONE, reserved_for="")
WORKS, OFF, GATED = TrialPhase.RUNNING, TrialPhase.SUSPENDED, TrialPhase.GATED
PLACED: list[tuple[str, int, list[TrialPhase], list[GpuView], Wish]] = [
    ("both are on one GPU: no other would be of use", 2, [WORKS, OFF], [ONE], Wish(Demand(1, 9))),
    ("and an idle one is one too many", 2, [WORKS, OFF], [ONE, OTHER], Wish(Demand(1, 9))),
    ("one is nowhere yet", 2, [WORKS], [ONE], Wish(Demand(2, 9))),
    ("its GPU is taken: that one, on its node", 1, [OFF], [TAKEN], Wish(Demand(1, 9), ("node-a",))),
    ("an idle one does not help it", 1, [OFF], [TAKEN, OTHER], Wish(Demand(2, 9), ("node-a",))),
    ("another trial can use any", 2, [OFF], [TAKEN, OTHER], Wish(Demand(2, 9))),
    ("it had not begun: any GPU will do", 1, [GATED], [TAKEN], Wish(Demand(1, 9))),
]


def test_a_trial_that_came_alive_waits_for_its_own_gpu_at_its_gate_too() -> None:
    trial = views.make_trial(0, phase=GATED, gpus=["gpu-0"], migration=MigrationPhase.POD_CREATED, migrated=True)
    snapshot = views.make_snapshot(
        jobs=[views.make_job(parallel=1, max_trials=1)], trials=[trial], gpus=[replace(TAKEN, trials=(trial.key,))]
    )
    assert wishes(snapshot, 9) == {POOL: Wish(Demand(1, 9), ("node-a",))}


@pytest.mark.parametrize(("parallel", "phases", "gpus", "wish"), [c[1:] for c in PLACED], ids=[c[0] for c in PLACED])
def test_a_gpu_is_of_use_where_the_trials_are(
    parallel: int, phases: list[TrialPhase], gpus: list[GpuView], wish: Wish
) -> None:
    trials = [views.make_trial(i, phase=phase, gpus=["gpu-0"]) for i, phase in enumerate(phases)]
    there = [replace(gpu, trials=tuple(t.key for t in trials) if gpu.uuid == "gpu-0" else ()) for gpu in gpus]
    job = views.make_job(parallel=parallel, max_trials=parallel)
    assert wishes(views.make_snapshot(jobs=[job], trials=trials, gpus=there), 9) == {POOL: wish}


def test_a_lease_is_held_when_an_agent_names_its_gpu() -> None:
    node = leasing_node("lab/podium-reservation-x-0", trials={"sweep-0": "Running"})
    found = leases_of([seen(0), seen(1), seen(2, bound=False), seen(3, deleting=True)], [node], NOW)
    assert [one.state for one in found] == [
        ReservationState.HELD,
        ReservationState.STARTING,
        ReservationState.ASKED,
        ReservationState.LEAVING,
    ]
    assert [one.loss for one in found] == [1.0, 0.0, 0.0, 0.0]


def test_a_node_that_speaks_of_an_older_lease_of_that_name_holds_nothing() -> None:
    """Names come again: the placeholder of this name is on its way to node-1, and node-2 has not heard of the end."""
    old = leasing_node("lab/podium-reservation-x-0", name="node-2", trials={"sweep-0": "Running"})
    (found,) = leases_of([seen(0)], [old, leasing_node(name="node-1")], NOW)
    assert (found.state, found.in_use) == (ReservationState.STARTING, False)


def lease(state: ReservationState) -> Reservation:
    return Reservation("l", POOL, state, 0.0)


HELD, ASKED, STARTING = (
    lease(state) for state in (ReservationState.HELD, ReservationState.ASKED, ReservationState.STARTING)
)
WORDS: list[tuple[Demand, list[Reservation], dict[str, str], bool, str, str]] = [
    (Demand(1, 8), [HELD], {}, True, "Held", "1 of 1 GPUs"),
    (Demand(0, 8), [], {}, True, "NoDemand", "0 of 0"),
    (Demand(9, 1), [HELD], {"refusal": "old"}, True, "Held", "(9 could be used, 1 are allowed)"),
    (Demand(2, 8), [HELD], {"refusal": "exceeded quota: gpus"}, False, "QuotaExceeded", "exceeded quota: gpus"),
    (Demand(2, 8), [], {"refusal": "no class"}, False, "ReservationRefused", "no class"),
    (Demand(2, 8), [HELD, ASKED], {"unscheduled": "0/3 nodes"}, False, "WaitingForGPU", "1 asked for. 0/3 nodes"),
    (Demand(3, 8), [HELD, ASKED], {"refusal": "exceeded quota"}, False, "WaitingForGPU", "exceeded quota"),
    (Demand(2, 8), [HELD, STARTING], {}, False, "Starting", "1 starting"),
    (Demand(1, 8), [], {"evicted": "PreemptionByScheduler"}, False, "ReservationPreempted", "PreemptionByScheduler"),
    (Demand(1, 8), [], {}, False, "Requesting", "0 of 1"),
]


@pytest.mark.parametrize(("demand", "leases", "how", "complete", "reason", "text"), WORDS)
def test_what_a_job_says(
    demand: Demand, leases: list[Reservation], how: dict[str, str], complete: bool, reason: str, text: str
) -> None:
    said = leased(demand, leases, **how)
    assert (said.complete, said.reason) == (complete, reason)
    assert text in said.message


class Wire:
    """Notes what the operator sends; `refusal`: of every placeholder."""

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


class Desk:
    def __init__(self, **settings: Any) -> None:
        self.wire = Wire()
        given = {"gpu_mode": "reservations", "image": "i", **settings}
        self.leasing = Leasing(cast(Api, self.wire), OperatorSettings(**given), Metrics())
        self.wake: float | None = None
        self.silent: frozenset[str] = frozenset()

    def cycle(self, *objects: Any, leases: tuple[SeenLease, ...] = (), now: float = 0.0) -> Leased | None:
        """The job's word; the calls of this cycle alone are kept."""
        self.wire.calls.clear()
        world: World = replace(make_world(*objects, now=NOW + now), leases=leases, silent=self.silent)
        told, self.wake = asyncio.run(self.leasing.once(world, build_snapshot(world, observe(world))))
        return told.get(JOB)


TWO = make_job(trials={"max": 2, "parallel": 2, "maxSteps": 10}, status={"phase": "Running"})


def test_it_asks_for_what_the_trials_can_use_and_owns_it_by_the_priority_class() -> None:
    desk = Desk(reservation_grace_seconds=5)
    said = desk.cycle(TWO, leasing_node())
    assert desk.wire.calls == ["create 0", "create 1"]
    assert said == Leased(False, "Requesting", "0 of 2 GPUs that the trials can use are held.")
    body = desk.wire.bodies[0]
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-podium-reservation"
    assert body["spec"]["terminationGracePeriodSeconds"] == 40, "a trial's own 30 s and a margin"


def test_a_quota_is_asked_ever_more_seldom() -> None:
    desk = Desk()
    desk.wire.refusal = QUOTA
    said = desk.cycle(TWO, leasing_node())
    assert (desk.wire.calls, said and said.reason) == (["create 0"], "QuotaExceeded")
    assert desk.wake == NOW + 2
    desk.cycle(TWO, now=1.0)
    assert desk.wire.calls == []
    desk.cycle(TWO, now=2.0)
    assert (desk.wire.calls, desk.wake) == (["create 0"], NOW + 6)
    desk.wire.refusal = None
    said = desk.cycle(TWO, now=6.0)
    assert (desk.wire.calls, said and said.reason) == (["create 0", "create 1"], "Requesting")


def test_a_refusal_wakes_nobody_once_no_more_is_wanted() -> None:
    desk = Desk()
    desk.wire.refusal = QUOTA
    desk.cycle(TWO, leasing_node(), leases=(seen(0),))
    assert desk.wake == NOW + 2
    said = desk.cycle(make_job(suspend=True), leasing_node(), now=3.0)
    assert (said and said.reason, desk.wake) == ("NoDemand", None)


def test_a_lease_that_others_take_is_asked_for_again_ever_later_until_a_step_was_made() -> None:
    desk, node = Desk(), leasing_node()
    job = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10}, status={"phase": "Running"})
    taken = seen(0, deleting=True, conditions=[PREEMPTED])
    said = desk.cycle(job, node, make_trial(lastStep=3), leases=(taken,))
    assert desk.wire.calls == ["create ReservationPreempted"]
    assert (said and said.reason, desk.wake) == ("ReservationPreempted", NOW + 2)
    said = desk.cycle(job, node, make_trial(lastStep=3), leases=(taken,), now=2.0)
    assert desk.wire.calls == ["create 0"], "told once"
    assert said
    assert said.reason == "Requesting"
    again = replace(taken, uid="other")
    desk.cycle(job, node, make_trial(lastStep=3), leases=(again,), now=3.0)
    assert desk.wake == NOW + 7, "the second in a row"
    later = replace(taken, uid="third")
    desk.cycle(job, node, make_trial(lastStep=4), leases=(later,), now=10.0)
    assert desk.wake == NOW + 12, "a step was made"


def test_what_is_not_needed_is_marked_then_given_back_and_counts_as_no_loss() -> None:
    desk, node = Desk(), leasing_node("lab/podium-reservation-x-0")
    idle = make_job(suspend=True)
    desk.cycle(idle, node, leases=(seen(0),))
    assert desk.wire.calls == ["mark 0"]
    marked = replace(seen(0), unneeded_since=NOW)
    desk.cycle(idle, node, leases=(marked,), now=LINGER)
    assert desk.wire.calls == ["delete 0"]
    desk.cycle(idle, node, leases=(replace(marked, deleting=True),), now=LINGER + 1)
    assert desk.wire.calls == []
    one = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10})
    desk.cycle(one, node, leases=(marked,), now=LINGER + 2)
    assert desk.wire.calls == ["mark 0"], "needed again"


def test_several_that_are_lost_at_once_are_one_loss() -> None:
    desk, node = Desk(), leasing_node()
    taken = [seen(number, deleting=True, conditions=[PREEMPTED]) for number in range(3)]
    desk.cycle(TWO, node, leases=tuple(taken[:2]))
    assert desk.wire.calls == ["create ReservationPreempted"] * 2
    assert desk.wake == NOW + 2
    desk.cycle(TWO, node, leases=tuple(taken), now=1.0)
    assert desk.wake == NOW + 3, "for one pod with several GPUs"


def test_one_that_came_and_went_between_two_looks_was_taken_too() -> None:
    desk = Desk()
    job = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10}, status={"phase": "Running"})
    desk.cycle(job, leasing_node("lab/podium-reservation-x-0"), leases=(seen(0),))
    said = desk.cycle(job, leasing_node(), now=1.0)
    assert desk.wire.calls == ["create ReservationPreempted"]
    assert (said and said.reason, desk.wake) == ("ReservationPreempted", NOW + 3)
    desk.cycle(job, leasing_node(), now=1.5)
    assert desk.wire.calls == [], "told once"


def test_what_the_operator_before_gave_back_is_no_loss_and_what_others_took_is() -> None:
    job = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10}, status={"phase": "Running"})
    for conditions, calls in (([], ["create 0"]), ([PREEMPTED], ["create ReservationPreempted"])):
        desk = Desk()
        desk.cycle(job, leasing_node(), leases=(seen(0, deleting=True, conditions=conditions),))
        assert desk.wire.calls == calls


@pytest.mark.parametrize(
    ("namespace", "silent", "calls"), [("lab", False, []), ("lab", True, ["delete 0"]), ("other", False, ["delete 0"])]
)
def test_with_the_last_search_it_goes_once_the_pods_on_it_have_ended(
    namespace: str, silent: bool, calls: list[str]
) -> None:
    desk = Desk()
    node = leasing_node("lab/podium-reservation-x-0", trials={"sweep-0": "Running"})
    (gpu,) = node.status.gpus
    there = [gpu.trials[0].model_copy(update={"namespace": namespace})]
    gpus = [gpu.model_copy(update={"trials": there})]
    node = node.model_copy(update={"status": node.status.model_copy(update={"gpus": gpus})})
    desk.silent = frozenset({node.metadata.name}) if silent else frozenset()
    desk.cycle(node, leases=(seen(0),))
    assert desk.wire.calls == calls
    desk.cycle(leasing_node("lab/podium-reservation-x-0"), leases=(seen(0),), now=1.0)
    assert desk.wire.calls == ["delete 0"]


def test_a_job_without_gpus_says_nothing_of_leases() -> None:
    world = make_world(TWO, make_job("plain", gpus={"perTrial": 0}), leasing_node())
    told, _ = asyncio.run(Desk().leasing.once(world, build_snapshot(world, observe(world))))
    assert set(told) == {JOB}


def test_each_namespace_has_its_own_of_the_same_name() -> None:
    desk = Desk()
    mine, theirs = seen(0), replace(seen(0), uid="their", pool=Pool("other"))
    one = make_job(trials={"max": 1, "parallel": 1, "maxSteps": 10})
    for leases in ((mine, theirs), (theirs, mine)):
        desk.cycle(one, leasing_node("lab/podium-reservation-x-0"), leases=leases)
        assert desk.wire.calls == ["delete 0 of other"], "no search is left there"


def test_a_placeholder_that_has_ended_is_taken_away() -> None:
    desk = Desk()
    desk.cycle(TWO, leasing_node(), leases=(replace(seen(0), over=True),))
    assert desk.wire.calls[0] == "delete 0"


def test_where_gpus_are_owned_nothing_is_asked_and_what_is_left_is_given_back() -> None:
    desk = Desk(gpu_mode="dedicated")
    assert desk.cycle(TWO, make_node()) is None
    assert desk.wire.calls == []
    desk.cycle(TWO, make_node(), leases=(seen(0),))
    assert desk.wire.calls == ["delete 0"]


def test_the_planner_sees_whose_a_gpu_is() -> None:
    held, lost, owned = leasing_node("lab/podium-reservation-x-0"), leasing_node(), make_node()
    for node, expected in ((held, "lab"), (lost, ""), (owned, None)):
        world = make_world(TWO, node)
        (gpu,) = build_snapshot(world, observe(world)).gpus
        assert gpu.reserved_for == expected
    world = make_world(make_job(suspension={"methods": ["freeze", "app-checkpoint"]}), held)
    assert not build_snapshot(world, observe(world)).jobs[0].suspendable, "freeze keeps its memory there"


def test_a_namespace_that_asks_for_nothing_any_more_is_forgotten_after_its_pause() -> None:
    desk = Desk()
    desk.cycle(TWO, leasing_node(), leases=(seen(0),))
    desk.cycle(TWO, leasing_node(), leases=(seen(0, deleting=True, conditions=[PREEMPTED]),), now=1.0)
    desk.cycle(now=2.0)
    assert set(desk.leasing._taken) == {POOL}, "who comes back within the pause waits for its end"
    desk.cycle(now=60.0)
    assert desk.leasing._taken == {}

"""Demand for GPU reservations, their states, and the condition of the jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from operator_builders import NOW
from reservation_builders import POOL, reservation_node, seen

from podium_core.domain.gpu_queue import QueueUsage, QueueView
from podium_core.domain.gpu_reservation import ReservationState
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.population import Population
from podium_core.planning.slots.gpu_reservations import Demand, Pool, Reservation
from podium_core.testing import builders as views
from podium_core.testing.builders import change_gpu
from podium_operator.observe.reservation_state import parse_reservation_pod
from podium_operator.reservations.condition import reservation_condition
from podium_operator.reservations.demand import PoolDemand, pool_demands, reservations_from
from podium_operator.reservations.reservation_pod import (
    CHECKPOINT_ANNOTATION,
    PRODUCTS_ANNOTATION,
    RESERVATION_LABEL,
    UNNEEDED_ANNOTATION,
)


def test_a_reservation_pod_is_parsed_as_it_was_created() -> None:
    one = seen(**{PRODUCTS_ANNOTATION: "H100,H200", UNNEEDED_ANNOTATION: "2025-10-09T08:53:20+00:00"})
    assert (one.pool, one.unneeded_since, one.bound) == (Pool("lab", "", ("H100", "H200")), NOW, True)
    assert seen(**{CHECKPOINT_ANNOTATION: "2025-10-09T08:53:20+00:00"}).last_checkpoint == NOW
    assert seen(**{CHECKPOINT_ANNOTATION: "yesterday"}).last_checkpoint is None
    with pytest.raises(ValueError, match="differs from the pod's name"):
        parse_reservation_pod(
            {"metadata": {"name": "own", "namespace": "lab", "uid": "u", "labels": {RESERVATION_LABEL: "yours"}}}
        )


DEMANDS: list[tuple[str, dict[str, Any], int | None]] = [
    ("as many as run at a time", {"parallel": 3, "max_trials": 12}, 3),
    ("auto: every trial that is left", {"parallel": None, "max_trials": 5}, 5),
    ("a population: its founders", {"parallel": None, "max_trials": 12, "population": Population(3, 2.0, 0.5)}, 3),
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


@pytest.mark.parametrize(
    ("workers", "gpus", "together", "apart"),
    [(1, 1, False, False), (1, 4, True, False), (2, 2, False, True), (2, 4, True, False)],
)
def test_workers_of_one_gpu_each_need_gpus_of_different_nodes(
    workers: int, gpus: int, together: bool, apart: bool
) -> None:
    """The GPUs of one worker must be on one node, which matters more."""
    job = views.make_job(parallel=1, gpus_per_trial=gpus, workers=workers)
    (found,) = pool_demands(views.make_snapshot(jobs=[job]), 9).values()
    assert (found.demand.gpus, found.together, found.apart) == (gpus, together, apart)


def test_demand_is_summed_by_namespace_and_separate_by_product() -> None:
    jobs = [views.make_job(name, parallel=2) for name in ("a", "b")]
    other = views.make_job("c", parallel=1, products=("H200", "H100"))
    found = pool_demands(views.make_snapshot(jobs=[*jobs, other]), 9)
    assert found == {POOL: PoolDemand(Demand(4, 9)), Pool("lab", "", ("H100", "H200")): PoolDemand(Demand(1, 9))}


ONE, OTHER = views.make_gpu("gpu-0", reserved_for="lab"), views.make_gpu("gpu-1", node="node-b", reserved_for="lab")
TAKEN = change_gpu(ONE, reserved_for="")
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


def test_each_queue_has_a_pool() -> None:
    jobs = [views.make_job(name, max_trials=2, parallel=2) for name in ("a", "b")]
    own = replace(jobs[1], gpus=replace(jobs[1].gpus, queue="research"))
    found = pool_demands(views.make_snapshot(jobs=[jobs[0], own]), 9, "default")
    assert found.keys() == {Pool("lab", "default"), Pool("lab", "research")}


@pytest.mark.parametrize(
    ("queue", "gpus"),
    [
        (QueueView("team"), 2),
        (QueueView("team", budget=3600.0, usage=QueueUsage(total=3600.0)), 1),
        (QueueView("team", namespaces=frozenset({"shop"})), 1),
    ],
    ids=["open", "budget spent", "closed to the namespace"],
)
def test_a_job_that_its_queue_gives_nothing_keeps_its_gpus_and_needs_no_further_one(
    queue: QueueView, gpus: int
) -> None:
    job = views.make_job(parallel=2, max_trials=2, queue="team")
    trials = [views.make_trial(0, phase=OFF, gpus=["gpu-0"]), views.make_trial(1)]
    snapshot = views.make_snapshot(
        jobs=[job], trials=trials, gpus=[replace(ONE, trials=(trials[0].key,))], queues=[queue]
    )
    assert pool_demands(snapshot, 9) == {Pool("lab", "team"): PoolDemand(Demand(gpus, 9))}


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
    (Demand(2, 8), [HELD, ASKED], {"waits_for": "a/b"}, False, "ReservationYielded", "until a/b has a node"),
    (Demand(1, 8), [HELD], {"waits_for": "a/b"}, True, "Held", "1 of 1 GPUs"),
    (Demand(1, 8), [], {}, False, "Requesting", "0 of 1"),
]


@pytest.mark.parametrize(("demand", "reservations", "how", "complete", "reason", "text"), WORDS)
def test_the_condition_of_a_job(
    demand: Demand, reservations: list[Reservation], how: dict[str, str], complete: bool, reason: str, text: str
) -> None:
    said = reservation_condition(demand, reservations, **how)
    assert (said.complete, said.reason) == (complete, reason)
    assert text in said.message

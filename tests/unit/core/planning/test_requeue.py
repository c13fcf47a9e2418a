"""Which trials are requeued: on drained nodes, on unhealthy GPUs, and on GPUs that they must give up unsuspended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import FAST, RUN, SLOW, P, created, of, orders, sound, why

from podium_core.domain.actions import Plan, Requeue
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import FINAL, TrialPhase
from podium_core.domain.snapshot import Costs, Snapshot, TrialView
from podium_core.testing.builders import (
    change_gpu,
    change_job,
    change_trial,
    make_gpu,
    make_job,
    make_snapshot,
    make_trial,
)
from podium_core.testing.toy_cluster import ToyCluster


def requeues_of(made: Plan) -> list[tuple[str, str]]:
    return [(a.trial.name, a.reason) for a in of(made, Requeue) if isinstance(a, Requeue)]


def on_node(phase: TrialPhase = RUN, *, gpu: dict[str, Any] | None = None, job: Any = None, **trial: Any) -> Snapshot:
    """One trial that holds its GPU on node-a; node-b has one that is free."""
    there = make_trial(0, gpus=["gpu-0"], node="node-a", phase=phase, values=SLOW, **trial)
    mine = make_gpu(holder=there.key, holder_since=900.0, trials=[there.key], run_queue=[there.key], **(gpu or {}))
    return make_snapshot(jobs=[job or SAVES], trials=[there], gpus=[mine, make_gpu("gpu-1", node="node-b")])


SAVES = make_job(max_trials=1, checkpointable=True)
BOUND = make_job(max_trials=1, checkpointable=True, checkpoint_scope="node")
FROZEN_ONLY = make_job(max_trials=1)
READS_ONLY = make_job(max_trials=1, checkpoint_scope="anywhere")
TARGET_DRAINING, ILL = {"draining": True}, {"health": "Unhealthy"}
TAKEN = {"exclusive_pod": "prod/urgent"}
LOST = {"reserved_for": "", "slots": 0}
NEITHER = make_job(max_trials=1, suspendable=False)
NEVER_FROZEN = make_job(max_trials=1, checkpointable=True, suspendable=False)

CAME: dict[str, Any] = {"migration": MigrationPhase.POD_CREATED, "migrated": True}

CASES: list[tuple[str, Snapshot, list[tuple[str, str]]]] = [
    ("nothing is the matter", on_node(), []),
    ("drained", on_node(gpu=TARGET_DRAINING), [("job-0", "NodeDraining")]),
    ("drained, suspended", on_node(P.SUSPENDED, gpu=TARGET_DRAINING), [("job-0", "NodeDraining")]),
    ("drained, cannot checkpoint", on_node(gpu=TARGET_DRAINING, job=FROZEN_ONLY), []),
    ("drained, does not checkpoint on request", on_node(gpu=TARGET_DRAINING, job=READS_ONLY), []),
    ("drained, checkpoints on this node", on_node(gpu=TARGET_DRAINING, job=BOUND), []),
    ("drained, at its gate", on_node(P.GATED, gpu=TARGET_DRAINING, job=FROZEN_ONLY), [("job-0", "NodeDraining")]),
    (
        "drained, at its gate, has a checkpoint here",
        on_node(P.GATED, gpu=TARGET_DRAINING, job=BOUND, checkpoint_step=3.0),
        [],
    ),
    (
        "drained, at its gate, has no checkpoint",
        on_node(P.GATED, gpu=TARGET_DRAINING, job=BOUND),
        [("job-0", "NodeDraining")],
    ),
    ("drained, at its gate with all that it did", on_node(P.GATED, gpu=TARGET_DRAINING, job=FROZEN_ONLY, **CAME), []),
    ("drained, came alive, checkpoints", on_node(P.GATED, gpu=TARGET_DRAINING, job=BOUND, **CAME), []),
    ("unhealthy, at its gate with all that it did", on_node(P.GATED, gpu=ILL, job=FROZEN_ONLY, **CAME), []),
    ("lost, at its gate with all that it did", on_node(P.GATED, gpu=LOST, job=FROZEN_ONLY, **CAME), []),
    ("drained, is terminating", on_node(gpu=TARGET_DRAINING, terminating=True), []),
    ("ill", on_node(gpu=ILL), [("job-0", "GPUUnhealthy")]),
    ("unhealthy, cannot checkpoint", on_node(gpu=ILL, job=FROZEN_ONLY), []),
    ("unhealthy, checkpoints on this node", on_node(gpu=ILL, job=BOUND), []),
    ("unhealthy, began a moment ago", on_node(gpu=ILL, pod_since=975.0), []),
    ("unhealthy, has gone often", on_node(gpu=ILL, pod_since=900.0, attempt=2), []),
    ("unknown", on_node(gpu={"health": "Unknown"}), []),
    ("an exclusive pod comes, is frozen", on_node(gpu=TAKEN), []),
    ("an exclusive pod comes, cannot be suspended", on_node(gpu=TAKEN, job=NEVER_FROZEN), [("job-0", "Preempted")]),
    (
        "an exclusive pod is being admitted",
        on_node(gpu={"exclusive_pod": ""}, job=NEVER_FROZEN),
        [("job-0", "Preempted")],
    ),
    ("an exclusive pod comes, can neither", on_node(gpu=TAKEN, job=make_job(max_trials=1, suspendable=False)), []),
    ("reserved to its namespace", on_node(gpu={"reserved_for": "lab"}), []),
    ("the reservation has ended, is suspended in slot", on_node(gpu=LOST), []),
    ("the reservation has ended, is suspended", on_node(P.SUSPENDED, gpu=LOST, job=SAVES), []),
    (
        "the reservation has ended, cannot be suspended",
        on_node(gpu=LOST, job=NEVER_FROZEN),
        [("job-0", "ReservationEnded")],
    ),
    ("the reservation has ended, can neither", on_node(gpu=LOST, job=NEITHER), [("job-0", "ReservationEnded")]),
    ("the reservation has ended, at its gate", on_node(P.GATED, gpu=LOST), [("job-0", "ReservationEnded")]),
    ("the reservation has ended, is terminating", on_node(gpu=LOST, job=NEVER_FROZEN, terminating=True), []),
    ("an exclusive pod comes, checkpoints already", on_node(gpu=TAKEN, job=NEVER_FROZEN, terminating=True), []),
]


@pytest.mark.parametrize(("snapshot", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_which_trials_are_requeued(snapshot: Snapshot, expected: list[tuple[str, str]]) -> None:
    assert requeues_of(sound(snapshot)) == expected


def test_a_trial_leaves_an_unhealthy_gpu_only_for_one_that_fits() -> None:
    snapshot = on_node(gpu=ILL)
    assert requeues_of(sound(replace(snapshot, gpus=snapshot.gpus[:1]))) == []
    second = make_gpu("gpu-2")
    bound = replace(snapshot, jobs=(BOUND,), gpus=(snapshot.gpus[0], second))
    assert requeues_of(sound(bound)) == [("job-0", "GPUUnhealthy")], "another GPU of the same node finds the save"


def test_the_plan_is_repeated_after_the_minimum_stay_on_an_unhealthy_gpu() -> None:
    assert sound(on_node(gpu=ILL, pod_since=990.0)).wake_at == 1020.0


def test_the_trials_of_a_gpu_are_requeued_one_by_one_and_the_holder_first() -> None:
    """Each needs the GPU to save within its grace period; those at their gates need nothing."""
    trials = [make_trial(i, gpus=["gpu-0"], node="node-a", phase=RUN, values=SLOW) for i in range(2)]
    gated = make_trial(2, gpus=["gpu-0"], node="node-a", phase=P.GATED)
    keys = [t.key for t in (*trials, gated)]
    gpu = make_gpu(holder=trials[1].key, holder_since=0.0, trials=keys, run_queue=keys[::-1], draining=True)
    snapshot = make_snapshot(jobs=[make_job(checkpointable=True)], trials=[*trials, gated], gpus=[gpu])
    assert sorted(requeues_of(sound(snapshot))) == [("job-1", "NodeDraining"), ("job-2", "NodeDraining")]
    going = replace(
        snapshot, trials=(trials[0], change_trial(trials[1], terminating=True), change_trial(gated, terminating=True))
    )
    assert requeues_of(sound(going)) == []
    gone = replace(snapshot, trials=(trials[0],))
    assert requeues_of(sound(gone)) == [("job-0", "NodeDraining")]


def test_no_pod_is_created_for_a_draining_node() -> None:
    snapshot = make_snapshot(jobs=[make_job()], trials=[make_trial(0)], gpus=[make_gpu(draining=True)])
    made = sound(snapshot)
    assert created(made) == []
    assert why(made, "job-0") == "NoFittingGPU"


@pytest.mark.parametrize(
    ("reserved_for", "pods", "reason"),
    [("lab", 1, None), ("other", 0, "NoReservation"), ("", 0, "NoReservation"), (None, 1, None)],
)
def test_pods_are_created_for_gpus_reserved_for_their_namespace(
    reserved_for: str | None, pods: int, reason: str | None
) -> None:
    gpu = make_gpu(reserved_for=reserved_for)
    made = sound(make_snapshot(jobs=[make_job(max_trials=1)], trials=[make_trial(0)], gpus=[gpu]))
    assert len(created(made)) == pods
    assert reason is None or why(made, "job-0") == reason


def test_no_run_queue_names_a_trial_on_a_gpu_whose_reservation_has_ended() -> None:
    made = sound(on_node(P.SUSPENDED, gpu=LOST))
    assert orders(made) == {"gpu-0": []}
    assert why(made, "job-0") == "ReservationEnded"


# a GPU that is wanted, of a trial that cannot be suspended


def wanted(since: float, *, job: dict[str, Any] | None = None, **costs: float) -> Snapshot:
    """A slow trial has held the GPU since `since`; a fast one of the same job waits there."""
    slow, fast = (
        make_trial(i, gpus=["gpu-0"], phase=RUN, values=v, gpu_seconds=3.0) for i, v in enumerate((SLOW, FAST))
    )
    gpu = make_gpu(holder=slow.key, holder_since=since, trials=[slow.key, fast.key], run_queue=[slow.key, fast.key])
    how = {"suspendable": False, "checkpointable": True, **(job or {})}
    return make_snapshot(
        jobs=[make_job(parallel=2, max_trials=2, **how)], trials=[slow, fast], gpus=[gpu], costs=Costs(**costs)
    )


def test_the_holder_checkpoints_and_gives_up_the_gpu_after_its_time_slice() -> None:
    early = sound(wanted(since=900.0))
    assert (requeues_of(early), orders(early)) == ([], {})
    assert why(early, "job-1") == "MinTimeSlice"
    assert early.wake_at == 1100.0, "ten requeues of 20 s each"
    late = sound(wanted(since=700.0))
    assert orders(late) == {"gpu-0": ["job-1", "job-0"]}
    assert requeues_of(late) == [("job-0", "Preempted")]


def test_the_measured_cost_of_a_requeue_decides() -> None:
    assert requeues_of(sound(wanted(since=900.0, requeue=5.0))) == [("job-0", "Preempted")]
    assert requeues_of(sound(wanted(since=700.0, requeue=60.0))) == []


def test_a_requeue_is_repeated_if_it_was_not_carried_out() -> None:
    snapshot = wanted(since=700.0)
    slow, fast = snapshot.trials
    ordered = change_gpu(snapshot.gpus[0], run_queue=(fast.key, slow.key))
    assert requeues_of(sound(replace(snapshot, gpus=(ordered,)))) == [("job-0", "Preempted")]


def test_a_trial_admitted_before_the_run_queue_keeps_its_time_slice() -> None:
    snapshot = wanted(since=900.0)
    slow, fast = snapshot.trials
    ordered = change_gpu(snapshot.gpus[0], run_queue=(fast.key, slow.key))
    made = sound(replace(snapshot, gpus=(ordered,)))
    assert (requeues_of(made), orders(made)) == ([], {"gpu-0": ["job-0", "job-1"]})


def test_a_suspendable_trial_is_not_requeued_and_one_without_any_method_keeps_its_gpu() -> None:
    assert requeues_of(sound(wanted(since=700.0, job={"suspendable": True}))) == []
    neither = sound(wanted(since=700.0, job={"checkpointable": False}))
    assert (requeues_of(neither), orders(neither)) == ([], {})
    assert why(neither, "job-1") == "HolderNotPreemptible"


@pytest.mark.parametrize("suspended", ["trial", "job"])
def test_suspend_requeues_a_trial_that_cannot_be_suspended(suspended: str) -> None:
    snapshot = on_node(
        job=change_job(SAVES, suspendable=False, suspended=suspended == "job"), suspend=suspended == "trial"
    )
    assert requeues_of(sound(snapshot)) == [("job-0", "SuspendedByUser")]


# what must hold in the long run


def world(seed: int, *, freezes: bool) -> ToyCluster:
    slopes = [((seed * 31 + n * 7919) % 97 + 1) / 50 for n in range(16)]
    job = make_job(max_trials=8, parallel=6, max_steps=20, suspendable=freezes, checkpointable=True)
    gpus = {u: make_gpu(u, node=n, slots=3) for u, n in (("g0", "a"), ("g1", "a"), ("g2", "b"))}
    costs = Costs(0.05, 0.05, 1.0)
    return ToyCluster({job.key: job}, gpus, lambda n, s: 1 - 1 / (1 + s * slopes[n]), steps=20, costs=costs)


@given(seed=st.integers(0, 10**6), at=st.integers(1, 20), freezes=st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_drained_node_becomes_and_remains_empty(seed: int, at: int, freezes: bool) -> None:
    there = world(seed, freezes=freezes)
    for cycle in range(2000):
        if there.all_over():
            break
        if cycle == at:
            there.gpus = {u: change_gpu(g, draining=g.node == "a") for u, g in there.gpus.items()}
        there.decide()
        assert there.broken == []
        there.tick(0.5)
        if cycle > at + 12:
            assert not [t for t in there.trials.values() if t.node == "a" and t.phase not in FINAL]
    assert there.all_over()
    drained = [key for _, key, reason in there.requeues if reason == "NodeDraining"]
    assert len(drained) == len(set(drained)), "no trial is requeued twice"


@given(seed=st.integers(0, 10**6), period=st.integers(1, 30))
@settings(max_examples=8, deadline=None)
def test_changing_health_does_not_move_trials_in_circles(seed: int, period: int) -> None:
    there = world(seed, freezes=True)
    for cycle in range(4000):
        if there.all_over():
            break
        sick = {"g0": cycle // period % 2 == 0, "g2": cycle // period % 2 == 1, "g1": False}
        there.gpus = {u: replace(g, health="Unhealthy" if sick[u] else "Healthy") for u, g in there.gpus.items()}
        there.decide()
        there.tick(0.5)
    assert there.all_over()
    assert _rests(there) == []


@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_trials_that_cannot_be_suspended_are_not_requeued_repeatedly(seed: int) -> None:
    """Each gave its GPU away after a time slice of at least ten times what that costs."""
    there = world(seed, freezes=False)
    for _ in range(4000):
        if there.all_over():
            break
        there.decide()
        assert there.broken == []
        there.tick(0.25)
    assert there.all_over()
    spent = sum(t.usage.gpu_seconds for t in there.trials.values())
    assert len(there.requeues) * 10.0 <= spent + 10.0 * len(there.gpus)


def _rests(there: ToyCluster) -> list[str]:
    """Trials that left an unhealthy GPU sooner than 30 s, 60 s, 120 s, ... after the last time."""
    last: dict[str, tuple[float, int]] = {}
    found = []
    for when, key, _ in there.requeues:
        before, times = last.get(key.name, (-1e9, 0))
        if times and when - before < 30.0 * 2.0**times:
            found.append(f"{key.name}: {when - before:g} s after requeue {times}")
        last[key.name] = (when, times + 1)
    return found


def test_a_terminating_trial_is_in_no_run_queue_and_gets_no_second_pod() -> None:
    trials: list[TrialView] = [
        make_trial(0, gpus=["gpu-0"], phase=RUN, values=FAST, terminating=True),
        make_trial(1, gpus=["gpu-0"], phase=P.SUSPENDED, values=SLOW),
    ]
    gpu = make_gpu(holder=trials[0].key, holder_since=999.0, run_queue=[trials[0].key, trials[1].key])
    made = sound(make_snapshot(jobs=[make_job(max_trials=2)], trials=trials, gpus=[gpu]))
    assert orders(made) == {"gpu-0": ["job-1"]}
    assert created(made) == []
    assert why(made, "job-0") == "PodTerminating"

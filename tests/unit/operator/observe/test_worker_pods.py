"""The pods of a trial of several workers count as one pod: phases, ends, slots, and which end counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from operator_builders import NOW, ended, make_cluster_state, make_job, make_node, make_pod, make_trial

from podium_core.domain.phase import TrialPhase
from podium_operator.observe.cluster_state import ClusterState, trial_key
from podium_operator.observe.observation import Observation, observe
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.snapshot import build_snapshot
from podium_operator.observe.worker_pods import CREATION_SECONDS, WORKER_ENDED, combined_state, with_deleted

RUNS: dict[str, Any] = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
GATED: dict[str, Any] = {"gate": {"running": {}}}
CRASHED: dict[str, Any] = {"phase": "Failed", "gate": ended(0), "main": ended(1)}
DONE: dict[str, Any] = {"phase": "Succeeded", "gate": ended(0), "main": ended(0)}
EVICTED: dict[str, Any] = {**CRASHED, "reason": "Evicted", "message": "The node was low on resource: memory."}
READ = {"podUid": "uid-sweep-0-0", "complete": True}  # the log of worker 0, to its end
LATER = NOW + 2 * CREATION_SECONDS


def worker(rank: int, **how: Any) -> PodState:
    """Return the pod of one of two workers, each on a node of its own."""
    return make_pod(rank=rank, workers=2, **{"node": f"node-{rank + 1}"} | how)


def consequence(pod: PodState) -> PodState:
    """Return the pod as it is after the operator deleted it because of the other worker."""
    return replace(pod, facts=replace(pod.facts, deleting=True, requeue=WORKER_ENDED))


def nodes(*states: str) -> list[Any]:
    """Return the GPUNodes of the workers, with the agents' states."""
    return [
        make_node(f"node-{rank + 1}", uuid=f"GPU-{rank + 1}", trials={"sweep-0": state}, rank=rank)
        for rank, state in enumerate(states)
    ]


def seen(*pods: PodState, stored: str = "Running", deleted: tuple[PodState, ...] = (), **how: Any) -> Observation:
    job = make_job(trials={"max": 1, "maxSteps": 10, "retries": 1, "workers": 2}, gpus={"perTrial": 2})
    trial = make_trial(**{"phase": stored, "pod": "sweep-0-0"} | how.pop("status", {}))
    there = how.pop("nodes", nodes("Running", "Running"))
    cluster = make_cluster_state(job, trial, *there, *pods, now=how.pop("now", LATER), **how)
    memory = None
    for pod in deleted:
        memory = with_deleted(memory, pod)
    if memory is not None:
        cluster = replace(cluster, deleted_pods={trial_key(trial): memory})
    return observe(cluster)[trial_key(trial)]


@pytest.mark.parametrize(
    ("first", "second", "phase"),
    [
        (GATED, {"node": None}, TrialPhase.PENDING),
        (GATED, {}, TrialPhase.PENDING),
        (GATED, GATED, TrialPhase.GATED),
        (RUNS, GATED, TrialPhase.GATED),
        (RUNS, RUNS, TrialPhase.RUNNING),
    ],
)
def test_the_worker_that_is_behind_decides_the_phase(
    first: dict[str, Any], second: dict[str, Any], phase: TrialPhase
) -> None:
    assert seen(worker(0, **first), worker(1, **second), stored="Pending", nodes=[]).phase is phase
    assert seen(worker(0, **second), worker(1, **first), stored="Pending", nodes=[]).phase is phase


def test_a_trial_has_gpus_only_if_every_worker_has_a_slot() -> None:
    both = seen(worker(0, **RUNS), worker(1, **RUNS))
    assert (both.gpus, both.node) == (("GPU-1", "GPU-2"), "node-1")
    assert [(one.rank, one.name, one.node, one.gpus) for one in both.workers] == [
        (0, "sweep-0-0", "node-1", ("GPU-1",)),
        (1, "sweep-0-0-w1", "node-2", ("GPU-2",)),
    ]
    half = seen(worker(0, **GATED), worker(1, node=None), stored="Pending", nodes=nodes("Gated"))
    assert half.gpus == ()
    assert [one.gpus for one in half.workers] == [("GPU-1",), ()]


def test_the_planner_gets_the_workers_and_their_slots() -> None:
    job = make_job(trials={"max": 1, "maxSteps": 10, "workers": 2}, gpus={"perTrial": 2})
    trial = make_trial(phase="Gated", pod="sweep-0-0")
    cluster = make_cluster_state(
        job, trial, worker(0, **GATED), worker(1, created=-5.0), *nodes("Gated"), now=NOW + CREATION_SECONDS
    )
    (view,) = build_snapshot(cluster, observe(cluster)).trials
    assert view.pod is not None
    assert (view.pod.name, view.pod.node, view.pod.gpus, view.pod.since) == ("sweep-0-0", "node-1", (), NOW - 5.0)
    assert [(one.rank, one.gpus) for one in view.pod.workers] == [(0, ("GPU-1",)), (1, ())]


@pytest.mark.parametrize(
    ("states", "current", "state"),
    [
        (("Running", "Running"), TrialPhase.RUNNING, "Running"),
        (("Running", "Starting"), TrialPhase.GATED, "Starting"),
        (("Suspending", "Running"), TrialPhase.RUNNING, "Suspending"),
        (("Suspended", "Running"), TrialPhase.RUNNING, "Suspending"),
        (("Suspended", "Suspending"), TrialPhase.SUSPENDING, "Suspending"),
        (("Suspended", "Suspended"), TrialPhase.SUSPENDING, "Suspended"),
        (("Resuming", "Suspended"), TrialPhase.SUSPENDED, "Resuming"),
        (("Suspended", "Running"), TrialPhase.SUSPENDED, "Resuming"),
        (("Running", None), TrialPhase.RUNNING, None),
        (("Gated", "Running"), TrialPhase.GATED, None),
    ],
)
def test_between_two_switches_the_trial_is_on_its_way(
    states: tuple[str | None, ...], current: TrialPhase, state: str | None
) -> None:
    assert combined_state(states, current) == state
    assert combined_state(states[::-1], current) == state


def test_pods_that_are_being_created_are_no_attempt_yet() -> None:
    only = worker(1)
    early = seen(only, stored="Pending", nodes=[], now=NOW + 1.0, status={"pod": None})
    assert (early.phase, early.pod) == (TrialPhase.PENDING, None)
    late = seen(only, stored="Pending", nodes=[], status={"pod": None})
    assert late.pod is not None
    assert late.pod.broken


@pytest.mark.parametrize("crashed", [0, 1])
def test_a_failure_of_any_worker_is_one_failure_of_the_trial(crashed: int) -> None:
    """It counts when all workers have ended: the others still checkpoint."""
    failed, other = worker(crashed, **CRASHED), worker(1 - crashed, **RUNS)
    running = seen(failed, other)
    assert running.phase is TrialPhase.RUNNING
    assert running.pod is not None
    assert running.pod.broken
    terminating = seen(failed, consequence(other))
    assert (terminating.phase, terminating.delays.terminating, terminating.reason) == (
        TrialPhase.RUNNING,
        True,
        WORKER_ENDED,
    )
    for after in (
        seen(failed, consequence(worker(1 - crashed, **CRASHED))),
        seen(failed, deleted=(consequence(other),)),
    ):
        assert (after.phase, after.reason, after.attempts.failures) == (TrialPhase.REQUEUED, "ProcessFailed", 1)
        assert after.message.startswith(f"Worker {crashed}: ")
        assert after.pod is None


def test_failures_beyond_the_retries_fail_the_trial() -> None:
    after = seen(worker(0, **CRASHED), worker(1, **CRASHED), status={"failures": 1})
    assert (after.phase, after.attempts.failures) == (TrialPhase.FAILED, 2)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_worker_is_no_failure_although_the_other_one_crashed(lost: int) -> None:
    gone, crashed = worker(lost, **RUNS), worker(1 - lost, **CRASHED)
    for after in (
        seen(crashed, deleted=(gone,)),
        seen(crashed),  # a new operator does not know how the pod ended
        seen(crashed, worker(lost, **EVICTED)),
        seen(consequence(crashed), deleted=(gone,)),
    ):
        assert (after.phase, after.attempts.failures) == (TrialPhase.REQUEUED, 0)
        assert after.reason in ("PodDeleted", "PodDisrupted")
        assert after.attempts.disruptions is not None
    assert seen(worker(1 - lost, **RUNS), deleted=(gone,)).phase is TrialPhase.RUNNING


def test_all_pods_gone_means_requeued() -> None:
    after = seen(deleted=(worker(1, **RUNS), consequence(worker(0, **RUNS))), nodes=[])
    assert (after.phase, after.reason) == (TrialPhase.REQUEUED, "PodDeleted")


def test_a_requeue_by_podium_keeps_its_reason() -> None:
    pods = [replace(one, facts=replace(one.facts, deleting=True, requeue="WorkerStuck")) for one in both(**RUNS)]
    ends = [replace(one, facts=replace(one.facts, deleting=True, requeue="WorkerStuck")) for one in both(**DONE)]
    assert seen(*pods).reason == "WorkerStuck"
    after = seen(*ends, status={"reason": "WorkerStuck", "logCursor": READ})
    assert (after.phase, after.reason) == (TrialPhase.REQUEUED, "WorkerStuck")


def both(**how: Any) -> tuple[PodState, PodState]:
    return worker(0, **how), worker(1, **how)


def test_worker_0_decides_the_success() -> None:
    complete = {"lastStep": 10, "logCursor": READ}
    assert seen(worker(0, **RUNS), worker(1, **DONE)).phase is TrialPhase.RUNNING
    assert seen(worker(0, **DONE), worker(1, **RUNS), status=complete).phase is TrialPhase.SUCCEEDED
    assert seen(worker(0, **DONE), worker(1, **CRASHED), status=complete).phase is TrialPhase.SUCCEEDED
    assert seen(worker(0, **RUNS), worker(1, **DONE)).gpus == ("GPU-1", "GPU-2")


def test_workers_that_checkpointed_because_one_is_deleted_have_not_succeeded() -> None:
    """Every process ended with code 0, worker 0 before the operator saw the deletion of the other one."""
    deleted = replace(worker(1, **DONE), facts=replace(worker(1, **DONE).facts, deleting=True))
    early = {"lastStep": 3, "logCursor": READ}
    assert seen(worker(0, **DONE), deleted, status=early).phase is TrialPhase.REQUEUED
    assert seen(worker(0, **DONE), status=early, deleted=(worker(1, **RUNS),)).phase is TrialPhase.REQUEUED
    assert seen(worker(0, **DONE), deleted, status=early | {"lastStep": 10}).phase is TrialPhase.SUCCEEDED


def test_a_silent_agent_of_any_worker_makes_the_reports_old() -> None:
    observation = seen(*both(**RUNS), stored="Suspended", unresponsive=("node-2",))
    assert (observation.phase, observation.reason) == (TrialPhase.SUSPENDED, "AgentUnresponsive")


def test_a_worker_without_a_node_for_a_minute_is_stuck() -> None:
    waits = worker(1, node=None, conditions=[{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}])
    observation = seen(worker(0, **GATED), waits, stored="Pending", nodes=nodes("Gated"), now=NOW + 61.0)
    assert (observation.delays.stuck, observation.reason) == (True, "Unscheduled")
    assert observation.message == "Worker 1: 0/2 nodes"


def test_an_unreported_end_of_several_workers_is_counted_once() -> None:
    """The next attempt exists, but the status is still that of the attempt before."""
    trial = make_trial(phase="Running", pod="sweep-0-0")
    job = make_job(trials={"max": 1, "maxSteps": 10, "workers": 2}, gpus={"perTrial": 2})
    old = (worker(0, **CRASHED), consequence(worker(1, **CRASHED)))
    new = [make_pod(rank=rank, workers=2, attempt=1) for rank in (0, 1)]
    cluster: ClusterState = make_cluster_state(job, trial, *old, *new, now=LATER)
    observation = observe(cluster)[trial_key(trial)]
    assert (observation.attempts.number, observation.attempts.failures) == (1, 1)
    assert [end.reason for end in observation.attempts.unreported_ends] == ["ProcessFailed"]

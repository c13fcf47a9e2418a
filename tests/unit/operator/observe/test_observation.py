"""Phase of each trial, derived from its stored status, its pod and its agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from operator_builders import (
    NOW,
    ended,
    make_cluster_state,
    make_job,
    make_node,
    make_pod,
    make_trial,
    moment,
    pod_payload,
)

from podium_core.domain.observe import retry_delay
from podium_core.domain.phase import TrialPhase
from podium_operator.observe.cluster_state import trial_key
from podium_operator.observe.observation import STUCK_SECONDS, Observation, observe
from podium_operator.observe.pod_state import parse_pod

RUNNING = {"phase": "Running", "gate": ended(0), "main": {"running": {}}}
FAILED = {"phase": "Failed", "gate": ended(0), "main": ended(1, after=-1)}
PHASE = TrialPhase


def observe_one(
    status: dict[str, Any], pod: dict[str, Any] | None, agent: str | None = None, **cluster: Any
) -> Observation:
    trial = make_trial(**status)
    objects: list[Any] = [make_job(), trial, make_node(trials={"sweep-0": agent} if agent else {})]
    if pod is not None:
        objects.append(make_pod(**pod))
    return observe(make_cluster_state(*objects, **cluster))[trial_key(trial)]


STATES: list[tuple[str, dict[str, Any], dict[str, Any] | None, str | None, TrialPhase]] = [
    ("new", {}, None, None, PHASE.PENDING),
    ("pod waits for a node", {}, {"node": None}, None, PHASE.PENDING),
    ("at the gate", {"pod": "sweep-0-0"}, {"gate": {"running": {}}}, "Gated", PHASE.GATED),
    ("runs", {"phase": "Gated", "pod": "sweep-0-0"}, RUNNING, "Running", PHASE.RUNNING),
    ("is suspended", {"phase": "Running", "pod": "sweep-0-0"}, RUNNING, "Suspended", PHASE.SUSPENDED),
    ("is resumed", {"phase": "Suspended", "pod": "sweep-0-0"}, RUNNING, "Resuming", PHASE.RESUMING),
    ("pod vanished", {"phase": "Running", "pod": "sweep-0-0"}, None, None, PHASE.REQUEUED),
    ("pod vanished at the gate", {"phase": "Gated", "pod": "sweep-0-0"}, None, None, PHASE.REQUEUED),
    ("succeeded", {"phase": "Running", "pod": "sweep-0-0"}, {"phase": "Succeeded", "main": ended(0, after=-60)}, None,
     PHASE.SUCCEEDED),
    ("stays succeeded", {"phase": "Succeeded", "pod": "sweep-0-0"}, None, None, PHASE.SUCCEEDED),
    ("failed, will be retried", {"phase": "Running", "pod": "sweep-0-0"}, FAILED, None, PHASE.REQUEUED),
    ("failed for good", {"phase": "Running", "pod": "sweep-0-0", "failures": 2}, FAILED, None, PHASE.FAILED),
]  # fmt: skip


@pytest.mark.parametrize(("status", "pod", "agent", "phase"), [s[1:] for s in STATES], ids=[s[0] for s in STATES])
def test_derived_phase(
    status: dict[str, Any], pod: dict[str, Any] | None, agent: str | None, phase: TrialPhase
) -> None:
    assert observe_one(status, pod, agent).phase is phase


def test_an_unresponsive_agent_is_not_trusted_but_nothing_is_forgotten() -> None:
    status = {"phase": "Suspended", "pod": "sweep-0-0"}
    assert observe_one(status, RUNNING, "Running").phase is PHASE.RUNNING
    assert observe_one(status, RUNNING, "Running", unresponsive=["node-1"]).phase is PHASE.SUSPENDED


def test_a_failure_is_counted_once() -> None:
    first = observe_one({"phase": "Running", "pod": "sweep-0-0"}, FAILED)
    assert (first.attempts.failures, first.pod) == (1, None)
    again = observe_one({"phase": "Requeued", "attempt": 0, "failures": 1}, FAILED)
    assert (again.phase, again.attempts.failures) == (PHASE.REQUEUED, 1)


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_backoff_follows_from_the_stored_objects(failures: int) -> None:
    """No memory is needed: the ended pod has the time of its end, the status the number of failures."""
    observation = observe_one({"phase": "Requeued", "failures": failures}, FAILED)
    assert observation.attempts.retry_at == NOW - 1 + retry_delay(failures)


@pytest.mark.parametrize("ahead", [60.0, 3600.0, 1e8])
def test_a_kubelet_whose_clock_is_ahead_delays_no_retry(ahead: float) -> None:
    failed = {"phase": "Failed", "gate": ended(0), "main": ended(1, after=ahead)}
    observation = observe_one({"phase": "Requeued", "failures": 2}, failed)
    assert observation.attempts.retry_at == NOW + retry_delay(2)


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_an_agent_that_has_read_the_whole_log_says_so_by_no_clock(ahead: float) -> None:
    ended_well = {"phase": "Succeeded", "gate": ended(0), "main": ended(0, after=ahead)}
    status = {"phase": "Running", "pod": "sweep-0-0", "logCursor": {"podUid": "uid-sweep-0-0", "complete": True}}
    assert observe_one(status, ended_well).phase is PHASE.SUCCEEDED


def test_a_disruption_is_not_a_failure_and_causes_no_pause() -> None:
    evicted = {"phase": "Failed", "reason": "Evicted", "main": ended(137, after=-1)}
    observation = observe_one({"phase": "Running", "pod": "sweep-0-0"}, evicted)
    assert (observation.phase, observation.attempts.failures, observation.attempts.retry_at, observation.pod) == (
        PHASE.REQUEUED,
        0,
        0.0,
        None,
    )


TAKEN = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]


@pytest.mark.parametrize(
    ("attempt", "reason", "said"), [(1, "PodDisrupted", "(PreemptionByScheduler)"), (0, "PodDeleted", "was deleted")]
)
def test_the_cause_of_a_deleted_pods_end(attempt: int, reason: str, said: str) -> None:
    """It ended and was deleted between two reconciles. What ended a pod of an earlier attempt does not matter."""
    trial = make_trial(phase="Running", pod="sweep-0-1", attempt=1)
    deleted = make_pod(attempt=attempt, phase="Failed", main=ended(143), deleting=True, conditions=TAKEN)
    cluster = replace(make_cluster_state(make_job(), trial, make_node()), deleted_pods={trial_key(trial): deleted})
    observation = observe(cluster)[trial_key(trial)]
    assert (observation.phase, observation.reason, observation.attempts.failures) == (PHASE.REQUEUED, reason, 0)
    assert said in observation.message


CHECKPOINTED_AND_ENDED = {"phase": "Succeeded", "gate": ended(0), "main": ended(0, after=-1), "deleting": True}
OPEN_ALLOCATION = {"gpus": ["GPU-1"], "node": "node-1", "start": moment(-60)}
LOG_READ = {"allocations": [OPEN_ALLOCATION | {"end": moment(-1)}], "logCursor": {"podUid": "uid-sweep-0-0"}}


@pytest.mark.parametrize(
    ("status", "age", "phase"),
    [
        ({"allocations": [OPEN_ALLOCATION]}, 0.0, PHASE.RUNNING),
        (LOG_READ, 0.0, PHASE.REQUEUED),
        ({"allocations": [OPEN_ALLOCATION]}, 60.0, PHASE.REQUEUED),
        ({"lastStep": 9}, 60.0, PHASE.REQUEUED),
        ({"lastStep": 10}, 0.0, PHASE.SUCCEEDED),
    ],
    ids=["its log is being read", "its log was read", "long ago", "not its last step", "its last step"],
)
def test_a_deleted_pod_that_ended_well(status: dict[str, Any], age: float, phase: TrialPhase) -> None:
    stored = {"phase": "Running", "pod": "sweep-0-0", **status}
    assert observe_one(stored, CHECKPOINTED_AND_ENDED, now=NOW + age).phase is phase


@pytest.mark.parametrize(
    ("reader", "phase"),
    [
        ({"podUid": "uid-sweep-0-1", "step": 3}, PHASE.REQUEUED),
        ({"podUid": "uid-sweep-0-1", "step": 10}, PHASE.SUCCEEDED),
        ({"podUid": "uid-sweep-0-0", "step": 10}, PHASE.REQUEUED),
        ({"podUid": "uid-sweep-0-1"}, PHASE.SUCCEEDED),
        (None, PHASE.SUCCEEDED),
    ],
    ids=["it repeats steps", "it has repeated them", "not read", "an agent that reports no step", "no agent"],
)
def test_the_last_step_of_an_earlier_attempt_does_not_count(reader: dict[str, Any] | None, phase: TrialPhase) -> None:
    """The first attempt printed the last step and was evicted before it ended."""
    stored = {"phase": "Running", "pod": "sweep-0-1", "attempt": 1, "lastStep": 10, "logCursor": reader}
    assert observe_one(stored, CHECKPOINTED_AND_ENDED | {"attempt": 1}, now=NOW + 60.0).phase is phase


STARTED_ALLOCATION = {"gpus": ["GPU-1"], "node": "node-1", "start": moment(-700)}
THIS_POD = {"logCursor": {"podUid": "uid-sweep-0-0"}}


@pytest.mark.parametrize(
    ("status", "seen", "phase"),
    [
        ({"allocations": [STARTED_ALLOCATION]}, 0, PHASE.RUNNING),
        ({}, 0, PHASE.RUNNING),
        ({"allocations": [STARTED_ALLOCATION | {"end": moment(-600)}], **THIS_POD}, 0, PHASE.SUCCEEDED),
        ({"allocations": [STARTED_ALLOCATION | {"end": moment(-630)}], **THIS_POD}, 0, PHASE.RUNNING),
        (
            {"allocations": [STARTED_ALLOCATION | {"end": moment(-600)}], "logCursor": {"podUid": "uid-sweep-0-9"}},
            0,
            PHASE.RUNNING,
        ),
        ({"allocations": [STARTED_ALLOCATION], "lastStep": 10}, 0, PHASE.SUCCEEDED),
        ({"allocations": [STARTED_ALLOCATION]}, -60, PHASE.SUCCEEDED),
    ],
    ids=[
        "being read",
        "no report yet",
        "read",
        "read before its last time slice",
        "another pod's",
        "its last step",
        "never",
    ],
)
def test_the_end_waits_for_the_final_log_read(status: dict[str, Any], seen: int, phase: TrialPhase) -> None:
    """The API was unreachable: the process ended ten minutes ago, and that was observed `seen` seconds from now."""
    pod = make_pod(phase="Succeeded", gate=ended(0), main=ended(0, after=-600))
    trial = make_trial(phase="Running", pod="sweep-0-0", **status)
    cluster = make_cluster_state(make_job(), trial, make_node(), pod, unresponsive=["node-1"])
    assert observe(replace(cluster, end_observed_at={pod.uid: NOW + seen}))[trial_key(trial)].phase is phase


def test_a_pod_that_is_being_deleted() -> None:
    terminating = {**RUNNING, "deleting": True}
    assert observe_one({"phase": "Running", "pod": "sweep-0-0"}, terminating).delays.terminating
    assert not observe_one({"phase": "Running", "pod": "sweep-0-0"}, RUNNING).delays.terminating
    assert not observe_one({"phase": "Requeued", "pod": "sweep-0-0"}, terminating).delays.terminating


@pytest.mark.parametrize(("late", "overdue"), [(-30.0, False), (STUCK_SECONDS, False), (STUCK_SECONDS + 1, True)])
def test_a_termination_that_the_kubelet_does_not_complete_is_overdue(late: float, overdue: bool) -> None:
    pod = make_pod(**RUNNING, deleting=True)
    trial = make_trial(phase="Running", pod="sweep-0-0")
    cluster = make_cluster_state(make_job(), trial, make_node(), replace(pod, deletion_deadline=NOW - late))
    observation = observe(cluster)[trial_key(trial)]
    assert (observation.delays.terminating, observation.delays.overdue) == (True, overdue)


REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}


@pytest.mark.parametrize(("dead", "delay"), [(1, None), (2, 1), (3, 2), (5, 4)])
def test_consecutive_refusals_by_the_cluster_lead_to_a_backoff(dead: int, delay: int | None) -> None:
    last = dead - 1
    trial = make_trial(phase="Requeued", attempt=last, pod=f"sweep-0-{last}")
    pods = [make_pod(attempt=n, created=float(n - last), **REFUSED) for n in range(dead)]
    observation = observe(make_cluster_state(make_job(), trial, *pods))[trial_key(trial)]
    assert (observation.phase, observation.attempts.failures) == (PHASE.REQUEUED, 0)
    assert observation.attempts.retry_at == (0.0 if delay is None else NOW + retry_delay(delay))


def test_a_pod_that_ran_resets_the_consecutive_refusals() -> None:
    trial = make_trial(phase="Requeued", attempt=2, pod="sweep-0-2")
    evicted = make_pod(attempt=1, phase="Failed", reason="Evicted", main=ended(137))
    pods = [make_pod(attempt=0, **REFUSED), evicted, make_pod(attempt=2, **REFUSED)]
    assert observe(make_cluster_state(make_job(), trial, *pods))[trial_key(trial)].attempts.retry_at == 0.0


def test_consecutive_disruptions_without_a_step_lead_to_a_backoff() -> None:
    """Another scheduler preempts for a pod of its own; a pod that Podium creates is preempted again and again."""
    delays, before = [], None
    for attempt in range(5):
        trial = make_trial(phase="Gated", attempt=attempt, pod=f"sweep-0-{attempt}", lastStep=7.0, disruptions=before)
        deleted = observe(make_cluster_state(make_job(), trial))[
            trial_key(trial)
        ]  # a deleted pod provides no facts any more
        assert (deleted.phase, deleted.attempts.failures) == (PHASE.REQUEUED, 0)
        delays.append(deleted.attempts.retry_at - NOW if deleted.attempts.retry_at else 0.0)
        assert deleted.attempts.disruptions is not None
        before = deleted.attempts.disruptions.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert delays == [0.0, 2.0, 4.0, 8.0, 16.0]
    trial = make_trial(phase="Running", attempt=5, pod="sweep-0-5", lastStep=8.0, disruptions=before)
    assert observe(make_cluster_state(make_job(), trial))[trial_key(trial)].attempts.retry_at == 0.0, (
        "a further step resets the count"
    )
    trial = make_trial(phase="Requeued", attempt=5, pod="sweep-0-5", lastStep=7.0, disruptions=before)
    assert observe(make_cluster_state(make_job(), trial))[trial_key(trial)].attempts.retry_at == NOW + 16.0, (
        "stored: an operator may die"
    )


@pytest.mark.parametrize("reason", ["NodeDraining", "Preempted"])
def test_a_requeue_by_podium_causes_no_pause(reason: str) -> None:
    before = {"consecutive": 3, "retryAt": moment()}
    trial = make_trial(phase="Gated", attempt=3, pod="sweep-0-3", reason=reason, disruptions=before)
    observation = observe(make_cluster_state(make_job(), trial))[trial_key(trial)]
    assert (observation.phase, observation.attempts.disruptions) == (PHASE.REQUEUED, trial.status.disruptions)


def test_a_trial_whose_worker_finds_no_slot_is_tried_again_after_a_longer_pause() -> None:
    trial = make_trial(phase="Gated", attempt=3, pod="sweep-0-3", reason="WorkerStuck", disruptions={"consecutive": 3})
    attempts = observe(make_cluster_state(make_job(), trial))[trial_key(trial)].attempts
    assert attempts.disruptions is not None
    assert (attempts.disruptions.consecutive, attempts.retry_at) == (4, NOW + retry_delay(3))


def test_a_failing_init_container_fails_the_trial() -> None:
    payload = pod_payload(phase="Failed", main={"waiting": {"reason": "PodInitializing"}})
    payload["spec"]["initContainers"].insert(0, {"name": "load"})
    payload["status"]["initContainerStatuses"] = [{"name": "load", "state": ended(1, after=-1)}]

    def after(failures: int) -> Observation:
        trial = make_trial(phase="Pending", pod="sweep-0-0", failures=failures)
        return observe(make_cluster_state(make_job(), trial, parse_pod(payload)))[trial_key(trial)]

    first = after(0)
    assert first.phase is PHASE.REQUEUED
    assert (first.attempts.failures, first.attempts.retry_at) == (1, NOW - 1 + retry_delay(1))
    assert "init container load" in first.message
    assert after(2).phase is PHASE.FAILED


NO_IMAGE = {"gate": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


@pytest.mark.parametrize(
    ("pod", "stuck"),
    [
        ({"node": None, "created": -61.0}, True),
        ({"node": None, "created": -59.0}, False),
        ({**NO_IMAGE, "created": -61.0}, True),
        ({"created": -3600.0}, False),  # pulling a large image takes time
        ({"gate": {"running": {}}, "created": -3600.0}, False),
    ],
)
def test_a_pod_that_does_not_start_is_stuck(pod: dict[str, Any], stuck: bool) -> None:
    assert observe_one({"pod": "sweep-0-0"}, pod, "Gated").delays.stuck is stuck


def test_the_pod_of_the_next_attempt_takes_over() -> None:
    trial = make_trial(phase="Requeued", attempt=0, failures=1)
    cluster = make_cluster_state(make_job(), trial, make_node(), make_pod(**FAILED), make_pod(attempt=1))
    observation = observe(cluster)[trial_key(trial)]
    assert (observation.phase, observation.attempts.number, observation.attempts.failures) == (PHASE.PENDING, 1, 1)
    assert observation.pod is not None
    assert observation.pod.name == "sweep-0-1"


def test_gpus_come_from_the_agent() -> None:
    observation = observe_one({"pod": "sweep-0-0"}, {"gate": {"running": {}}}, "Gated")
    assert (observation.gpus, observation.node) == (("GPU-1",), "node-1")


def test_a_pod_of_an_earlier_trial_of_the_same_name_is_ignored() -> None:
    trial = make_trial().model_copy(update={"metadata": make_trial().metadata.model_copy(update={"uid": "another"})})
    observation = observe(make_cluster_state(make_job(), trial, make_pod(**RUNNING)))[trial_key(trial)]
    assert (observation.phase, observation.pod) == (PHASE.PENDING, None)


KILLED = {"phase": "Failed", "gate": ended(0), "main": ended(137, after=-1)}
BY_DRIVER = [{"type": "DisruptionTarget", "status": "True", "reason": "GPUDriverError"}]


@pytest.mark.parametrize(
    ("pod", "status", "more", "phase", "failures"),
    [
        (KILLED, {"allocations": [OPEN_ALLOCATION]}, {}, PHASE.RUNNING, 0),
        (KILLED, {"allocations": [OPEN_ALLOCATION]}, {"now": NOW + 60}, PHASE.REQUEUED, 1),
        (KILLED, {"allocations": [OPEN_ALLOCATION]}, {"unresponsive": ["node-1"]}, PHASE.REQUEUED, 1),
        (KILLED, LOG_READ, {}, PHASE.REQUEUED, 1),
        (KILLED | {"conditions": BY_DRIVER}, {"allocations": [OPEN_ALLOCATION]}, {}, PHASE.REQUEUED, 0),
        (FAILED, {"allocations": [OPEN_ALLOCATION]}, {}, PHASE.REQUEUED, 1),
    ],
    ids=[
        "the agent may report",
        "it did not report",
        "it cannot report",
        "it reported its end",
        "it reported why",
        "no signal",
    ],
)
def test_a_process_that_a_signal_ended_is_judged_when_its_agent_has_reported(
    pod: dict[str, Any], status: dict[str, Any], more: dict[str, Any], phase: TrialPhase, failures: int
) -> None:
    observation = observe_one({"phase": "Running", "pod": "sweep-0-0", **status}, pod, **more)
    assert (observation.phase, observation.attempts.failures) == (phase, failures)

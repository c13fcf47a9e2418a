"""Derive each trial's phase from what its pod and its agent report now: the first, pure half of a reconcile.

The planner uses the phase that is true now, not the phase that the last reconcile stored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, takewhile

from podium_core.domain.keys import TrialKey
from podium_core.domain.observe import (
    FINAL_REPORT_SECONDS,
    DerivedPhase,
    PodEnd,
    TrialFacts,
    classify_end,
    classify_missing_pod,
    derive_phase,
    next_phase,
    retry_delay,
)
from podium_core.domain.phase import FINAL, REQUEUES, TrialPhase
from podium_core.domain.pod_view import WorkerView
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import Disruptions
from podium_operator.log_fields import about_item
from podium_operator.observe.cluster_state import ClusterState, job_key, trial_key
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.trial_state import TrialState
from podium_operator.observe.worker_pods import WORKER_ENDED, combined_state, without_slots, workers_of

SAME_MOMENT_SECONDS = 2.0  # the kubelet and the agent may report the end of a container this far apart
LOG_READ_TIMEOUT_SECONDS = 30.0  # time after which the operator gives up reading a log through the API server
SIGNAL_EXIT_CODE = 128  # plus the number of the signal that ended a process
STUCK_SECONDS = 60.0  # a pod without a node or a started container for this long needs a person's attention
# Podium's own requeues cost no pause, unless what they wait for is not Podium's: a node for another worker
_AT_ONCE = frozenset(REQUEUES) - {"WorkerStuck"}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedAttempts:
    """The attempts of a trial until now; `number` is that of the present one."""

    number: int
    failures: int
    retry_at: float = 0.0  # no new pod before
    disruptions: Disruptions | None = None
    unreported_ends: tuple[PodEnd, ...] = ()  # ends of earlier attempts that no status has reported yet


@dataclass(frozen=True, slots=True)
class PodDelays:
    """What keeps the pod of a trial from its start or from its end."""

    problem: bool = False  # the pod does not start or is terminating: reported in place of the trial's rank
    stuck: bool = False  # the pod has not started for STUCK_SECONDS
    terminating: bool = False  # the pod is being deleted
    overdue: bool = False  # the pod should have been gone for STUCK_SECONDS: its kubelet does not end it


@dataclass(frozen=True, slots=True)
class Observation:
    """State of one trial now; `pod` is that of the present attempt, None if it has to be created."""

    phase: TrialPhase
    reason: str
    message: str
    attempts: ObservedAttempts
    pod: PodState | None
    node: str | None
    gpus: tuple[str, ...]
    started: bool
    ended_at: float | None
    delays: PodDelays = PodDelays()
    workers: tuple[WorkerView, ...] = ()  # of a trial that has several: those that have a pod


def observe(cluster: ClusterState) -> Mapping[TrialKey, Observation]:
    """Return the observation of every trial.

    A trial whose objects contradict each other keeps its stored phase and does not affect the other trials.
    """
    observations: dict[TrialKey, Observation] = {}
    for trial in cluster.trials:
        try:
            observations[trial_key(trial)] = _observe(cluster, trial)
        except ValueError as error:
            with about_item(trial):
                log.error("trial %s/%s is left unchanged: %s", trial.metadata.namespace, trial.metadata.name, error)
            observations[trial_key(trial)] = _unchanged(cluster, trial, str(error))
    return observations


def _unchanged(cluster: ClusterState, trial: TrialState, problem: str) -> Observation:
    stored = trial.status
    pod = cluster.latest_pod.get(trial_key(trial))
    return Observation(
        phase=stored.phase,
        reason="Inconsistent",
        message=problem,
        attempts=ObservedAttempts(stored.attempt, stored.failures),
        pod=pod,
        node=stored.node,
        gpus=(),
        started=False,
        ended_at=pod.ended_at if pod else None,
    )


def _observe(cluster: ClusterState, trial: TrialState) -> Observation:
    status = trial.status
    pod = cluster.latest_pod.get(trial_key(trial))
    # the pod may be of a later attempt than the stored one: the operator ended between creating it and storing that
    attempt = status.attempt if pod is None else max(status.attempt, pod.attempt)
    # a new attempt starts as Pending: the stored phase describes the attempt before
    current = TrialPhase.PENDING if attempt > status.attempt and status.phase not in FINAL else status.phase
    current_pod = pod if pod is not None and pod.attempt == attempt else None
    job = cluster.job_by_key.get(job_key(trial))
    unreported = unreported_ends(cluster, trial, attempt)
    before = status.failures + sum(end.kind == "TrialFailure" for end in unreported)
    slots = _slots(cluster, current_pod)
    node = current_pod.node if current_pod else None
    nodes = {one.facts.node for one in workers_of(current_pod)} if current_pod else {None}
    last = cluster.deleted_pods.get(trial_key(trial))
    facts = TrialFacts(
        current=current,
        pod=current_pod.facts if current_pod and not current_pod.missing else None,
        had_pod=status.pod is not None or (current_pod is not None and current_pod.missing),
        agent_state=_agent_state(cluster, current_pod, current),
        failures=before,
        retries=job.spec.trials.retries if job else 0,
        stopped=trial.spec.stopped,
        agent_fresh=cluster.unresponsive.isdisjoint(nodes),
        complete=_is_complete(trial, job, current_pod),
        reason=status.reason,
        disruption=last.facts.disruption if last is not None and last.attempt == attempt else "",
    )
    derived = _name_worker(derive_phase(facts), current_pod)
    phase = next_phase(current, derived)
    if derived.own_failure and facts.agent_fresh and _may_be_disrupted(cluster, trial, current_pod):
        phase = current
    counts = derived.own_failure and phase is not current
    failures = before + 1 if counts else before
    ended = current_pod.ended_at if current_pod else None
    if phase is TrialPhase.SUCCEEDED and current not in FINAL and _awaits_final_log(cluster, trial, current_pod):
        phase = current if current is not TrialPhase.REQUEUED else TrialPhase.PENDING
    if phase is TrialPhase.REQUEUED and current is not phase and _may_be_complete(cluster, trial, current_pod):
        phase = current
    waits = phase is TrialPhase.REQUEUED
    disruptions = status.disruptions
    if any(end.kind == "Disrupted" and end.reason not in _AT_ONCE for end in unreported):
        disruptions = _add_disruption(disruptions, status.last_step, cluster.now)
    if waits and current is not phase and not derived.own_failure and derived.reason not in _AT_ONCE:
        disruptions = _add_disruption(disruptions, status.last_step, cluster.now)
    deleting = current_pod is not None and current_pod.facts.deleting
    stuck = phase is TrialPhase.PENDING and derived.problem and not deleting and derived.reason != "ContainerCreating"
    retry_at = 0.0
    if waits:
        retry_at = max(
            _retry_at(cluster, current_pod, failures, cluster.pods_by_trial.get(trial_key(trial), ())),
            _disruption_retry_at(disruptions),
        )
    return Observation(
        phase=phase,
        reason=derived.reason,
        message=derived.message,
        attempts=ObservedAttempts(attempt, failures, retry_at, disruptions, unreported),
        # the ended pod of a requeued trial is not used any more: the planner creates a new one
        pod=None if waits else current_pod,
        node=node,
        gpus=() if current_pod and without_slots(current_pod, slots) else tuple(chain.from_iterable(slots.values())),
        started=phase not in (TrialPhase.PENDING, TrialPhase.GATED, TrialPhase.REQUEUED) and phase not in FINAL,
        ended_at=ended,
        delays=PodDelays(
            problem=derived.problem,
            stuck=stuck and current_pod is not None and cluster.now - current_pod.created > STUCK_SECONDS,
            terminating=deleting and not waits,
            overdue=deleting and not waits and _termination_overdue(cluster, current_pod),
        ),
        workers=_workers(current_pod, slots),
    )


def _slots(cluster: ClusterState, pod: PodState | None) -> Mapping[str, tuple[str, ...]]:
    """Return the GPUs on which each pod of the attempt has a slot, by the pod's uid."""
    there = {} if pod is None else {one.uid: cluster.gpus_by_pod.get(one.uid, ()) for one in workers_of(pod)}
    return {uid: tuple(gpu for _, gpu, _ in found) for uid, found in there.items() if found}


def _workers(pod: PodState | None, slots: Mapping[str, tuple[str, ...]]) -> tuple[WorkerView, ...]:
    """Return the workers of a trial that has several."""
    workers = () if pod is None else pod.workers
    return tuple(WorkerView(one.rank, one.name, one.facts.node, slots.get(one.uid, ())) for one in workers)


def _agent_state(cluster: ClusterState, pod: PodState | None, current: TrialPhase) -> str | None:
    """Return the state that the agents report for the trial, or None."""
    if pod is None:
        return None
    found = [cluster.gpus_by_pod.get(one.uid, ()) for one in workers_of(pod) if one.facts.phase != "Succeeded"]
    states = [gpus[0][2].state.value if gpus else None for gpus in found]
    return combined_state(states, current) if states else None


def _name_worker(derived: DerivedPhase, pod: PodState | None) -> DerivedPhase:
    """Return the phase with the worker in its message that failed, was lost or does not start."""
    if pod is None or not pod.workers or derived.reason in ("WaitingForPod", WORKER_ENDED, *REQUEUES):
        return derived
    if not (derived.problem or derived.phase in (TrialPhase.FAILED, TrialPhase.REQUEUED)):
        return derived
    return replace(derived, message=f"Worker {pod.decisive}: {derived.message}")


def unreported_ends(cluster: ClusterState, trial: TrialState, attempt: int) -> tuple[PodEnd, ...]:
    """Return the unreported ends of the attempts before the present one, the oldest first.

    A reconcile that observes a pod's end creates the next pod and stores Requeued. It may be unable to store that
    (another writer changed the status, or the operator ended in between). Then the next reconcile sees the new pod
    beside a status of the attempt before. The end is counted and reported from what is known of the ended pod.
    """
    status = trial.status
    if attempt <= status.attempt or status.phase in FINAL:
        return ()
    pods = {pod.attempt: pod for pod in cluster.pods_by_trial.get(trial_key(trial), ())}
    if attempt in pods and pods[attempt].facts.migrated:
        return ()  # the attempt before continues in this pod
    deleted = cluster.deleted_pods.get(trial_key(trial))
    written = status.attempt + (status.phase is TrialPhase.REQUEUED)
    ends = []
    for number in range(written, attempt):
        reason = status.reason if number == status.attempt else ""
        last = deleted if deleted is not None and deleted.attempt == number else None
        ended = number in pods and not pods[number].missing
        ends.append(classify_end(pods[number].facts) if ended else _end_of_deleted_pod(last, reason))
    return tuple([end for end in ends if end.kind in ("Disrupted", "TrialFailure")])


def _end_of_deleted_pod(last: PodState | None, reason: str) -> PodEnd:
    """Return how a deleted pod ended.

    `last` is the pod's last observed state, None if it is unknown; `reason` is stored with the trial's phase.
    """
    if last is None:
        return classify_missing_pod(reason, "")
    end = classify_end(last.facts)
    return end if end.kind != "NotEnded" else classify_missing_pod(last.facts.requeue or reason, last.facts.disruption)


def _termination_overdue(cluster: ClusterState, pod: PodState | None) -> bool:
    """Return True if the pod should have been gone for STUCK_SECONDS."""
    return pod is not None and pod.deletion_deadline is not None and cluster.now - pod.deletion_deadline > STUCK_SECONDS


def _add_disruption(before: Disruptions | None, step: float | None, now: float) -> Disruptions:
    """Return the disruptions after one more, which happened at `step`.

    Back off exponentially: kube-scheduler may give the GPU to another pod first, and an immediate retry would be
    preempted again. The first disruption costs no pause; each further one without a new step doubles the pause.
    """
    if before is None or (step is not None and (before.step is None or step > before.step)):
        return Disruptions(consecutive=1, step=step)
    again = datetime.fromtimestamp(now + retry_delay(before.consecutive), UTC)
    return Disruptions(consecutive=before.consecutive + 1, step=step, retry_at=again)


def _disruption_retry_at(disruptions: Disruptions | None) -> float:
    """Return the time (seconds since the epoch) before which a disrupted trial gets no new pod; 0 for none."""
    return 0.0 if disruptions is None or disruptions.retry_at is None else disruptions.retry_at.timestamp()


def _retry_at(cluster: ClusterState, pod: PodState | None, failures: int, pods: Sequence[PodState]) -> float:
    """Return the time before which no new pod is created, derived from the ended pods alone.

    The first pod that the cluster refuses is replaced without a delay. If the processes of several pods in sequence
    never ran, the cause is a lasting one, such as a device plugin that is down. The delay then doubles.
    """
    if pod is None:
        return 0.0
    refused = takewhile(lambda p: p.facts.phase == "Failed" and p.facts.end.code is None, pods)
    tries = max(failures, sum(1 for _ in refused) - 1)
    since = pod.created
    if pod.ended_at is not None:  # by the kubelet's clock, which may be ahead
        since = min(pod.ended_at, cluster.end_observed_at.get(pod.uid, cluster.now))
    return since + retry_delay(tries) if tries > 0 else 0.0


def _awaits_final_log(cluster: ClusterState, trial: TrialState, pod: PodState | None) -> bool:
    """Return True if the process has ended but the end of its log has not been read: the curve is not complete.

    The time counts from when the operator could observe the end. While the API server was unreachable, the agent could
    not report anything.
    """
    job = cluster.job_by_key.get(job_key(trial))
    if job is None or pod is None or pod.ended_at is None:
        return False
    age = cluster.now - cluster.end_observed_at.get(pod.uid, pod.ended_at)
    if job.spec.gpus.per_trial == 0:
        return needs_log_read(cluster, trial, job, pod) and age < LOG_READ_TIMEOUT_SECONDS
    return (
        not _is_complete(trial, job, pod) and not _log_was_read(trial, pod, pod.ended_at) and age < FINAL_REPORT_SECONDS
    )


def _may_be_disrupted(cluster: ClusterState, trial: TrialState, pod: PodState | None) -> bool:
    """Return True if a signal ended the process, and the agent may still report that the GPU driver sent it."""
    job = cluster.job_by_key.get(job_key(trial))
    if job is None or job.spec.gpus.per_trial == 0 or pod is None or (pod.facts.end.code or 0) <= SIGNAL_EXIT_CODE:
        return False
    return pod.facts.end.reason != "OOMKilled" and _awaits_final_log(cluster, trial, pod)


def _log_was_read(trial: TrialState, pod: PodState, ended_at: float) -> bool:
    """Return True if the agent has read the log to its end.

    It then says so. Agents of an earlier version only close the last GPU allocation, by another clock than the
    kubelet's.
    """
    cursor, allocations = trial.status.log_cursor, trial.status.allocations
    if cursor is None or cursor.pod_uid != pod.uid:
        return False
    if cursor.complete or not allocations or allocations[-1].end is None:
        return cursor.complete
    return allocations[-1].end.timestamp() >= ended_at - SAME_MOMENT_SECONDS


def _may_be_complete(cluster: ClusterState, trial: TrialState, pod: PodState | None) -> bool:
    """Return True if the pod was deleted but its process ended well: the end of the log decides if it was complete."""
    return pod is not None and pod.facts.phase == "Succeeded" and _awaits_final_log(cluster, trial, pod)


def _is_complete(trial: TrialState, job: HyperParamJob | None, pod: PodState | None) -> bool:
    """Return True if this pod has reached the last step.

    `lastStep` covers all attempts, and a later attempt may repeat steps.
    """
    last, wanted = trial.status.last_step, job.spec.trials.max_steps if job else None
    cursor = trial.status.log_cursor
    if pod is not None and pod.attempt > 0 and cursor is not None:
        if cursor.pod_uid != pod.uid:
            return False  # no line of its log has been read yet
        last = last if cursor.step is None else cursor.step
    return last is not None and wanted is not None and last >= wanted


def needs_log_read(cluster: ClusterState, trial: TrialState, job: HyperParamJob, pod: PodState) -> bool:
    """Return True if the log of a trial without a GPU has to be read through the API server.

    Such a trial may run on a node without an agent. Its log is read when its pod has ended well.
    """
    if job.spec.gpus.per_trial or pod.facts.phase != "Succeeded" or trial.status.phase in FINAL:
        return False
    return pod.uid not in cluster.logs_without_value and not trial.points

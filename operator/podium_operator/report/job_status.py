"""Status of a job as the operator writes it: phase, counts, best trial, GPU-seconds, ETA, conditions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium_core.curves.best_value import best_of
from podium_core.domain.actions import EndJob
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL, ON_GPU, TrialPhase
from podium_core.objectives.front import Candidate, pareto_front
from podium_core.objectives.values import measured_of
from podium_core.planning.eta import END_OF_CALENDAR, Eta
from podium_core.planning.queues.queue_rules import JobQueue
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.job_status import FINISHED, TrialCounts
from podium_operator.observe.cluster_state import trial_key
from podium_operator.observe.observation import Observation
from podium_operator.observe.snapshot import ACCEPTED, is_accepted, is_finished
from podium_operator.observe.trial_state import TrialState
from podium_operator.report.trial_status import timestamp
from podium_operator.reservations.condition import ReservationCondition

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobReport:
    """Decisions of a reconcile about a job.

    - `size`: the largest number of trials
    - `end`: the planner ended the job in this reconcile
    - `reservations`: the condition GPUsReserved, None where the GPUs are dedicated to Podium
    - `left_out`: why nothing was planned for the job, if so
    - `queue`: the job's queue, None if the cluster has no queues
    """

    size: int
    eta: Eta | None = None
    end: EndJob | None = None
    reservations: ReservationCondition | None = None
    left_out: str | None = None
    queue: JobQueue | None = None


def job_status(
    job: HyperParamJob,
    trials: Sequence[TrialState],
    observations: Mapping[TrialKey, Observation],
    report: JobReport,
    now: float,
) -> Manifest:
    """Return the operator's part of the job's status."""
    size, eta, reservations, left_out = report.size, report.eta, report.reservations, report.left_out
    phases = Counter(observations[trial_key(trial)].phase for trial in trials)
    done, total = sum(phases[phase] for phase in FINAL), max(size, len(trials))
    phase, reason, message = _phase(job, phases, done, total, report.end)
    obstacle = None if report.queue is None else report.queue.obstacle
    if obstacle is not None and phase == "Pending" and is_accepted(job):
        reason, message = obstacle
    training = sum(trial.status.gpu_seconds for trial in trials)
    switching = sum(t.status.suspensions.suspend_seconds + t.status.suspensions.resume_seconds for t in trials)
    status: Manifest = {
        "phase": phase,
        "reason": reason,
        "message": message,
        "observedGeneration": job.metadata.generation,
        "trials": TrialCounts.of(phases).model_dump(by_alias=True),
        "done": f"{done}/{total}",
        "gpuSeconds": {"training": round(training, 3), "switching": round(switching, 3)},
        "gpuHours": round(training / 3600, 3),
        "lostWork": _lost_work(trials),
        "suspensions": sum(t.status.suspensions.count for t in trials),
        "conditions": [_condition(job, "Complete", phase in FINISHED, reason, message, now)],
    }
    if reservations is not None and phase not in FINISHED:
        condition = _condition(
            job,
            "GPUsReserved",
            reservations.complete,
            reservations.reason,
            reservations.message,
            now,
        )
        status["conditions"].append(condition)
    if report.queue is not None and phase not in FINISHED and is_accepted(job):
        shares = ("SharesGPUs", f"The job shares the GPUs of queue {report.queue.name}.")
        status["conditions"].append(_condition(job, "QueueReady", obstacle is None, *(obstacle or shares), now))
    if left_out is not None and phase not in FINISHED:
        text = f"{left_out}: the job is left unchanged and its pods stay. Set another spec.policy.name to continue."
        status["conditions"].append(_condition(job, "Ranked", False, "PolicyFailed", text, now))
    if job.spec.objectives is not None:
        status["paretoFront"] = _front(job, trials, observations)
    elif (best := _best(job, trials)) is not None:
        status["best"] = best
    started = job.status.started_at
    if started or trials:
        status["startedAt"] = timestamp(started.timestamp() if started else now)
    if phase in FINISHED:
        finished = job.status.finished_at if is_finished(job) else None
        status["finishedAt"] = timestamp(finished.timestamp() if finished else now)
    elif eta is not None and eta.seconds is not None and phase == "Running":
        # rounded up to ten seconds: an ETA that changes in every reconcile would need a patch each time
        at = -(-(now + eta.seconds) // 10) * 10
        if at < END_OF_CALENDAR:  # this excludes an infinite ETA, too
            status["eta"] = timestamp(at)
    return status


def _lost_work(trials: Sequence[TrialState]) -> Manifest:
    """Return the lost work of all trials."""
    lost_work = [trial.status.lost_work for trial in trials]
    return {
        "steps": sum(one.steps for one in lost_work),
        "gpuSeconds": round(sum(one.gpu_seconds for one in lost_work), 3),
    }


def _phase(
    job: HyperParamJob, phases: Counter[TrialPhase], done: int, total: int, end: EndJob | None
) -> tuple[str, str, str]:
    if end is not None:
        return ("Succeeded" if end.succeeded else "Failed"), end.reason, end.message
    if is_finished(job):
        return job.status.phase, job.status.reason, job.status.message
    refusal = next((c for c in job.status.conditions if c.type == ACCEPTED and c.status == "False"), None)
    if refusal is not None:
        return "Refused", refusal.reason, refusal.message
    waits = next((c for c in job.status.conditions if c.type == ACCEPTED and c.status == "Unknown"), None)
    if waits is not None:
        return "Pending", waits.reason, waits.message
    if not is_accepted(job):
        return "Pending", "ValidationPending", "The job has not been checked yet."
    if job.spec.suspend:
        return "Suspended", "SuspendedByUser", "spec.suspend is set: the trials hold no GPU and keep their progress."
    live = sum(phases.values()) - done
    if done or sum(phases[p] for p in (*ON_GPU, TrialPhase.SUSPENDED)):
        return "Running", "TrialsRunning", f"{done} of at most {total} trials have ended, {live} are under way."
    waiting = "No trial has had a time slice on a GPU yet." if live else "No trial exists yet: no slot is free."
    return "Pending", "WaitingForGPU", waiting


def _condition(job: HyperParamJob, kind: str, holds: bool, reason: str, message: str, now: float) -> Manifest:
    status = "True" if holds else "False"
    before = next((c for c in job.status.conditions if c.type == kind), None)
    same = before is not None and before.status == status and before.last_transition_time is not None
    moment = before.last_transition_time if same and before else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": job.metadata.generation,
        "lastTransitionTime": timestamp(moment.timestamp() if moment else now),
    }


def _front(
    job: HyperParamJob, trials: Sequence[TrialState], observations: Mapping[TrialKey, Observation]
) -> list[Manifest]:
    """Return the Pareto front of a job with several objectives."""
    by_number = sorted(trials, key=lambda trial: trial.spec.number)
    candidates = [
        Candidate.of(job.spec, trial.metadata.name, measured_of(trial, observations[trial_key(trial)].phase))
        for trial in by_number
    ]
    return [one.model_dump(by_alias=True) for one in pareto_front(job.spec, candidates)]


def _best(job: HyperParamJob, trials: Sequence[TrialState]) -> Manifest | None:
    """Return the best trial; of several that are equal the one with the lowest number."""
    maximize = job.spec.objective.direction is Direction.MAXIMIZE
    by_number = sorted(trials, key=lambda trial: trial.spec.number)
    best = best_of(((trial.best(maximize), trial) for trial in by_number), maximize)
    if best is None:
        return None
    point, trial = best
    return {
        "trial": trial.metadata.name,
        "value": point.value,
        "step": point.step,
        "parameters": dict(trial.spec.parameters),
    }

"""Status of the job and of the devices, as a cluster's operator and agent would write them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from podium_core.curves.best_value import best_of
from podium_core.domain.actions import EndJob, TrialRank
from podium_core.domain.phase import FINAL
from podium_core.objectives.front import Candidate, pareto_front
from podium_core.planning.eta import END_OF_CALENDAR, Eta
from podium_core.schema.base import Condition, ObjectMeta
from podium_core.schema.gpunode import (
    GPUNode,
    GpuNodeSpec,
    GpuNodeStatus,
    GpuRunQueue,
    GpuStatus,
    Holder,
    RunQueueEntry,
    TrialOnGpu,
)
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.job_status import FINISHED, BestTrial, FrontTrial, GpuUse, JobLostWork, JobStatus, TrialCounts
from podium_local.clock import moment
from podium_local.snapshot import Machine, trials_by_device
from podium_local.trial import Trial

LONGEST_MESSAGE = 1024


def job_status(
    job: HyperParamJob, trials: Sequence[Trial], size: int, eta: Eta | None, end: EndJob | None, now: float
) -> JobStatus:
    """Return the status of the job.

    `size`: the largest number of trials. `end`: the plan ended the job now.
    """
    stored = job.status
    phases = Counter(trial.phase for trial in trials)
    done, total = sum(phases[phase] for phase in FINAL), max(size, len(trials))
    phase, reason, message = stored.phase, stored.reason, stored.message
    if end is not None:
        phase, reason, message = ("Succeeded" if end.succeeded else "Failed"), end.reason, end.message
    elif phase not in FINISHED:
        phase, reason = "Running", "TrialsRunning"
        message = f"{done} of at most {total} trials have ended, {len(trials) - done} are under way."
    finished = phase in FINISHED
    training = sum(trial.ledger.gpu_seconds(now) for trial in trials)
    ledgers = [trial.ledger for trial in trials]
    lost = [ledger.lost_work for ledger in ledgers]
    at = None if eta is None or eta.seconds is None or finished else now + eta.seconds
    return JobStatus(
        phase=phase,
        reason=reason,
        message=message,
        observed_generation=job.metadata.generation,
        trials=TrialCounts.of(phases),
        done=f"{done}/{total}",
        best=None if job.spec.objectives is not None else _best(job, trials),
        pareto_front=_front(job, trials, now),
        gpu_seconds=GpuUse(
            training=round(training, 3),
            switching=round(sum(ledger.suspend_seconds + ledger.resume_seconds for ledger in ledgers), 3),
        ),
        gpu_hours=round(training / 3600, 3),
        suspensions=sum(ledger.count for ledger in ledgers),
        lost_work=JobLostWork(
            steps=sum(one.steps for one in lost), gpu_seconds=round(sum(one.gpu_seconds for one in lost), 3)
        ),
        warm_start=stored.warm_start,
        eta=None if at is None or at >= END_OF_CALENDAR else moment(at),
        started_at=stored.started_at or moment(now),
        finished_at=(stored.finished_at or moment(now)) if finished else None,
        conditions=[Condition(type="Accepted", status="True", reason="Valid", last_transition_time=None)],
    )


def _front(job: HyperParamJob, trials: Sequence[Trial], now: float) -> list[FrontTrial]:
    """Return the Pareto front; empty for a job with one objective."""
    by_number = sorted(trials, key=lambda trial: trial.number)
    return pareto_front(job.spec, [Candidate.of(job.spec, one.key.name, one.measured(now)) for one in by_number])


def _best(job: HyperParamJob, trials: Sequence[Trial]) -> BestTrial | None:
    """Return the best trial; of several that are equal the one with the lowest number."""
    by_number = sorted(trials, key=lambda trial: trial.number)
    best = best_of(((trial.best, trial) for trial in by_number), job.spec.objective.direction is Direction.MAXIMIZE)
    if best is None:
        return None
    point, trial = best
    return BestTrial(trial=trial.key.name, value=point.value, step=point.step, parameters=dict(trial.spec.parameters))


def machine_status(
    machine: Machine, trials: Sequence[Trial], ranks: Mapping[str, TrialRank], methods: Sequence[str]
) -> GPUNode:
    """Return the devices as a GPUNode; `ranks`: the entries of the run queues, by uid of their trials."""
    there = trials_by_device(trials)
    return GPUNode(
        metadata=ObjectMeta(name=machine.name),
        spec=GpuNodeSpec(
            epoch=machine.epoch,
            gpus=[
                GpuRunQueue(
                    uuid=uuid,
                    run_queue=[
                        RunQueueEntry(
                            namespace=key.namespace,
                            trial=key.name,
                            uid=key.uid,
                            reason=ranks[key.uid].reason if key.uid in ranks else "",
                            message=ranks[key.uid].message[:LONGEST_MESSAGE] if key.uid in ranks else "",
                            gain=ranks[key.uid].gain if key.uid in ranks else None,
                            preempts=None,
                        )
                        for key in queue
                    ],
                )
                for uuid, queue in sorted(machine.run_queues.items())
            ],
        ),
        status=GpuNodeStatus(
            observed_epoch=machine.epoch,
            methods=list(methods),
            gpus=[
                GpuStatus(
                    uuid=device.uuid,
                    index=device.index,
                    product=device.product,
                    memory_total=device.memory_total,
                    health="Healthy",
                    slots=device.slots,
                    epoch=machine.epoch,
                    holder=_holder(there.get(device.uuid, ())),
                    trials=[_on_device(trial) for trial in there.get(device.uuid, ())],
                )
                for device in machine.devices
            ],
        ),
    )


def _holder(there: Sequence[Trial]) -> Holder | None:
    for trial in there:
        if trial.attempt is not None and trial.attempt.occupies:
            namespace, name, uid = trial.key
            return Holder(namespace=namespace, trial=name, uid=uid, since=moment(trial.attempt.since))
    return None


def _on_device(trial: Trial) -> TrialOnGpu:
    assert trial.attempt is not None
    namespace, name, uid = trial.key
    attempt = trial.attempt
    return TrialOnGpu(
        namespace=namespace,
        trial=name,
        uid=uid,
        pod=attempt.name,
        pod_uid=attempt.uid,
        state=attempt.state,
        since=moment(attempt.since),
    )

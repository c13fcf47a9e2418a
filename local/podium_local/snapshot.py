"""Convert a run to the planner's snapshot, and choose the devices of new attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from podium_core.domain.fitting import fits, fits_now
from podium_core.domain.gpu_view import GpuMemory, GpuView, RunQueueView
from podium_core.domain.keys import TrialKey
from podium_core.domain.phase import FINAL
from podium_core.domain.pod_view import PodView
from podium_core.domain.snapshot import (
    Attempts,
    Costs,
    Intent,
    JobView,
    Snapshot,
    TrialOrigin,
    TrialResult,
    TrialUsage,
    TrialView,
)
from podium_core.domain.switch_costs import SwitchTotals, mean_costs
from podium_core.planning.job_view import job_view
from podium_core.schema.job import CheckpointVolume, HyperParamJob
from podium_core.schema.job_status import FINISHED
from podium_core.schema.lineage import lineage_from
from podium_core.waiting.objects import IN_PLACE
from podium_local.cuda_support import NO_CUDA, CudaSupport
from podium_local.devices import Device, cores_per_trial
from podium_local.trial import Trial
from podium_searchers.search import size

KEPT = CheckpointVolume(claim_name="local", host_path=None, empty_dir=None)
FIRST_COSTS = Costs(suspend=0.01, resume=0.01, requeue=5.0)  # until something is measured; a requeue is a new process


@dataclass(slots=True)
class Machine:
    """The devices of this machine, the run queue of each, and its number."""

    name: str
    devices: tuple[Device, ...]
    cuda: CudaSupport = NO_CUDA
    epoch: int = 0
    run_queues: dict[str, tuple[TrialKey, ...]] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()  # devices on which the run queue is not in effect yet


def kept_checkpoints(job: HyperParamJob) -> HyperParamJob:
    """Return the job as if every checkpoint volume outlived its pods: here it is a folder of the run."""
    checkpoint = job.spec.checkpoint
    if checkpoint is None:
        return job
    kept = checkpoint.model_copy(update={"volume": KEPT})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"checkpoint": kept})})


def is_finished(job: HyperParamJob) -> bool:
    """Return whether the job has ended."""
    return job.status.phase in FINISHED


def local_job_view(job: HyperParamJob, cpus: int, *, moves_memory: bool = False) -> JobView:
    """Return the planner's view of a job.

    `cpus`: cores for trials that use no device. `moves_memory`: a suspended trial has left its GPU with its memory.
    """
    view = job_view(
        kept_checkpoints(job),
        points=size(job.spec),
        accepted=True,
        finished=is_finished(job),
        suspendable=not IN_PLACE.isdisjoint(job.spec.suspension.methods),
    )
    limits = view.limits
    if view.gpus.per_trial == 0 and limits.parallel is None:
        limits = replace(limits, parallel=max(1, cpus // cores_per_trial(job.spec)))
    abilities = replace(view.abilities, migratable=False, moves_memory=moves_memory)
    return replace(view, limits=limits, abilities=abilities)


def snapshot_of(view: JobView, trials: Sequence[Trial], machine: Machine, now: float) -> Snapshot:
    """Return the planner's snapshot."""
    return Snapshot(
        now=now,
        jobs=(view,),
        trials=tuple(trial_view(trial, machine, now) for trial in trials),
        gpus=gpu_views(view, trials, machine),
        costs=_costs([trial.switches for trial in trials]),
        epochs={machine.name: machine.epoch},
    )


def _costs(switches: Sequence[SwitchTotals]) -> Costs:
    """Return the mean costs; before the first suspension those of signals, which are far below a cluster's."""
    if not any(one.suspended for one in switches):
        return FIRST_COSTS
    return mean_costs(switches, FIRST_COSTS.requeue)


def trial_view(trial: Trial, machine: Machine, now: float) -> TrialView:
    """Return a trial as the planner sees it."""
    attempt, checkpoint = trial.attempt, trial.ledger.checkpoint
    pod = None
    if attempt is not None:
        pod = PodView(
            name=attempt.name,
            node=machine.name,
            gpus=() if trial.phase in FINAL else attempt.devices,
            since=attempt.created,
            terminating=attempt.ending is not None,
        )
    return TrialView(
        key=trial.key,
        job=trial.job,
        number=trial.number,
        origin=TrialOrigin(
            trial.metadata.created, tuple(trial.spec.parameters.items()), lineage_from(trial.spec.parent)
        ),
        phase=trial.phase,
        curve=trial.curve.points,
        usage=TrialUsage(trial.ledger.gpu_seconds(now), trial.switch_seconds),
        pod=pod,
        attempts=Attempts(
            trial.number_of_attempt,
            trial.failures,
            trial.retry_at,
            checkpoint_step=None if checkpoint is None else checkpoint.step,
        ),
        intent=Intent(trial.spec.suspend, trial.spec.pinned, trial.spec.stopped),
        result=TrialResult(trial.finished_at, trial.objective_values(now)),
    )


def gpu_views(job: JobView, trials: Iterable[Trial], machine: Machine) -> tuple[GpuView, ...]:
    """Return the devices as the planner sees them."""
    there = trials_by_device(trials)
    return tuple(_gpu_view(job, device, there.get(device.uuid, ()), machine) for device in machine.devices)


def trials_by_device(trials: Iterable[Trial]) -> Mapping[str, Sequence[Trial]]:
    """Return the trials with a slot, by device."""
    there: dict[str, list[Trial]] = {}
    for trial in trials:
        for uuid in trial.attempt.devices if trial.attempt is not None else ():
            there.setdefault(uuid, []).append(trial)
    return there


def choose_devices(job: JobView, trials: Iterable[Trial], machine: Machine) -> tuple[str, ...] | None:
    """Return the devices for one more attempt, those with the fewest trials; None if there are not enough."""
    need = job.gpus.per_trial
    views = gpu_views(job, trials, machine)
    free = [gpu for gpu in views if gpu.free_slots > 0 and fits(job, gpu) and fits_now(job, gpu)]
    if len(free) < need:
        return None
    free.sort(key=lambda gpu: len(gpu.trials))  # stable: ties go to the lower index
    return tuple(sorted(gpu.uuid for gpu in free[:need]))


def _gpu_view(job: JobView, device: Device, there: Sequence[Trial], machine: Machine) -> GpuView:
    holder = next((trial for trial in there if trial.attempt is not None and trial.attempt.occupies), None)
    declared = (job.gpus.memory or 0) * len(there)
    return GpuView(
        node=machine.name,
        uuid=device.uuid,
        health="Healthy",
        slots=device.slots,
        free_slots=max(0, device.slots - len(there)),
        product=device.product,
        holder=None if holder is None else holder.key,
        holder_since=None if holder is None or holder.attempt is None else holder.attempt.since,
        trials=tuple(trial.key for trial in there),
        run_queue=RunQueueView(machine.run_queues.get(device.uuid, ()), in_effect=device.uuid not in machine.unsettled),
        memory=GpuMemory(device.memory_total, declared, declared if job.abilities.moves_memory else 0),
    )

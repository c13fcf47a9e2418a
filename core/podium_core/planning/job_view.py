"""View of a HyperParamJob for the planner. Pure; called by the operator and by `podium plan`."""

from __future__ import annotations

from podium_core.domain.keys import JobKey
from podium_core.domain.population import Population
from podium_core.domain.snapshot import Abilities, GpuNeeds, JobLimits, JobState, JobView
from podium_core.objectives.values import directions
from podium_core.placement.needs import moves_memory
from podium_core.schema.checkpointing import can_checkpoint, can_migrate, checkpoint_scope
from podium_core.schema.job import Direction, HyperParamJob, JobSpec
from podium_core.schema.quantity import to_bytes
from podium_core.schema.search.population_settings import PBT, population_settings
from podium_core.schema.search.settings import learns


def job_view(job: HyperParamJob, *, points: int | None, accepted: bool, finished: bool, suspendable: bool) -> JobView:
    """Return the planner's view of a job.

    `points`: how many points its searcher can propose, None = any number. `suspendable`: on every possible node some
    method of the job suspends a trial where it is.
    """
    spec = job.spec
    return JobView(
        key=JobKey(job.metadata.namespace, job.metadata.name),
        uid=job.metadata.uid,
        created=job.metadata.created,
        policy=spec.policy.name,
        settings=spec.policy.settings,
        maximize=spec.objective.direction is Direction.MAXIMIZE,
        target=spec.objective.target,
        max_steps=spec.trials.max_steps,
        limits=_limits(spec, points),
        gpus=GpuNeeds(
            spec.gpus.per_trial,
            tuple(spec.gpus.products),
            memory=None if spec.gpus.memory is None else to_bytes(spec.gpus.memory),
            queue=spec.queue or "",
            priority=spec.priority,
            workers=spec.trials.workers,
        ),
        abilities=Abilities(
            suspendable=suspendable,
            checkpointable=can_checkpoint(spec),
            checkpoint_scope=checkpoint_scope(spec),
            migratable=can_migrate(spec) and spec.trials.workers == 1 and spec.workload is None,
            moves_memory=moves_memory(spec.suspension.methods),
        ),
        state=JobState(accepted=accepted, suspended=spec.suspend, finished=finished),
        learns=learns(spec),
        population=_population(spec),
        directions=directions(spec),
    )


def _population(spec: JobSpec) -> Population | None:
    if spec.search.algorithm != PBT:
        return None
    settings = population_settings(spec)
    return Population(settings.population, settings.interval, settings.quantile, spec.search.seed)


def _limits(spec: JobSpec, points: int | None) -> JobLimits:
    budget = spec.budget
    return JobLimits(
        max_trials=spec.trials.max if points is None else min(spec.trials.max, points),
        parallel=None if spec.trials.parallel == "auto" else spec.trials.parallel,
        max_failed=spec.trials.max_failed,
        retries=spec.trials.retries,
        budget_gpu_seconds=budget.gpu_seconds if budget else None,
        deadline=budget.deadline.timestamp() if budget and budget.deadline else None,
    )

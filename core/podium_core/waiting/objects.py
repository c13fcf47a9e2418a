"""The stored objects of a cluster, or of a local run, from which the wait of a search is explained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from podium_core.domain.keys import JobKey
from podium_core.domain.phase import FINAL
from podium_core.domain.snapshot import JobView
from podium_core.planning.job_view import job_view
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import ENDED, FINISHED
from podium_core.schema.search.space import grid_points
from podium_core.schema.trial import HyperParamTrial

IN_PLACE = frozenset({"freeze", "cuda-checkpoint"})  # suspension methods that keep a trial where it is


@dataclass(frozen=True)  # no slots: the groups of trials are kept in the instance
class StoredObjects:
    """Jobs, trials and nodes as they are stored at `now`, in seconds since the Unix epoch.

    A reader without access to all namespaces passes the objects that it can read.
    """

    jobs: tuple[HyperParamJob, ...]
    trials: tuple[HyperParamTrial, ...]
    nodes: tuple[GPUNode, ...]
    now: float
    _groups: dict[JobKey, tuple[HyperParamTrial, ...]] = field(default_factory=dict, init=False, compare=False)

    def trials_of(self, key: JobKey) -> tuple[HyperParamTrial, ...]:
        """Return the trials of one job by number."""
        if not self._groups:
            groups: dict[JobKey, list[HyperParamTrial]] = {}
            for trial in self.trials:
                groups.setdefault(job_of(trial), []).append(trial)
            self._groups.update({of: tuple(sorted(mine, key=lambda t: t.spec.number)) for of, mine in groups.items()})
        return self._groups.get(key, ())

    def open_jobs(self) -> tuple[HyperParamJob, ...]:
        """Return the jobs that compete for GPUs, the oldest first: accepted, neither ended nor suspended."""
        return tuple(sorted(filter(competes, self.jobs), key=lambda job: (job.metadata.created, key_of(job))))

    def job(self, key: JobKey) -> HyperParamJob:
        """Return one job. Raises KeyError."""
        for job in self.jobs:
            if key_of(job) == key:
                return job
        raise KeyError(key)


def key_of(job: HyperParamJob) -> JobKey:
    """Return the key of a job."""
    return JobKey(job.metadata.namespace, job.metadata.name)


def job_of(trial: HyperParamTrial) -> JobKey:
    """Return the key of a trial's job."""
    return JobKey(trial.metadata.namespace, trial.spec.job)


def full_name(trial: HyperParamTrial) -> str:
    """Return namespace and name of a trial."""
    return f"{trial.metadata.namespace}/{trial.metadata.name}"


def live(trials: Iterable[HyperParamTrial]) -> list[HyperParamTrial]:
    """Return the trials that have not ended."""
    return [trial for trial in trials if trial.status.phase not in FINAL]


def names_by_uid(trials: Iterable[HyperParamTrial]) -> Mapping[str, JobKey]:
    """Return the job of each trial by the trial's uid."""
    return {trial.metadata.uid: job_of(trial) for trial in trials}


def is_accepted(job: HyperParamJob) -> bool:
    """Return whether the job was accepted."""
    return any(one.type == "Accepted" and one.status == "True" for one in job.status.conditions)


def competes(job: HyperParamJob) -> bool:
    """Return whether trials of the job may get GPUs."""
    waits = is_accepted(job) or job.status.phase == "Running"
    return waits and job.status.phase not in ENDED and not job.spec.suspend and job.metadata.deletion_timestamp is None


def view_of(job: HyperParamJob) -> JobView:
    """Return the planner's view of a job.

    Its trials count as suspendable if any method keeps them in place.
    """
    points = grid_points(job.spec) if job.spec.search.algorithm == "grid" else None
    return job_view(
        job,
        points=points,
        accepted=is_accepted(job),
        finished=job.status.phase in FINISHED,
        suspendable=not IN_PLACE.isdisjoint(job.spec.suspension.methods),
    )

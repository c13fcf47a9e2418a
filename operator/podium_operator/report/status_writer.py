"""Write the statuses of trials and jobs: changes at once, figures that merely moved less often.

A status is applied whole, so a patch that is left out only makes it older. Called at the end of each reconcile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, TRIALS, Resource
from podium_core.curves.final_value import Forecast
from podium_core.domain.actions import EndJob, EndTrial, TrialRank
from podium_core.domain.phase import REQUEUES, TrialPhase
from podium_core.domain.snapshot import JobKey, JobView, Snapshot, TrialKey
from podium_core.planning.eta import estimate
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import Migration, Rebalanced
from podium_operator.jobs.events import Announcements
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import World, job_key, trial_key
from podium_operator.observe.observation import Sight
from podium_operator.observe.trial_state import SeenTrial
from podium_operator.report.job_status import job_status
from podium_operator.report.trial_status import trial_status
from podium_operator.reservations.condition import Leased

MANAGER = "podium-operator"
PARALLEL_CALLS = 16
# fields whose change is urgent: everything else in a status is a figure or a sentence about figures
URGENT = ("phase", "attempt", "failures", "pod", "observedGeneration", "finishedAt", "migration", "rebalanced")
log = logging.getLogger(__name__)
Manifest = dict[str, Any]


class Statuses:
    """Writes statuses and the Events about them."""

    def __init__(self, api: Api, interval: float, metrics: Metrics) -> None:
        self._api = api
        self._interval = interval
        self._metrics = metrics
        self._written: dict[str, tuple[float, Manifest]] = {}
        self._announcements = Announcements(api)
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)

    async def write(
        self,
        world: World,
        sights: Mapping[TrialKey, Sight],
        snapshot: Snapshot,
        places: Mapping[TrialKey, TrialRank],
        ends: Mapping[TrialKey, EndTrial],
        job_ends: Mapping[JobKey, EndJob],
        predicted: Mapping[TrialKey, Forecast],
        leased: Mapping[JobKey, Leased],
        carrying: Mapping[TrialKey, Migration],
        levelled: Mapping[TrialKey, Rebalanced] | None = None,
        left_out: Mapping[JobKey, str] | None = None,
    ) -> None:
        """Write all statuses that changed, the jobs' last."""
        calls, told = [], []
        by_job: dict[JobKey, list[SeenTrial]] = {}
        for trial in world.trials:
            key = trial_key(trial)
            by_job.setdefault(job_key(trial), []).append(trial)
            status = trial_status(
                trial,
                world.job_by_key.get(job_key(trial)),
                sights[key],
                now=world.now,
                place=places.get(key),
                end=ends.get(key),
                predicted=predicted.get(key),
                carrying=carrying.get(key),
                levelled=(levelled or {}).get(key),
            )
            calls.append(self._trial(trial, status, sights[key], world.now))
            told.append(self._announcements.losses(trial))
        await asyncio.gather(*calls, *told)
        jobs = []  # last: when a job has ended, its trials have reported how they ended
        for view in snapshot.jobs:
            job = world.job_by_key[view.key]
            mine = by_job.get(view.key, [])
            about = job_ends.get(view.key), leased.get(view.key), (left_out or {}).get(view.key)
            jobs.append(self._job(world, job, view, mine, sights, snapshot, *about))
        await asyncio.gather(*jobs)
        self._forget(world)
        self._count(world, sights)

    async def _trial(self, trial: SeenTrial, status: Manifest, sight: Sight, now: float) -> None:
        if await self._apply(TRIALS, trial, trial.status.phase.value, status, now):
            for end in sight.unwritten:
                await self._announcements.requeued(trial, end.reason, end.message)

    async def _job(
        self,
        world: World,
        job: HyperParamJob,
        view: JobView,
        trials: list[SeenTrial],
        sights: Mapping[TrialKey, Sight],
        snapshot: Snapshot,
        end: EndJob | None,
        leased: Leased | None,
        left_out: str | None,
    ) -> bool:
        try:
            eta = estimate(view, snapshot)
            status = job_status(
                job,
                trials,
                sights,
                now=world.now,
                size=view.max_trials,
                eta=eta,
                end=end,
                leased=leased,
                left_out=left_out,
            )
        except Exception as error:  # an inconsistent job does not affect the others
            log.error("the status of job %s/%s was not written: %r", job.metadata.namespace, job.metadata.name, error)
            return False
        written = await self._apply(JOBS, job, job.status.phase, status, world.now)
        if written:
            await self._announcements.best(job, status)
        return written

    async def _apply(
        self, resource: Resource, item: SeenTrial | HyperParamJob, stored: str, status: Manifest, now: float
    ) -> bool:
        """Apply the status unless it is unchanged or can wait; return True if it was written."""
        meta = item.metadata
        before = self._written.get(meta.uid)
        if before is not None:
            moment, last = before
            if last == status:
                return False
            if not _urgent(last, status) and now - moment < self._interval:
                return False
        # resourceVersion identifies the object that was read (the server ignores a uid here): a later object of the
        # same name must not get this status. A concurrent change wakes the next reconcile, which writes then.
        about = {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version}
        manifest = {"metadata": about, "status": status}
        try:
            async with self._slots:
                await self._api.apply_status(resource, manifest, manager=MANAGER)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                log.warning(
                    "the status of %s %s/%s was not written: %s", resource.kind, meta.namespace, meta.name, error
                )
            return False
        self._written[meta.uid] = (now, status)
        if stored != status["phase"]:
            await self._announcements.phase(resource, item, stored, status)
        if isinstance(item, SeenTrial):
            await self._announcements.carrying(item, status)
        return True

    def _forget(self, world: World) -> None:
        there = {trial.metadata.uid for trial in world.trials} | {job.metadata.uid for job in world.jobs}
        for uid in self._written.keys() - there:
            del self._written[uid]
        self._announcements.forget(there)

    def _count(self, world: World, sights: Mapping[TrialKey, Sight]) -> None:
        phases = Counter(sight.phase for sight in sights.values())
        for phase in TrialPhase:
            self._metrics.trials.labels(phase.value).set(phases[phase])
        jobs = Counter(job.status.phase for job in world.jobs)
        for name in ("Pending", "Running", "Suspended", "Succeeded", "Failed", "Refused"):
            self._metrics.jobs.labels(name).set(jobs[name])


def _urgent(last: Manifest, status: Manifest) -> bool:
    """Return True if the status has to be written at once: a requeue's reason must be stored before the pod is gone."""
    if last.get("reason") != status.get("reason") and status.get("reason") in REQUEUES:
        return True
    return any(last.get(field) != status.get(field) for field in URGENT)

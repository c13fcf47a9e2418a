"""Write the statuses of trials and jobs: changes at once, figures that merely moved less often.

A status is applied whole, so a patch that is left out only makes it older. Called at the end of each reconcile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, TRIALS, Resource
from podium_core.curves.prediction.final_value import Forecast
from podium_core.domain.actions import EndJob, EndTrial, TrialRank
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import REQUEUES
from podium_core.domain.snapshot import JobView, Snapshot
from podium_core.planning.eta import Eta, estimate
from podium_core.planning.queues.queue_rules import JobQueue
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import Migration, Rebalanced
from podium_operator.jobs.events import EventRecorder
from podium_operator.log_fields import about_item
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, job_key, trial_key
from podium_operator.observe.observation import Observation
from podium_operator.observe.trial_state import TrialState
from podium_operator.report import gauges
from podium_operator.report.job_status import JobReport, job_status
from podium_operator.report.trial_status import TrialReport, trial_status
from podium_operator.reservations.condition import ReservationCondition

MANAGER = "podium-operator"
PARALLEL_CALLS = 16
# fields whose change is urgent: everything else in a status is a figure or a sentence about figures
URGENT = (
    *("phase", "attempt", "failures", "pod", "nodes", "workers"),
    *("observedGeneration", "finishedAt", "migration", "rebalanced"),
)
log = logging.getLogger(__name__)
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """Decisions of a reconcile, by trial or job; `TrialReport` and `JobReport` describe the entries."""

    rankings: Mapping[TrialKey, TrialRank] = field(default_factory=dict)
    ends: Mapping[TrialKey, EndTrial] = field(default_factory=dict)
    job_ends: Mapping[JobKey, EndJob] = field(default_factory=dict)
    predicted: Mapping[TrialKey, Forecast] = field(default_factory=dict)
    reservations: Mapping[JobKey, ReservationCondition] = field(default_factory=dict)
    migrations: Mapping[TrialKey, Migration] = field(default_factory=dict)
    rebalanced: Mapping[TrialKey, Rebalanced] = field(default_factory=dict)
    left_out: Mapping[JobKey, str] = field(default_factory=dict)
    queues: Mapping[JobKey, JobQueue] = field(default_factory=dict)

    def of_trial(self, key: TrialKey) -> TrialReport:
        """Return what was decided about a trial."""
        return TrialReport(
            ranking=self.rankings.get(key),
            end=self.ends.get(key),
            predicted=self.predicted.get(key),
            migration=self.migrations.get(key),
            rebalanced=self.rebalanced.get(key),
        )

    def of_job(self, view: JobView, eta: Eta) -> JobReport:
        """Return what was decided about a job."""
        return JobReport(
            size=view.limits.max_trials,
            eta=eta,
            end=self.job_ends.get(view.key),
            reservations=self.reservations.get(view.key),
            left_out=self.left_out.get(view.key),
            queue=self.queues.get(view.key),
        )


class StatusWriter:
    """Writer of statuses and of the Events about them."""

    def __init__(self, api: Api, interval: float, metrics: Metrics) -> None:
        self._api = api
        self._interval = interval
        self._metrics = metrics
        self._written: dict[str, tuple[float, Manifest]] = {}
        self._event_recorder = EventRecorder(api)
        self._lost_work = gauges.LostWorkCounter(metrics)
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)

    async def write(
        self,
        cluster: ClusterState,
        observations: Mapping[TrialKey, Observation],
        snapshot: Snapshot,
        report: Report,
    ) -> None:
        """Write all statuses that changed, the jobs' last."""
        calls, events = [], []
        by_job: dict[JobKey, list[TrialState]] = {}
        for trial in cluster.trials:
            key = trial_key(trial)
            by_job.setdefault(job_key(trial), []).append(trial)
            job = cluster.job_by_key.get(job_key(trial))
            status = trial_status(trial, job, observations[key], report.of_trial(key), cluster.now)
            calls.append(self._trial(trial, status, observations[key], cluster.now))
            events.append(self._event_recorder.work_lost(trial))
        await asyncio.gather(*calls, *events)
        jobs = []  # last: when a job has ended, its trials have reported how they ended
        for view in snapshot.jobs:
            trials = by_job.get(view.key, [])
            jobs.append(self._job(cluster, view, trials, observations, snapshot, report))
        await asyncio.gather(*jobs)
        self._forget(cluster)
        self._lost_work.count(cluster.trials)
        gauges.export(self._metrics, cluster, observations)

    async def _trial(self, trial: TrialState, status: Manifest, observation: Observation, now: float) -> None:
        if await self._apply(TRIALS, trial, trial.status.phase.value, status, now):
            for end in observation.attempts.unreported_ends:
                await self._event_recorder.requeued(trial, end.reason, end.message)

    async def _job(
        self,
        cluster: ClusterState,
        view: JobView,
        trials: list[TrialState],
        observations: Mapping[TrialKey, Observation],
        snapshot: Snapshot,
        report: Report,
    ) -> bool:
        job = cluster.job_by_key[view.key]
        try:
            status = job_status(job, trials, observations, report.of_job(view, estimate(view, snapshot)), cluster.now)
        except Exception as error:  # an inconsistent job does not affect the others
            with about_item(job):
                name = f"{job.metadata.namespace}/{job.metadata.name}"
                log.error("the status of job %s was not written: %r", name, error)
            return False
        written = await self._apply(JOBS, job, job.status.phase, status, cluster.now)
        if written:
            await self._event_recorder.leader_changed(job, status)
        return written

    async def _apply(
        self, resource: Resource, item: TrialState | HyperParamJob, stored: str, status: Manifest, now: float
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
                with about_item(item):
                    what = f"{resource.kind} {meta.namespace}/{meta.name}"
                    log.warning("the status of %s was not written: %s", what, error)
            return False
        self._written[meta.uid] = (now, status)
        if stored != status["phase"]:
            with about_item(item):
                await self._event_recorder.phase_changed(resource, item, stored, status)
        if isinstance(item, TrialState):
            await self._event_recorder.migration_changed(item, status)
        return True

    def _forget(self, cluster: ClusterState) -> None:
        there = {trial.metadata.uid for trial in cluster.trials} | {job.metadata.uid for job in cluster.jobs}
        for uid in self._written.keys() - there:
            del self._written[uid]
        self._event_recorder.forget(there)


def _urgent(last: Manifest, status: Manifest) -> bool:
    """Return True if the status has to be written at once: a requeue's reason must be stored before the pod is gone."""
    if last.get("reason") != status.get("reason") and status.get("reason") in REQUEUES:
        return True
    return any(last.get(name) != status.get(name) for name in URGENT)

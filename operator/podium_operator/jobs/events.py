"""Record Kubernetes Events about jobs and trials, each fact once. `status_writer` uses it.

Switches of a GPU are too frequent for Events; the GPUNode lists them instead.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Literal

from podium_cluster import events
from podium_cluster.client import Api
from podium_cluster.resources import JOBS, TRIALS, Resource
from podium_core.domain.migration import CANCELLED_CODES, MigrationPhase
from podium_core.domain.phase import REQUEUES, TrialPhase
from podium_core.schema.base import ObjectMeta
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import LostWork, LostWorkRecord
from podium_operator.observe.trial_state import TrialState

COMPONENT = "podium-operator"
_QUIET = frozenset(
    {TrialPhase.GATED, TrialPhase.SUSPENDING, TrialPhase.SUSPENDED, TrialPhase.RESUMING, TrialPhase.PENDING}
)
log = logging.getLogger(__name__)
Status = Mapping[str, Any]


async def emit(
    api: Api,
    resource: Resource,
    meta: ObjectMeta,
    reason: str,
    message: str,
    kind: Literal["Normal", "Warning"] = "Normal",
) -> None:
    """Record one Event about this object."""
    about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    await events.emit(api, resource, about, events.EventText(reason, message, kind), component=COMPONENT)


class EventRecorder:
    """Records Events, and remembers each job's leader and each trial's lost work."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._leader: dict[str, str] = {}
        self._lost_work_counts: dict[str, int] = {}

    async def phase_changed(
        self, resource: Resource, item: TrialState | HyperParamJob, stored: str, status: Status
    ) -> None:
        """Record that the phase changed from `stored`."""
        phase, reason, meta = status["phase"], status["reason"], item.metadata
        log.info("%s %s/%s: %s -> %s (%s)", resource.kind, meta.namespace, meta.name, stored, phase, reason)
        if resource is JOBS:
            kind: Literal["Normal", "Warning"] = "Warning" if phase == "Failed" else "Normal"
            await emit(self._api, JOBS, meta, _job_reason(phase, reason), status["message"] or reason, kind)
            return
        if phase in _QUIET or (phase == TrialPhase.RUNNING and stored in _QUIET - {"Gated"}):
            return
        if phase == TrialPhase.REQUEUED:
            await self.requeued(item, reason, status["message"])
            return
        bad: Literal["Normal", "Warning"] = "Warning" if phase == TrialPhase.FAILED else "Normal"
        await self._of_attempt(item, events.EventText(f"Trial{phase}", status["message"] or reason, bad))

    async def requeued(self, trial: TrialState | HyperParamJob, reason: str, message: str) -> None:
        """Record that an attempt ended and another one continues: a warning unless Podium moves the trial."""
        kind: Literal["Normal", "Warning"] = "Normal" if reason in REQUEUES else "Warning"
        await self._of_attempt(trial, events.EventText("TrialRequeued", f"{reason}: {message}", kind))

    async def _of_attempt(self, trial: TrialState | HyperParamJob, text: events.EventText) -> None:
        """Record an Event that another attempt of the same trial may repeat with the same text."""
        meta = trial.metadata
        attempt = "" if isinstance(trial, HyperParamJob) else str(trial.status.attempt)
        about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        await events.emit(self._api, TRIALS, about, replace(text, occurrence=attempt), component=COMPONENT)

    async def migration_changed(self, trial: TrialState, status: Status) -> None:
        """Record that a live migration started, succeeded or failed."""
        before, now = trial.status.migration, status.get("migration")
        if now is None or (before is not None and before.phase == now["phase"]):
            return
        route = f"from {now['sourceNode']} to {now['targetNode']}"
        match MigrationPhase(now["phase"]):
            case MigrationPhase.REQUESTED:
                text = f"{now['reason']}: the trial is migrated {route} while it runs."
                await emit(self._api, TRIALS, trial.metadata, "MigrationStarted", text)
            case MigrationPhase.RESTORED:
                await emit(self._api, TRIALS, trial.metadata, "Migrated", f"The trial was migrated {route}.")
            case MigrationPhase.FAILED:
                text = f"The trial was not migrated {route}: {now['code']}: {now['message']}"
                kind: Literal["Normal", "Warning"] = "Normal" if now["code"] in CANCELLED_CODES else "Warning"
                await emit(self._api, TRIALS, trial.metadata, "MigrationFailed", text, kind)

    async def leader_changed(self, job: HyperParamJob, status: Status) -> None:
        """Record that another trial leads; an improvement of the leader is not recorded."""
        best, before = status.get("best"), self._leader.get(job.metadata.uid)
        if best is None or best["trial"] == before:
            return
        self._leader[job.metadata.uid] = best["trial"]
        if before is None and job.status.best is not None and job.status.best.trial == best["trial"]:
            return  # recorded before this operator started
        text = f"Trial {best['trial']} leads with {best['value']:.6g} at step {best['step']:g}."
        await emit(self._api, JOBS, job.metadata, "NewBest", text)

    async def work_lost(self, trial: TrialState) -> None:
        """Record that a new attempt had to start further back than the last one had reached."""
        lost_work, uid = trial.status.lost_work, trial.metadata.uid
        before = self._lost_work_counts.setdefault(
            uid, lost_work.count
        )  # lost_work before this operator started are recorded already
        if lost_work.count > before:
            self._lost_work_counts[uid] = lost_work.count
            await emit(self._api, TRIALS, trial.metadata, "WorkLost", _lost_work_text(lost_work), "Warning")

    def forget(self, there: Collection[str]) -> None:
        """Keep only what concerns objects with these uids."""
        self._leader = {uid: name for uid, name in self._leader.items() if uid in there}
        self._lost_work_counts = {uid: count for uid, count in self._lost_work_counts.items() if uid in there}


def _lost_work_text(lost_work: LostWork) -> str:
    if not lost_work.recent:
        return f"{lost_work.steps:g} steps and {lost_work.gpu_seconds:.1f} GPU-seconds are lost so far."
    last: LostWorkRecord = lost_work.recent[-1]
    return (
        f"Attempt {last.attempt} continues from step {last.resumed_from:g}, the one before reached step "
        f"{last.step:g}: {last.steps:g} steps and {last.gpu_seconds:.1f} GPU-seconds are lost."
    )


def _job_reason(phase: str, reason: str) -> str:
    """Return the Event's reason: for a job that ended the reason of the end, else one for its phase."""
    return {"Running": "Started", "Pending": "Waiting", "Suspended": "Suspended"}.get(phase, reason)

"""Kubernetes Events about jobs and trials: what a person would ask about, told once. Used by `statuses`.

The hand-overs of a GPU are many and stand on the GPUNode instead.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, Literal

from podium_cluster import events
from podium_cluster.client import Api
from podium_cluster.resources import JOBS, TRIALS, Resource
from podium_core.domain.migration import CANCELLED_CODES, MigrationPhase
from podium_core.domain.phase import REQUEUES, TrialPhase
from podium_core.schema.base import ObjectMeta
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import LostWork, LostWorkRecord
from podium_operator.observe.trial_state import SeenTrial

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
    """One Event about this very object."""
    about = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    await events.emit(api, resource, about, reason=reason, message=message, component=COMPONENT, kind=kind)


class Announcements:
    """Remembers what was told: the leader of each job and the losses of each trial."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._leader: dict[str, str] = {}
        self._losses: dict[str, int] = {}

    async def phase(self, resource: Resource, item: SeenTrial | HyperParamJob, stored: str, status: Status) -> None:
        """The phase changed from `stored`."""
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
        await emit(self._api, TRIALS, meta, f"Trial{phase}", status["message"] or reason, bad)

    async def requeued(self, trial: SeenTrial | HyperParamJob, reason: str, message: str) -> None:
        """An attempt ended, and another one goes on: no trouble where Podium moves the trial itself."""
        kind: Literal["Normal", "Warning"] = "Normal" if reason in REQUEUES else "Warning"
        await emit(self._api, TRIALS, trial.metadata, "TrialRequeued", f"{reason}: {message}", kind)

    async def carrying(self, trial: SeenTrial, status: Status) -> None:
        """When a live trial begins to leave its node, has come to another, or is not carried after all."""
        before, now = trial.status.migration, status.get("migration")
        if now is None or (before is not None and before.phase == now["phase"]):
            return
        way = f"from {now['sourceNode']} to {now['targetNode']}"
        match MigrationPhase(now["phase"]):
            case MigrationPhase.REQUESTED:
                text = f"{now['reason']}: the trial is carried {way}, alive."
                await emit(self._api, TRIALS, trial.metadata, "MigrationStarted", text)
            case MigrationPhase.RESTORED:
                await emit(self._api, TRIALS, trial.metadata, "Migrated", f"The trial was carried {way}.")
            case MigrationPhase.FAILED:
                text = f"The trial is not carried {way}: {now['code']}: {now['message']}"
                kind: Literal["Normal", "Warning"] = "Normal" if now["code"] in CANCELLED_CODES else "Warning"
                await emit(self._api, TRIALS, trial.metadata, "MigrationFailed", text, kind)

    async def best(self, job: HyperParamJob, status: Status) -> None:
        """When another trial takes the lead; a leader that improves is not news."""
        best, before = status.get("best"), self._leader.get(job.metadata.uid)
        if best is None or best["trial"] == before:
            return
        self._leader[job.metadata.uid] = best["trial"]
        if before is None and job.status.best is not None and job.status.best.trial == best["trial"]:
            return  # told before this operator started
        text = f"Trial {best['trial']} leads with {best['value']:.6g} at step {best['step']:g}."
        await emit(self._api, JOBS, job.metadata, "NewBest", text)

    async def losses(self, trial: SeenTrial) -> None:
        """When a new attempt had to begin further back than the last one came."""
        losses, uid = trial.status.lost_work, trial.metadata.uid
        before = self._losses.setdefault(uid, losses.count)  # what was there before us was told
        if losses.count > before:
            self._losses[uid] = losses.count
            await emit(self._api, TRIALS, trial.metadata, "WorkLost", _loss(losses), "Warning")

    def forget(self, there: Collection[str]) -> None:
        """Keep only what is about objects with these uids."""
        self._leader = {uid: name for uid, name in self._leader.items() if uid in there}
        self._losses = {uid: count for uid, count in self._losses.items() if uid in there}


def _loss(losses: LostWork) -> str:
    if not losses.recent:
        return f"{losses.steps:g} steps and {losses.gpu_seconds:.1f} GPU-seconds are lost so far."
    last: LostWorkRecord = losses.recent[-1]
    return (
        f"Attempt {last.attempt} goes on from step {last.resumed_from:g}, its forerunner came to step {last.step:g}: "
        f"{last.steps:g} steps and {last.gpu_seconds:.1f} GPU-seconds are lost."
    )


def _job_reason(phase: str, reason: str) -> str:
    """A job that ended says why (TargetReached, AllTrialsEnded, TooManyFailedTrials, ...)."""
    return {"Running": "Started", "Pending": "Waiting", "Suspended": "Suspended"}.get(phase, reason)

"""Removes the archives and images that this node's agents made and that nobody goes on from any more: of an agent that
was killed before it answered, of a trial that ended on its way, of a new pod that never ran.

Called by `departures` now and then. What was made is known by this node's notes (`traces`), so that no other node's
image is ever touched. Those stay that the trial's status names while it is on its way, and the one that this node's
agent has answered with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from podium_agent.migration import archive
from podium_agent.migration.artifacts import Trace, Traces
from podium_agent.migration.checkpointing import registry_of
from podium_agent.migration.kubelet import Container
from podium_agent.migration.move import REPOSITORY
from podium_agent.migration.refusal import MoveError
from podium_agent.migration.settings import MoveSettings
from podium_agent.report.trial_record import TrialRecord
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS
from podium_core.domain.migration import IN_PROGRESS
from podium_core.schema.trial import HyperParamTrial

log = logging.getLogger(__name__)


async def remove(settings: MoveSettings, image: str, namespace: str) -> None:
    """Only of its own namespace and registry, whoever named it. Raises MoveError."""
    if image.startswith(f"{settings.registry}/{REPOSITORY}/{namespace}/"):
        await registry_of(settings).delete(image)


class Sweeping:
    """`here`: whether a pod is on this node; `leaves`: and an image of it is being made; `makes`: of a container of
    that name, which may be a later trial's of the same name."""

    def __init__(
        self,
        settings: MoveSettings,
        api: Api,
        traces: Traces,
        here: Callable[[str], bool],
        leaves: Callable[[str], bool],
        trial_record_of: Callable[[str], TrialRecord | None],
        makes: Callable[[Container], bool],
    ) -> None:
        self._settings, self._api, self._traces = settings, api, traces
        self._here, self._leaves, self._trial_record_of, self._makes = here, leaves, trial_record_of, makes

    async def look(self, now: float) -> None:
        """`now`: seconds since 1970. What cannot be done now is done at the next look."""
        for uid, trace in (await asyncio.to_thread(self._traces.read)).items():
            if self._leaves(uid):
                continue
            try:
                await self._sweep(uid, trace, now)
            except (MoveError, ApiError, OSError, ValueError) as error:  # one that nobody can read keeps no other back
                log.warning("what %s left is swept later: %s", trace.pod, error)

    async def _sweep(self, uid: str, trace: Trace, now: float) -> None:
        if not self._makes(trace.place):
            await asyncio.to_thread(archive.sweep, self._settings.checkpoints_dir, trace.place)
        trial_record = self._trial_record_of(uid) if self._here(uid) else None
        if self._here(uid) and (trial_record is None or trial_record.ledger is None):
            return  # what its agent answered before is not known yet
        told = await self._told(trace)
        if self._leaves(uid):  # begun while the API was asked
            return
        counts = (
            told
            if trial_record is None or trial_record.container_checkpoint is None
            else told | {trial_record.container_checkpoint.image}
        )
        done = [image for image in trace.images if image not in counts]
        for image in done:
            await remove(self._settings, image, trace.namespace)
            log.info("%s: image %s is not needed any more", trace.pod, image)
        if self._leaves(uid):  # begun meanwhile: it writes the note itself
            return
        # a runtime that was asked goes on writing for so long, though nobody waits for the archive any more
        if not self._traces.drop(uid, done) and self._traces.age(uid, now) > 2 * self._settings.move_seconds:
            self._traces.forget(uid)

    async def _told(self, trace: Trace) -> frozenset[str]:
        """Those that the trial's status names while it is on its way. Raises ApiError."""
        try:
            trial = HyperParamTrial.model_validate(await self._api.get(TRIALS, trace.trial, trace.namespace))
        except ApiError as error:
            if not error.not_found:
                raise
            return frozenset()
        way, answer = trial.status.migration, trial.status.container_checkpoint
        if trial.metadata.uid != trace.uid or way is None or way.phase not in IN_PROGRESS:
            return frozenset()
        told = answer.image if answer is not None and answer.pod_uid == way.pod_uid else ""
        return frozenset({way.image, told})

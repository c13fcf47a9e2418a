"""Remove the archives and images of this node's agents that no trial needs any more.

Such artifacts remain if an agent is killed before it reports a result, if a trial ends during its migration, or if a
new pod never runs. The controller calls this periodically. Only artifacts in this node's records (`artifacts`) are
removed, never another node's. An image is kept while the status of a migrating trial names it, or while it is the
current result of this node's agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from podium_agent.migration import archive
from podium_agent.migration.artifacts import ArtifactRecord, ArtifactRecords
from podium_agent.migration.container_checkpoint import registry_from
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.kubelet import ContainerRef
from podium_agent.migration.settings import MigrationSettings
from podium_agent.report.trial_record import TrialRecord
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import TRIALS
from podium_core.domain.migration import IN_PROGRESS
from podium_core.schema.checkpoint_image import ImageReference
from podium_core.schema.trial import HyperParamTrial

log = logging.getLogger(__name__)


async def remove_image(settings: MigrationSettings, image: str, namespace: str) -> None:
    """Remove an image from the registry if it is Podium's and of this namespace. Raises MigrationError.

    Any other reference is ignored: a pod's image is written by its namespace's users.
    """
    try:
        parsed = ImageReference.parse(image)
    except ValueError as error:
        log.warning("no image is removed: %s", error)
        return
    if (parsed.registry, parsed.namespace) == (settings.registry, namespace):
        await registry_from(settings).delete(parsed)


@dataclass(frozen=True, slots=True)
class MigrationChecks:
    """Questions that the garbage collector asks the controller about a pod or a container.

    `is_local`: whether the pod with this UID is on this node.
    `is_migrating`: whether an image of the pod with this UID is being made.
    `is_checkpointing`: whether an image of this container is being made, perhaps of a later pod of the same name.
    """

    is_local: Callable[[str], bool]
    is_migrating: Callable[[str], bool]
    is_checkpointing: Callable[[ContainerRef], bool]


class GarbageCollector:
    """Removes unneeded archives and images, by this node's `records`."""

    def __init__(
        self,
        settings: MigrationSettings,
        api: Api,
        records: ArtifactRecords,
        checks: MigrationChecks,
        trial_record_of: Callable[[str], TrialRecord | None],
    ) -> None:
        self._settings, self._api, self._records = settings, api, records
        self._checks, self._trial_record_of = checks, trial_record_of

    async def collect(self) -> None:
        """Collect the garbage of all pods; failures are retried at the next call."""
        for uid, record in (await asyncio.to_thread(self._records.read)).items():
            if self._checks.is_migrating(uid):
                continue
            try:
                await self._collect(uid, record)
            except (MigrationError, ApiError, OSError, ValueError) as error:  # must not block the other records
                log.warning("cannot remove the migration artifacts of %s yet: %s", record.pod, error)

    async def _collect(self, uid: str, record: ArtifactRecord) -> None:
        if not self._checks.is_checkpointing(record.container_ref):
            await asyncio.to_thread(archive.remove_archives, self._settings.checkpoints_dir, record.container_ref)
        trial_record = self._trial_record_of(uid) if self._checks.is_local(uid) else None
        if self._checks.is_local(uid) and (trial_record is None or trial_record.ledger is None):
            return  # an earlier result of this node's agent is not known yet
        needed = await self._images_in_status(record)
        if self._checks.is_migrating(uid):  # a checkpoint started during the request
            return
        if trial_record is not None and trial_record.container_checkpoint.result is not None:
            needed |= {trial_record.container_checkpoint.result.image}
        unneeded = [image for image in record.images if image not in needed]
        for image in unneeded:
            await remove_image(self._settings, image, record.namespace)
            log.info("%s: removed image %s, which is not needed any more", record.pod, image)
        if self._checks.is_migrating(uid):  # a checkpoint started in the meantime and writes the record itself
            return
        # the runtime may continue to write an archive for this time after the request was cancelled
        if (
            not self._records.remove_images(uid, unneeded)
            and self._records.age(uid) > 2 * self._settings.migration_step_seconds
        ):
            self._records.remove(uid)

    async def _images_in_status(self, record: ArtifactRecord) -> frozenset[str]:
        """Return the images that the status of a migrating trial names. Raises ApiError."""
        try:
            trial = HyperParamTrial.model_validate(await self._api.get(TRIALS, record.trial, record.namespace))
        except ApiError as error:
            if not error.not_found:
                raise
            return frozenset()
        migration, result = trial.status.migration, trial.status.container_checkpoint
        if trial.metadata.uid != record.uid or migration is None or migration.phase not in IN_PROGRESS:
            return frozenset()
        image = result.image if result is not None and result.pod_uid == migration.pod_uid else ""
        return frozenset({migration.image, image})

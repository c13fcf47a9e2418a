"""The agent's part in live migrations: checkpoint the trials that the operator asks for, and remove unneeded images.

The operator asks with the annotation `podium.dev/migrate` on a trial's pod. The agent starts once the trial is
suspended, and writes the result into the trial's status with the last lines of its log (`containerCheckpoint`). If the
annotation is removed, the agent undoes unfinished work and removes the image. The trial then continues on this node at
its turn in the run queue. If an agent dies half-way, the next agent starts again from the container's original state.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from podium_agent.log_fields import about_pod
from podium_agent.migration import archive
from podium_agent.migration.artifacts import ArtifactRecords
from podium_agent.migration.container_checkpoint import MigrationSource, MigrationTools, checkpoint_container, get_pod
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.garbage_collection import GarbageCollector, MigrationChecks, remove_image
from podium_agent.migration.kubelet import ContainerRef
from podium_agent.migration.settings import MigrationSettings
from podium_agent.observe.cgroups import Freezer
from podium_agent.observe.pod_records import PodRecord
from podium_agent.observe.pods import TrialPod
from podium_agent.report.trial_record import TrialRecord
from podium_cluster.client import Api, ApiError
from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.schema.gpunode import SlotState
from podium_core.schema.trial import ContainerCheckpoint

log = logging.getLogger(__name__)
INTERVAL_SECONDS = 0.5
RETRY_SECONDS = 10.0  # after the API server or the registry was not available
COLLECTION_SECONDS = 10.0


class MigrationController:
    """Task that checkpoints trials and cleans up.

    `pods` returns the pods of this node; `record_of` and `trial_record_of` take a pod's UID.
    """

    def __init__(
        self,
        settings: MigrationSettings,
        api: Api,
        tools: MigrationTools,
        pods: Callable[[], Iterable[TrialPod]],
        record_of: Callable[[str], PodRecord | None],
        trial_record_of: Callable[[str], TrialRecord | None],
    ) -> None:
        self._settings, self._api, self._tools = settings, api, tools
        self._pods, self._record_of, self._trial_record_of = pods, record_of, trial_record_of
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._archives_removed: set[str] = set()
        self._archive_possible_until: dict[str, float] = {}  # until then the runtime may still write an archive
        self._removed: dict[str, str] = {}  # removed image, by pod
        self._reconciled_at = 0.0
        self._records = ArtifactRecords(settings.migration_records_dir)
        checks = MigrationChecks(self._is_local, self._tasks.__contains__, self._is_checkpointing)
        self._garbage_collector = GarbageCollector(settings, api, self._records, checks, trial_record_of)

    async def run(self) -> None:
        """Reconcile and collect garbage periodically until cancelled."""
        collect = self._garbage_collector.collect
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_run_every(INTERVAL_SECONDS, lambda: self.reconcile(time.monotonic())))
                both.create_task(_run_every(COLLECTION_SECONDS, collect))
        finally:
            await self.end()

    async def end(self) -> None:
        """Cancel and undo the unfinished checkpoints."""
        for task in self._tasks.values():
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def reconcile(self, now: float) -> None:
        """Start, cancel and clean up checkpoints as the annotations of the pods ask."""
        self._reconciled_at = now
        there = {pod.uid: pod for pod in self._pods()}
        self._drop_others(there.keys())
        for uid, task in list(self._tasks.items()):
            requested = uid in there and there[uid].migration.to and there[uid].termination.deadline is None
            if not requested and not task.cancelling():  # cancel once: undoing takes longer than one interval
                task.cancel()
            if task.done():
                del self._tasks[uid]
        for uid, pod in there.items():
            trial_record = self._trial_record_of(uid)
            self._update_image_state(pod, trial_record)
            if now < self._not_before.get(uid, 0.0) or uid in self._tasks:
                continue
            if pod.migration.to and trial_record is not None and _can_start(pod, trial_record):
                self._tasks[uid] = asyncio.get_running_loop().create_task(self._checkpoint(pod, trial_record, now))
            elif not pod.migration.to and trial_record is not None:
                await self._discard_result(pod, trial_record, now)
            if pod.migration.migrated and _image_not_needed(pod):
                await self._remove(pod, pod.migration.image, now)

    def _update_image_state(self, pod: TrialPod, trial_record: TrialRecord | None) -> None:
        """Record whether the image contains all work of the trial.

        If the trial runs again (`podium thaw`), its image is out of date: the result is replaced and the trial remains
        on this node. If its pod is being deleted, the operator has already used the image.
        """
        record = self._record_of(pod.uid)
        if trial_record is None or trial_record.ledger is None or record is None:
            return
        result = trial_record.container_checkpoint.result
        runs = trial_record.state in (SlotState.RESUMING, SlotState.RUNNING) and pod.termination.deadline is None
        if pod.migration.to and result is not None and result.image and runs:
            text = "The trial ran again after its image was made; it continues on this node."
            log.warning("%s: %s", pod.name, text)
            result = ContainerCheckpoint(pod_uid=pod.uid, code="TrialResumed", message=text)
            trial_record.set_container_checkpoint(result)
        record.migration.image_complete = result is not None and bool(result.image)

    async def _checkpoint(self, pod: TrialPod, trial_record: TrialRecord, now: float) -> None:
        with about_pod(pod, trial_record.gpus):
            await self._checkpoint_and_report(pod, trial_record, now)

    async def _checkpoint_and_report(self, pod: TrialPod, trial_record: TrialRecord, now: float) -> None:
        self._archive_possible_until[pod.uid] = now + 2 * self._settings.migration_step_seconds
        try:
            result = await self._make_image(pod)
        except ApiError as error:
            log.warning("%s cannot be checkpointed yet: %s", pod.name, error)
            self._not_before[pod.uid] = self._reconciled_at + RETRY_SECONDS  # the attempt may have taken minutes
            return
        except MigrationError as refused:
            result = ContainerCheckpoint(pod_uid=pod.uid, code=refused.code, message=refused.message)
        except Exception as error:  # without a result the trial remains suspended until the operator gives up
            log.exception("%s cannot be checkpointed", pod.name)
            result = ContainerCheckpoint(pod_uid=pod.uid, code="Crashed", message=repr(error))
        summary = result.image or f"{result.code}: {result.message}"
        log.info("live migration of %s to %s: %s", pod.name, pod.migration.to, summary)
        if any(one.uid == pod.uid and one.termination.deadline is not None for one in self._pods()):
            return  # it may run by now to write a checkpoint, so the image is out of date
        trial_record.set_container_checkpoint(result)
        self._update_image_state(pod, trial_record)

    async def _make_image(self, pod: TrialPod) -> ContainerCheckpoint:
        if CONTAINER_CHECKPOINT not in pod.settings.methods:
            raise MigrationError(
                "MethodNotEnabled", f"the job of {pod.name} does not name {CONTAINER_CHECKPOINT} in suspension.methods"
            )
        record = self._record_of(pod.uid)
        running = None if record is None else record.processes.containers.get(pod.containers.main)
        if running is None:
            message = f"the first container of {pod.name} does not run on this node"
            raise MigrationError("ContainerNotRunning", message)
        container = _container_ref(pod)
        await self._freeze_again(running.freezer)
        source = MigrationSource(container, running.freezer, await get_pod(self._api, container))
        await asyncio.to_thread(self._records.begin, pod)
        before_push = functools.partial(self._records.add_image, pod.uid)
        image, gpu_state = await checkpoint_container(
            self._settings, self._api, self._tools, source, pod.migration.to, before_push
        )
        gpu_state_json = "" if gpu_state is None else gpu_state.model_dump_json()
        return ContainerCheckpoint(pod_uid=pod.uid, image=image.reference, gpu_state=gpu_state_json)

    async def _freeze_again(self, freezer: Freezer) -> None:
        """Freeze a container that an earlier agent thawed for a checkpoint; it blocks at its next CUDA call."""
        name = freezer.name
        if self._tools.notes.read(name).migrating_until:
            done = await self._tools.freeze.suspend((freezer,))
            if not done.ok:
                raise MigrationError(done.code, done.message)
            self._tools.notes.set_migrating_until(name, 0.0)

    async def _discard_result(self, pod: TrialPod, trial_record: TrialRecord, now: float) -> None:
        """Remove the archive and the image of a trial that shall not migrate, or no longer."""
        # the runtime continues to write an archive after the request was cancelled
        archive_possible = now < self._archive_possible_until.get(pod.uid, 0.0)
        if CONTAINER_CHECKPOINT in pod.settings.methods and (archive_possible or pod.uid not in self._archives_removed):
            # an earlier agent may have died half-way
            await asyncio.to_thread(archive.remove_archives, self._settings.checkpoints_dir, _container_ref(pod))
            self._archives_removed.add(pod.uid)
        result = trial_record.container_checkpoint.result
        if result is not None and (not result.image or await self._remove(pod, result.image, now)):
            trial_record.set_container_checkpoint(None)

    async def _remove(self, pod: TrialPod, image: str, now: float) -> bool:
        if self._removed.get(pod.uid) == image:
            return True
        try:
            await remove_image(self._settings, image, pod.key.namespace)
        except MigrationError as error:
            log.warning("cannot remove image %s from the registry yet: %s", image, error)
            self._not_before[pod.uid] = now + RETRY_SECONDS
            return False
        self._removed[pod.uid] = image
        return True

    def _is_local(self, pod_uid: str) -> bool:
        return any(pod.uid == pod_uid for pod in self._pods())

    def _is_checkpointing(self, container: ContainerRef) -> bool:
        return any(pod.uid in self._tasks and _container_ref(pod) == container for pod in self._pods())

    def _drop_others(self, there: Iterable[str]) -> None:
        kept = frozenset(there)
        self._archives_removed &= kept
        self._archive_possible_until = {
            uid: until for uid, until in self._archive_possible_until.items() if uid in kept
        }
        self._not_before = {uid: at for uid, at in self._not_before.items() if uid in kept}
        self._removed = {uid: image for uid, image in self._removed.items() if uid in kept}


async def _run_every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await act()
        except Exception:  # an unexpected error must not end the agent, which manages all trials of the node
            log.exception("live migration: the agent will try again")
        await asyncio.sleep(seconds)


def _container_ref(pod: TrialPod) -> ContainerRef:
    return ContainerRef(pod.key.namespace, pod.name, pod.containers.names[0])


def _image_not_needed(pod: TrialPod) -> bool:
    """Return whether the node has loaded the image or never will; after a rejection another pod needs the image."""
    main, running = pod.containers.main, pod.containers.running
    return main in running or (bool(main) if pod.status.ended else pod.termination.deadline is not None)


def _can_start(pod: TrialPod, trial_record: TrialRecord) -> bool:
    """Return whether the trial is suspended and has no result, and its status has been read (`ledger`)."""
    unanswered = trial_record.ledger is not None and trial_record.container_checkpoint.result is None
    continues = pod.termination.deadline is None and not pod.status.ended
    return unanswered and trial_record.state is SlotState.SUSPENDED and continues

"""Delete finished jobs after `ttlSecondsAfterFinished`, and clean up deleted jobs that have checkpoint folders.

The trials of a deleted job are deleted at once, and its folders in the background. The reconciler starts the clean-up;
each job is a task of its own, so nothing waits for it. The deletion does not wait for checkpoints: pods get one second.
The finalizer is removed after a minute at the latest, and an Event reports what remains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from pydantic import Field

from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, PODS, TRIALS
from podium_core.domain.keys import JobKey
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.checkpointing import checkpoint_scope
from podium_core.schema.job import HyperParamJob
from podium_operator.act.checkpoint_volume import folder_of_job
from podium_operator.act.pod_manifest import JOB_UID_LABEL
from podium_operator.cleanup.removal import Removal
from podium_operator.jobs.events import emit
from podium_operator.jobs.finalizers import ORPHAN, awaits_cleanup, remove_finalizer
from podium_operator.log_fields import about_item
from podium_operator.observe.cluster_state import ClusterState, belongs_to_job, job_key
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.snapshot import is_finished
from podium_operator.observe.trial_state import TrialState

TIMEOUT_SECONDS = 60.0  # seconds for the complete clean-up
PODS_TIMEOUT_SECONDS = 20.0  # of these, for the trials' pods: a pod on a dead node never ends
POLL_SECONDS = 0.5
LONGEST_PAUSE = 30.0  # between two tries to remove the finalizer
PARALLEL_CALLS = 16
MAX_DELETIONS = 16  # of finished jobs, in one reconcile
log = logging.getLogger(__name__)


class _Owner(StatusModel):
    uid: str


class _ChildMeta(ObjectMeta):
    owner_references: list[_Owner] = Field(default_factory=list)


class _Child(StatusModel):
    metadata: _ChildMeta


class Cleanup:
    """Clean-up of deleted jobs.

    `read_state` reads the present state; `image` is Podium's own, which can remove a folder.
    """

    def __init__(
        self, api: Api, read_state: Callable[[], ClusterState], image: str | None, seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._api = api
        self._read_state = read_state
        self._image = image
        self._seconds = seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)

    def start(self, cluster: ClusterState) -> None:
        """Start to clean up every deleted job that waits for it; a clean-up that failed is started again."""
        for uid in [uid for uid, task in self._tasks.items() if task.done()]:
            error = self._tasks.pop(uid).exception()
            if error is not None:
                log.error("clean-up of the job with uid %s failed", uid, exc_info=error)
        for job in cluster.jobs:
            if awaits_cleanup(job.metadata) and job.metadata.uid not in self._tasks:
                nodes = _nodes(cluster, job)  # read from its trials, before they are deleted
                self._tasks[job.metadata.uid] = asyncio.create_task(self._clean_up(job, nodes))

    async def delete_expired(self, cluster: ClusterState) -> None:
        """Delete the jobs whose `ttlSecondsAfterFinished` is over; `start` cleans up after them."""
        await delete_expired(self._api, cluster)

    async def _clean_up(self, job: HyperParamJob, nodes: tuple[str | None, ...]) -> None:
        """Clean up one job."""
        with about_item(job):
            await self._clean_up_and_release(job, nodes)

    async def _clean_up_and_release(self, job: HyperParamJob, nodes: tuple[str | None, ...]) -> None:
        meta = job.metadata
        left, removal = "", Removal(self._api, job, self._image, nodes)
        try:
            async with asyncio.timeout(self._seconds):
                if not await self._is_orphaning(job):
                    wrote = await self._end_trials(job) or job.status.started_at is not None
                    left = await removal.run() if wrote else ""
        except TimeoutError:
            left = f"it took longer than {self._seconds:g} s" + (f", {removal.waits}" if removal.waits else "")
        except Exception as error:  # every error: the job must not remain forever
            log.exception("clean-up of job %s/%s", meta.namespace, meta.name)
            left = str(error)
        if left:
            text = (
                f"Folder {folder_of_job(meta)} of the checkpoint volume was not removed: {left}. Remove the folder "
                "by hand."
            )
            log.warning("job %s/%s: %s", meta.namespace, meta.name, text)
            await emit(self._api, JOBS, meta, "CheckpointsNotRemoved", text, "Warning")
        await self._release(job)

    async def _is_orphaning(self, job: HyperParamJob) -> bool:
        """Return True if the user keeps the trials and so their checkpoints (`--cascade=orphan`).

        The caches may miss the moment in which the job says so. Afterwards the trials are not the job's any more.
        """
        meta = job.metadata
        if ORPHAN in meta.finalizers:
            return True
        while True:
            try:
                items = (await self._api.list(TRIALS, meta.namespace, labels=f"{JOB_UID_LABEL}={meta.uid}"))["items"]
            except ApiError as error:
                if not error.transient:
                    raise
                log.warning("trials of job %s/%s: %s", meta.namespace, meta.name, error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                owners = [_Child.model_validate(item).metadata.owner_references for item in items]
                return any(all(owner.uid != meta.uid for owner in of_trial) for of_trial in owners)

    async def _end_trials(self, job: HyperParamJob) -> bool:
        """Delete trials and pods until none is left: a reconcile may still create one. Return True if any existed."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        deleted: set[str] = set()
        any_seen = False
        while loop.time() - start < min(PODS_TIMEOUT_SECONDS, self._seconds / 3):
            cluster = self._read_state()
            trials = _trials(cluster, job)
            pods = _pods(cluster, trials, job)
            if not trials and not pods:
                break
            any_seen = True
            calls = [self._delete_pod(pod) for pod in pods if pod.uid not in deleted]
            calls += [self._delete_trial(trial) for trial in trials if trial.metadata.uid not in deleted]
            for error in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(error, BaseException):
                    log.warning("job %s/%s: %s", job.metadata.namespace, job.metadata.name, error)
                    break
            else:
                deleted |= {pod.uid for pod in pods} | {trial.metadata.uid for trial in trials}
            await asyncio.sleep(POLL_SECONDS)
        return any_seen

    async def _delete_pod(self, pod: PodState) -> None:
        async with self._slots:
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=1)

    async def _delete_trial(self, trial: TrialState) -> None:
        meta = trial.metadata
        async with self._slots:
            await self._api.delete(TRIALS, meta.name, meta.namespace, uid=meta.uid)

    async def _release(self, job: HyperParamJob) -> None:
        """Remove the finalizer, again until the job is gone: the API server may be unreachable."""
        meta, backoff = job.metadata, Backoff(first=POLL_SECONDS, longest=LONGEST_PAUSE)
        while any(
            there.metadata.uid == meta.uid and awaits_cleanup(there.metadata) for there in self._read_state().jobs
        ):
            try:
                await remove_finalizer(self._api, meta.namespace, meta.name)
            except ApiError as error:
                log.warning("finalizer of job %s/%s: %s", meta.namespace, meta.name, error)
            await asyncio.sleep(backoff.pause())


def _trials(cluster: ClusterState, job: HyperParamJob) -> list[TrialState]:
    """Return the job's trials."""
    key = JobKey(job.metadata.namespace, job.metadata.name)
    return [trial for trial in cluster.trials if job_key(trial) == key and belongs_to_job(trial, {key: job})]


def _pods(cluster: ClusterState, trials: Iterable[TrialState], job: HyperParamJob) -> list[PodState]:
    """Return the pods of the job's trials, and those whose trial is gone already."""
    mine = {trial.metadata.uid for trial in trials}
    others = {trial.metadata.uid for trial in cluster.trials} - mine
    there = [pod for pod in cluster.pods if pod.namespace == job.metadata.namespace and pod.job == job.metadata.name]
    return [pod for pod in there if pod.trial_uid not in others]


def _nodes(cluster: ClusterState, job: HyperParamJob) -> tuple[str | None, ...]:
    """Return the nodes that allocation the job's folders; (None,) for a volume that every node can mount."""
    if checkpoint_scope(job.spec) != "node":
        return (None,)
    nodes: set[str] = set()
    for trial in _trials(cluster, job):
        nodes |= trial.allocated_nodes
        nodes |= {
            node for node in (trial.status.node, trial.status.checkpoint and trial.status.checkpoint.node) if node
        }
    # an operator that starts after the trials are gone knows none of the nodes: then all nodes are cleaned
    return tuple(sorted(nodes or {node.metadata.name for node in cluster.nodes}))


def expired(jobs: Iterable[HyperParamJob], now: float) -> list[HyperParamJob]:
    """Return the finished jobs whose `ttlSecondsAfterFinished` is over at `now`, in seconds since 1970."""
    return [job for job in jobs if _is_expired(job, now)]


def _is_expired(job: HyperParamJob, now: float) -> bool:
    ttl, finished = job.spec.ttl_seconds_after_finished, job.status.finished_at
    if ttl is None or finished is None or job.metadata.deletion_timestamp is not None or not is_finished(job):
        return False
    return now - finished.timestamp() >= ttl


async def delete_expired(api: Api, cluster: ClusterState) -> None:
    """Delete expired jobs, a few in each reconcile; a refused deletion is tried again in the next one."""
    for job in expired(cluster.jobs, cluster.now)[:MAX_DELETIONS]:
        meta = job.metadata
        try:
            await api.delete(JOBS, meta.name, meta.namespace, uid=meta.uid)
            log.info("job %s/%s was deleted: its ttlSecondsAfterFinished is over", meta.namespace, meta.name)
        except ApiError as error:
            log.warning("job %s/%s was not deleted: %s", meta.namespace, meta.name, error)

"""The end of a deleted job that has folders to be removed: its trials at once, its folders in the background.

Called by the cycle; each job is a task of its own, so nothing waits for it. Deletion does not wait for saves: pods get
a second. Whatever goes wrong, the finalizer comes off after a minute at the latest, and an Event says what was left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from podium.domain.snapshot import JobKey
from podium.schema.job import HyperParamJob
from podium.schema.saving import saves_at
from podium_cluster.client import Api, ApiError
from podium_cluster.resources import JOBS, PODS, TRIALS
from podium_operator.announcements import emit
from podium_operator.checkpoints import folder_of_job
from podium_operator.cleanup_pod import CLEANUP_LABEL, make_cleanup_pod
from podium_operator.finalizers import release, to_be_cleaned
from podium_operator.seen import SeenPod
from podium_operator.seen_trial import SeenTrial
from podium_operator.world import World, job_key, of_its_job

MANAGER = "podium-operator"
LONGEST = 60.0  # seconds, for all of it
ENDING = 20.0  # of these, for the trials' pods: one on a node that is dead never goes
LOOK = 0.5
PARALLEL_CALLS = 16
log = logging.getLogger(__name__)


class Cleanup:
    """`look` is the mirror's present world; `image` is Podium's own, which can remove a folder."""

    def __init__(self, api: Api, look: Callable[[], World], image: str | None, seconds: float = LONGEST) -> None:
        self._api = api
        self._look = look
        self._image = image
        self._seconds = seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)

    def begin(self, world: World) -> None:
        """Take care of every job that was deleted and is not taken care of yet."""
        there = {job.metadata.uid for job in world.jobs}
        self._tasks = {uid: task for uid, task in self._tasks.items() if uid in there or not task.done()}
        for job in world.jobs:
            if to_be_cleaned(job) and job.metadata.uid not in self._tasks:
                nodes = _nodes(world, job)  # known from its trials, so before they go
                self._tasks[job.metadata.uid] = asyncio.create_task(self._one(job, nodes))

    async def _one(self, job: HyperParamJob, nodes: tuple[str | None, ...]) -> None:
        meta = job.metadata
        try:
            async with asyncio.timeout(self._seconds):
                await self._end_trials(job)
                left = await self._remove(job, nodes)
        except TimeoutError:
            left = f"it took longer than {self._seconds:g} s"
        except Exception as error:  # whatever it is: the job must not stay for ever
            log.exception("clean-up of job %s/%s", meta.namespace, meta.name)
            left = str(error)
        if left:
            text = f"Folder {folder_of_job(job)} of the checkpoint volume was not removed: {left}. Remove it by hand."
            log.warning("job %s/%s: %s", meta.namespace, meta.name, text)
            await emit(self._api, JOBS, meta, "CheckpointsLeft", text, "Warning")
        await self._release(job)

    async def _end_trials(self, job: HyperParamJob) -> None:
        """Until none is left: a cycle that had begun may still have made one."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        told: set[str] = set()
        while loop.time() - begin < min(ENDING, self._seconds / 3):
            world = self._look()
            trials = _trials(world, job)
            pods = _pods(world, trials, job)
            if not trials and not pods:
                return
            calls = [self._delete_pod(pod) for pod in pods if pod.uid not in told]
            calls += [self._delete_trial(trial) for trial in trials if trial.metadata.uid not in told]
            for error in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(error, BaseException):
                    log.warning("job %s/%s: %s", job.metadata.namespace, job.metadata.name, error)
                    break
            else:
                told |= {pod.uid for pod in pods} | {trial.metadata.uid for trial in trials}
            await asyncio.sleep(LOOK)

    async def _delete_pod(self, pod: SeenPod) -> None:
        async with self._slots:
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=1)

    async def _delete_trial(self, trial: SeenTrial) -> None:
        meta = trial.metadata
        async with self._slots:
            await self._api.delete(TRIALS, meta.name, meta.namespace, uid=meta.uid)

    async def _remove(self, job: HyperParamJob, nodes: tuple[str | None, ...]) -> str:
        """Empty: all folders are removed; else what went wrong."""
        if self._image is None:
            return "PODIUM_IMAGE is not set, so the operator has no image that could do it"
        namespace = job.metadata.namespace
        for number, node in enumerate(nodes):
            try:
                pod = make_cleanup_pod(job, self._image, number, node)
                await self._api.create(PODS, pod, manager=MANAGER)
            except ApiError as error:
                if not error.conflict:  # it is there: an operator before us made it
                    return f"the API server refuses the pod that removes it ({error.message})"
        labels = f"{CLEANUP_LABEL}={job.metadata.uid}"
        while True:
            pods = (await self._api.list(PODS, namespace, labels=labels))["items"]
            phases = {pod["metadata"]["name"]: pod.get("status", {}).get("phase") for pod in pods}
            failed = sorted(name for name, phase in phases.items() if phase == "Failed")
            if failed:
                return f"pod {failed[0]} failed"
            if all(phase == "Succeeded" for phase in phases.values()):
                return ""
            await asyncio.sleep(LOOK)

    async def _release(self, job: HyperParamJob) -> None:
        """Until the job is gone: the API server may be away. Its clean-up pods go with it."""
        meta, pause = job.metadata, LOOK
        while any(there.metadata.uid == meta.uid and to_be_cleaned(there) for there in self._look().jobs):
            try:
                await release(self._api, meta.namespace, meta.name)
            except ApiError as error:
                log.warning("finalizer of job %s/%s: %s", meta.namespace, meta.name, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)


def _trials(world: World, job: HyperParamJob) -> list[SeenTrial]:
    key = JobKey(job.metadata.namespace, job.metadata.name)
    return [trial for trial in world.trials if job_key(trial) == key and of_its_job(trial, {key: job})]


def _pods(world: World, trials: Iterable[SeenTrial], job: HyperParamJob) -> list[SeenPod]:
    """Those of its trials, and those whose trial is gone already."""
    mine = {trial.metadata.uid for trial in trials}
    others = {trial.metadata.uid for trial in world.trials} - mine
    there = [pod for pod in world.pods if pod.namespace == job.metadata.namespace and pod.job == job.metadata.name]
    return [pod for pod in there if pod.trial_uid not in others]


def _nodes(world: World, job: HyperParamJob) -> tuple[str | None, ...]:
    """Where its folders are; (None,): on a volume that every node can mount."""
    if saves_at(job.spec) != "node":
        return (None,)
    found: set[str] = set()
    for trial in _trials(world, job):
        found |= {hold.node for hold in trial.status.holds}
        found |= {node for node in (trial.status.node, trial.status.saved and trial.status.saved.node) if node}
    # an operator that starts when the trials are gone already knows of none: then all are looked at
    return tuple(sorted(found or {node.metadata.name for node in world.nodes}))

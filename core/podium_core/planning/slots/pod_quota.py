"""Number of pods that each job may have: equal shares, and never more pods than there are slots on GPUs.

A pod without a slot is not created. It would only wait in the scheduler's queue, and every event of the cluster would
cause a retry. Existing pods are never deleted to equalize jobs: a later job gets the slots that become free.

A trial of several GPUs needs slots on all of them at the same time. Trials of one GPU would take each slot that becomes
free, so that it would wait until their jobs end. So while a job waits for the slots of its first trial, the jobs after
it leave one slot of each GPU free. Trials in the other slots can use these GPUs meanwhile. Where a GPU has one slot
only, nothing is kept free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from podium_core.domain.fitting import fits, trials_that_fit
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.completion import Closing
from podium_core.planning.exploitation import founders_to_come, most_at_once
from podium_core.planning.queues.job_priority import slot_order
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.queues.slot_limits import QueueSlots

_NONE: Mapping[str, int] = MappingProxyType({})
CPU_ONLY_PARALLEL = 8  # trials without a GPU and `parallel: auto`: the capacity of the CPUs is not known here


@dataclass(frozen=True, slots=True)
class PodQuota:
    """`pods`: how many pods the job may have, existing ones included.

    `reason` and `message` give the limit.
    """

    pods: int
    reason: str
    message: str


def pod_quotas(
    snapshot: Snapshot, closing: Closing, promised: Mapping[str, int] = _NONE, rules: QueueRules | None = None
) -> Mapping[JobKey, PodQuota]:
    """Return the quota of each job.

    O(slots * jobs of a queue * log jobs + GPUs * jobs), if few different sets of GPUs fit the jobs.

    The job with the fewest pods gets the next one; ties go to the older job, then by name. A job of a higher priority
    comes before (`slot_order`). `promised`: by GPU, slots that wait for migrating trials. With queues (`rules`), the
    queue with the fewest slots by weight comes first, and in it the namespace with the fewest.
    """
    jobs = [j for j in sorted(snapshot.jobs, key=lambda j: (j.created, j.key)) if _open(j, closing)]
    by_key = {job.key: job for job in snapshot.jobs}
    with_pod = {key: [t for t in live if t.pod is not None] for key, live in closing.live.items()}
    pods = {job.key: len(with_pod.get(job.key, ())) for job in jobs}
    free = _Free(snapshot, [t for mine in with_pod.values() for t in mine], by_key, promised)
    wanted = {job.key: demand(job, closing) for job in jobs}
    stuck = {job.key: sum([_is_stuck(t) for t in with_pod.get(job.key, ())]) for job in jobs}
    limits: dict[JobKey, tuple[str, str]] = {}
    queued = None if rules is None else QueueSlots(rules, snapshot, [t for mine in with_pod.values() for t in mine])
    order = _order(queued, pods, len(snapshot.gpus))
    # Each job stands in the heap once. Its key only grows, so a key that has grown since it was pushed is pushed again.
    heap = [(order(job), position) for position, job in enumerate(jobs)]
    heapq.heapify(heap)
    while heap:
        known, position = heapq.heappop(heap)
        job = jobs[position]
        if (now := order(job)) != known:
            heapq.heappush(heap, (now, position))
        elif pods[job.key] >= wanted[job.key]:
            limits[job.key] = (
                "ParallelLimitReached",
                f"{pods[job.key]} trials run or wait; trials.parallel allows no more.",
            )
        elif stuck[job.key]:
            text = f"{stuck[job.key]} of its pods found no node or could not start for a minute; no more are created."
            limits[job.key] = ("PodsStuck", text)
        elif queued is not None and (refusal := queued.refusal(job)) is not None:
            limits[job.key] = refusal
        elif not free.take(job):
            limits[job.key] = free.refusal(job)
            if pods[job.key] == 0 and _can_start(job, closing, snapshot.now):
                free.keep_for(job)
        else:
            pods[job.key] += 1
            if queued is not None:
                queued.take(job)
            heapq.heappush(heap, (order(job), position))
    return {job.key: PodQuota(pods[job.key], *limits[job.key]) for job in jobs}


def _order(
    queued: QueueSlots | None, pods: Mapping[JobKey, int], gpus: int
) -> Callable[[JobView], tuple[float, tuple[bool, int], int, int, float, JobKey]]:
    """Return the sort key by which the open jobs get the next pod; it follows the changes of `pods`."""

    def key(job: JobView) -> tuple[float, tuple[bool, int], int, int, float, JobKey]:
        mine, first = pods[job.key], slot_order(job, pods[job.key], gpus)
        if queued is None:
            return 0.0, first, 0, mine, job.created, job.key
        return queued.order(job), first, queued.of_namespace(job), mine, job.created, job.key

    return key


def _open(job: JobView, closing: Closing) -> bool:
    return job.state.accepted and not job.state.suspended and not job.state.finished and job.key not in closing.jobs


def may_get_pod(trial: TrialView, now: float) -> bool:
    """Return whether a trial may have a pod now: its user has not suspended it, and a retry is due."""
    return not trial.intent.suspend and trial.attempts.retry_at <= now


def _can_start(job: JobView, closing: Closing, now: float) -> bool:
    """Return whether some trial of a job without pods could get one now."""
    able = any(may_get_pod(trial, now) for trial in closing.live.get(job.key, ()))
    return able or founders_to_come(job, closing.trials_by_job.get(job.key, ())) > 0


def _is_stuck(trial: TrialView) -> bool:
    return trial.pod is not None and trial.pod.stuck


def demand(job: JobView, closing: Closing) -> int:
    """Return how many pods the job could use: its unfinished and future trials, within `parallel`."""
    left = most_at_once(job, closing.trials_by_job.get(job.key, ()), len(closing.live.get(job.key, ())))
    if job.limits.parallel is not None:
        return min(job.limits.parallel, left)
    return min(left, CPU_ONLY_PARALLEL) if job.gpus.per_trial == 0 else left


class _Free:
    """Free slots of each GPU, minus those that unplaced pods will take.

    An unplaced pod may go to any GPU that fits it, so it counts against each job that could use one of these GPUs.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        with_pod: Sequence[TrialView],
        jobs: Mapping[JobKey, JobView],
        promised: Mapping[str, int],
    ) -> None:
        self._gpus = sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))
        self._fitting: dict[JobKey, frozenset[str]] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._overlaps: dict[tuple[frozenset[str], frozenset[str]], int] = {}
        self._capacities: dict[JobKey, int] = {}
        used: dict[str, int] = {}
        unplaced: dict[JobKey, int] = {}
        for trial in with_pod:
            uuids = trial.gpus
            if not uuids and trial.pod is not None and trial.pod.workers:
                uuids = trial.pod.slots
            for uuid in uuids:
                used[uuid] = used.get(uuid, 0) + 1
            # A pod that finds no node blocks no other one: it may never find one.
            if not trial.gpus and not _is_stuck(trial) and not trial.in_migration and trial.job in jobs:
                missing = jobs[trial.job].gpus.per_trial - len(uuids)
                unplaced[trial.job] = unplaced.get(trial.job, 0) + missing
        self._free = {
            g.uuid: max(0, g.slots - max(used.get(g.uuid, 0), len(g.trials)) - promised.get(g.uuid, 0))
            for g in self._gpus
        }
        self._kept_for: JobKey | None = None
        self._kept: frozenset[str] = frozenset()  # GPUs that have a slot that is kept free
        self._unplaced: dict[frozenset[str], int] = {}  # slots of unplaced pods, by the GPUs that fit them
        for key, slots in unplaced.items():
            self._reserve(self._fit(jobs[key]), slots)

    def take(self, job: JobView) -> bool:
        """Reserve the slots of one more pod, if there are enough. O(different sets of fitting GPUs) after a first."""
        need = job.gpus.per_trial
        if need == 0:
            return True
        mine = self._fit(job)
        taken = sum(min(slots, self._overlap(mine, theirs)) for theirs, slots in self._unplaced.items())
        if self._capacity(job) - taken < need:
            return False
        self._reserve(mine, need)
        return True

    def keep_for(self, job: JobView) -> None:
        """Keep slots free for a trial that needs several at the same time; only for one job. O(GPUs).

        It gets one slot of each GPU that has several, on all nodes that could take one of its workers.
        """
        need = job.gpus
        if self._kept_for is not None or need.per_trial < 2:
            return
        nodes: dict[str, list[str]] = {}
        for gpu in self._usable(job):
            if gpu.slots > 1:
                nodes.setdefault(gpu.node, []).append(gpu.uuid)
        able = [uuids for uuids in nodes.values() if len(uuids) >= need.per_worker]
        if len(able) < need.workers:  # it would wait for ever
            return
        self._kept_for, self._kept = job.key, frozenset([uuid for uuids in able for uuid in uuids])
        for uuid in self._kept:
            self._free[uuid] = max(0, self._free[uuid] - 1)
        self._overlaps.clear()
        self._capacities.clear()

    def _reserve(self, fitting: frozenset[str], slots: int) -> None:
        self._unplaced[fitting] = self._unplaced.get(fitting, 0) + slots

    def _overlap(self, mine: frozenset[str], theirs: frozenset[str]) -> int:
        """Return the free slots of the GPUs in both sets: those that pods of the one can take from the other."""
        if (mine, theirs) not in self._overlaps:
            self._overlaps[mine, theirs] = sum(self._free[uuid] for uuid in mine & theirs)
        return self._overlaps[mine, theirs]

    def _capacity(self, job: JobView) -> int:
        """Return the free slots for trials of this job: each needs all of its slots at the same time."""
        if job.key not in self._capacities:
            nodes: dict[str, list[int]] = {}
            for gpu in self._usable(job):
                nodes.setdefault(gpu.node, []).append(self._free[gpu.uuid])
            self._capacities[job.key] = trials_that_fit(job.gpus, nodes.values()) * job.gpus.per_trial
        return self._capacities[job.key]

    def _fit(self, job: JobView) -> frozenset[str]:
        if job.key not in self._fitting:
            found = frozenset(gpu.uuid for gpu in self._gpus if fits(job, gpu))
            # The same object for equal sets: they are keys, and identical keys are not compared element by element.
            self._fitting[job.key] = self._sets.setdefault(found, found)
        return self._fitting[job.key]

    def _usable(self, job: JobView) -> list[GpuView]:
        fitting = self._fit(job)
        return [gpu for gpu in self._gpus if gpu.uuid in fitting]

    def refusal(self, job: JobView) -> tuple[str, str]:
        usable = self._usable(job)
        if not self._gpus:
            return "NoGPUs", "No node has reported a GPU yet."
        if not usable:
            if any(g.availability.reserved_for is not None for g in self._gpus):
                where = job.key.namespace
                return (
                    "NoReservation",
                    f"Podium has no GPU reservation for namespace {where} yet: see the job's condition GPUsReserved.",
                )
            asked = f"{', '.join(job.gpus.products) or 'any product'}, {job.gpus.memory or 0} bytes"
            return "NoFittingGPU", f"None of {len(self._gpus)} GPUs is healthy, not draining, fits ({asked})."
        total = sum(g.slots for g in usable)
        if total == 0:
            text = f"None of {len(usable)} fitting GPUs has a slot for trials: other pods have them all."
            return "NoFreeSlot", text
        kept = ""
        if self._kept_for is not None and job.key != self._kept_for and not self._kept.isdisjoint(self._fit(job)):
            namespace, name = self._kept_for
            kept = f" One of each GPU is kept free for job {namespace}/{name}, whose trials need several at once."
        if job.gpus.workers > 1:
            each, nodes = count(job.gpus.per_worker, "GPU"), job.gpus.workers
            text = f"No {nodes} nodes have free slots on {each} each, of {len(usable)} GPUs that fit."
        elif job.gpus.per_trial > 1:
            text = f"No node has free slots on {job.gpus.per_trial} different GPUs, of {len(usable)} that fit."
        else:
            text = f"All {total} slots of {len(usable)} fitting GPUs are taken or promised."
        return "NoFreeSlot", text + kept

"""Which job may have how many pods: equal shares, never more pods than there are shares of GPUs.

A pod that finds no share would only sit in the scheduler's queue and be tried again at every event of the cluster,
so it is not created. Pods that exist are never taken away to even things out: a job that came late gets the shares
that become free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from podium_core.domain.fitting import fits
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialView
from podium_core.planning.completion import Closing

_NONE: Mapping[str, int] = MappingProxyType({})
CPU_ONLY_PARALLEL = 8  # trials without a GPU and `parallel: auto`: nothing here says what the CPUs hold


@dataclass(frozen=True, slots=True)
class PodQuota:
    """`pods`: how many the job may have, those that exist included; `reason` and `message` say what bounds it."""

    pods: int
    reason: str
    message: str


def pod_quotas(snapshot: Snapshot, closing: Closing, promised: Mapping[str, int] = _NONE) -> Mapping[JobKey, PodQuota]:
    """Fill up from the job with the fewest pods, ties by creation, then name. O((shares + GPUs) * jobs).

    `promised`: shares by GPU that wait for a live trial from another node.
    """
    jobs = [j for j in sorted(snapshot.jobs, key=lambda j: (j.created, j.key)) if _open(j, closing)]
    by_key = {job.key: job for job in snapshot.jobs}
    with_pod = {key: [t for t in live if t.pod is not None] for key, live in closing.live.items()}
    pods = {job.key: len(with_pod.get(job.key, ())) for job in jobs}
    free = _Free(snapshot, [t for mine in with_pod.values() for t in mine], by_key, promised)
    wanted = {job.key: _demand(job, closing) for job in jobs}
    stuck = {job.key: sum([t.stuck for t in with_pod.get(job.key, ())]) for job in jobs}
    bound: dict[JobKey, tuple[str, str]] = {}
    rest = list(jobs)
    while rest:
        job = min(rest, key=lambda j: (pods[j.key], j.created, j.key))
        if pods[job.key] >= wanted[job.key]:
            bound[job.key] = (
                "ParallelLimitReached",
                f"{pods[job.key]} trials run or wait, trials.parallel allows no more.",
            )
            rest.remove(job)
        elif stuck[job.key]:
            text = f"{stuck[job.key]} of its pods found no node or could not start for a minute; no more are made."
            bound[job.key] = ("PodsStuck", text)
            rest.remove(job)
        elif not free.take(job):
            bound[job.key] = free.refusal(job)
            rest.remove(job)
        else:
            pods[job.key] += 1
    return {job.key: PodQuota(pods[job.key], *bound[job.key]) for job in jobs}


def _open(job: JobView, closing: Closing) -> bool:
    return job.accepted and not job.suspended and not job.finished and job.key not in closing.jobs


def _demand(job: JobView, closing: Closing) -> int:
    """How many pods the job could use: its unfinished trials and those that it may still create, within `parallel`."""
    over = len(closing.trials_by_job.get(job.key, ())) - len(closing.live.get(job.key, ()))
    left = max(0, job.max_trials - over)
    if job.parallel is not None:
        return min(job.parallel, left)
    return min(left, CPU_ONLY_PARALLEL) if job.gpus_per_trial == 0 else left


class _Free:
    """Shares that no pod has, GPU by GPU, less those that pods on their way will take."""

    def __init__(
        self,
        snapshot: Snapshot,
        with_pod: Sequence[TrialView],
        jobs: Mapping[JobKey, JobView],
        promised: Mapping[str, int],
    ) -> None:
        self._gpus = sorted(snapshot.gpus, key=lambda g: (g.node, g.uuid))
        used: dict[str, int] = {}
        self._reserved = 0  # of pods that are not placed yet: they may go to any GPU
        for trial in with_pod:
            for uuid in trial.gpus:
                used[uuid] = used.get(uuid, 0) + 1
            # one that finds no node keeps nobody else waiting: it may never find one
            if not trial.gpus and not trial.stuck and not trial.in_migration and trial.job in jobs:
                self._reserved += jobs[trial.job].gpus_per_trial
        self._free = {
            g.uuid: g.slots - max(used.get(g.uuid, 0), len(g.trials)) - promised.get(g.uuid, 0) for g in self._gpus
        }
        self._rooms: dict[JobKey, int] = {}
        self._fitting: dict[JobKey, list[GpuView]] = {}

    def take(self, job: JobView) -> bool:
        """Promise the shares of one more pod, if there are enough. Constant time after a job's first call."""
        need = job.gpus_per_trial
        if need == 0:
            return True
        if self._room(job) - self._reserved < need:
            return False
        self._reserved += need
        return True

    def _room(self, job: JobView) -> int:
        """Free shares that trials of this job can take: each needs shares of different GPUs of one node."""
        if job.key not in self._rooms:
            nodes: dict[str, list[int]] = {}
            for gpu in self._usable(job):
                nodes.setdefault(gpu.node, []).append(max(0, self._free[gpu.uuid]))
            need = job.gpus_per_trial
            self._rooms[job.key] = sum(_groups(free, need) * need for free in nodes.values())
        return self._rooms[job.key]

    def _usable(self, job: JobView) -> list[GpuView]:
        if job.key not in self._fitting:
            self._fitting[job.key] = [gpu for gpu in self._gpus if fits(job, gpu)]
        return self._fitting[job.key]

    def refusal(self, job: JobView) -> tuple[str, str]:
        usable = self._usable(job)
        if not self._gpus:
            return "NoGPUs", "No node has reported a GPU yet."
        if not usable:
            if any(g.reserved_for is not None for g in self._gpus):
                where = job.key.namespace
                return (
                    "NoReservation",
                    f"Podium leases no GPU for namespace {where} yet: see the job's condition GPUsReserved.",
                )
            asked = ", ".join(job.products) or "any product"
            return (
                "NoFittingGPU",
                f"None of {len(self._gpus)} GPUs is healthy, stays, and fits ({asked}, {job.memory or 0} bytes).",
            )
        total = sum(g.slots for g in usable)
        if total == 0:
            text = f"None of {len(usable)} fitting GPUs has a share for trials: other pods have them all."
            return "NoFreeSlot", text
        if job.gpus_per_trial > 1:
            text = f"No node has free shares of {job.gpus_per_trial} different GPUs, of {len(usable)} that fit."
            return "NoFreeSlot", text
        return "NoFreeSlot", f"All {total} shares of {len(usable)} fitting GPUs are taken or promised."


def _groups(free: Sequence[int], size: int) -> int:
    """How many groups of `size` different GPUs the free shares of one node make: no GPU is in a group twice."""
    if size == 1:
        return sum(free)
    count = sum(free) // size
    while sum(min(shares, count) for shares in free) < count * size:
        count -= 1
    return count

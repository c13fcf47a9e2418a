"""What is asked of GPU leases and what there is of them: from one look at the cluster to the values that
`planning.gpu_leases` decides on. Pure; used by `leasing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podium.domain.gpu_lease import LeaseFacts, LeaseState, derive
from podium.domain.phase import FINAL
from podium.domain.snapshot import JobView, Snapshot
from podium.planning.gpu_leases import Demand, Lease, Pool
from podium.schema.gpunode import GPUNode, GpuStatus
from podium_operator.seen_lease import SeenLease


def pool_of(job: JobView) -> Pool:
    return Pool(job.key.namespace, "", tuple(sorted(job.products)))


def demands(snapshot: Snapshot, most: int) -> Mapping[Pool, Demand]:
    """A GPU for each GPU of each trial that could be at work now, at most `most` a pool. A search that is suspended
    needs none, but will again. O(trials + jobs).
    """
    over: dict[object, int] = {}
    for trial in snapshot.trials:
        over[trial.job] = over.get(trial.job, 0) + (trial.phase in FINAL)
    found: dict[Pool, int] = {}
    for job in snapshot.jobs:
        if not job.accepted or job.finished or job.gpus_per_trial == 0:
            continue
        left = max(0, job.max_trials - over.get(job.key, 0))
        trials = 0 if job.suspended else left if job.parallel is None else min(job.parallel, left)
        found[pool_of(job)] = found.get(pool_of(job), 0) + trials * job.gpus_per_trial
    return {pool: Demand(gpus, most) for pool, gpus in found.items()}


def leases_of(seen: Iterable[SeenLease], nodes: Iterable[GPUNode], now: float) -> tuple[Lease, ...]:
    """Held are those whose GPU an agent names. What a lease would cost is the number of trials that it moves."""
    held = {gpu.lease: gpu for node in nodes for gpu in node.status.gpus if gpu.lease is not None}
    return tuple(_lease(one, held.get(one.path), now) for one in seen)


def _lease(seen: SeenLease, gpu: GpuStatus | None, now: float) -> Lease:
    return Lease(
        name=seen.name,
        pool=seen.pool,
        state=state_of(seen, gpu),
        since=seen.created,
        idle_since=now if gpu is not None and not gpu.trials else None,
        loss=float(len(gpu.trials)) if gpu is not None else 0.0,
        unneeded_since=seen.unneeded_since,
    )


def state_of(seen: SeenLease, gpu: GpuStatus | None) -> LeaseState:
    return derive(LeaseFacts(True, seen.bound, gpu is not None, seen.deleting, seen.over))

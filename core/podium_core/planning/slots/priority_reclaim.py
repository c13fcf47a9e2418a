"""Slot reclaim between jobs: which pods release their slots to a job of higher priority in the same queue.

A job of high priority may arrive when other jobs of its queue have all slots. It then gets one slot for each GPU, from
the jobs of the lowest priority. Only trials that wait release a slot, and only if they lose no work (`slot_reclaim`).
A trial of several GPUs needs slots on one node at a time: no slot is reclaimed for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.snapshot import JobKey, JobView, Snapshot, TrialKey
from podium_core.planning.completion import Closing
from podium_core.planning.queues.job_priority import queue_name
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.ranking import Standing
from podium_core.planning.slots.pod_quota import PodQuota, demand
from podium_core.planning.slots.slot_reclaim import SlotReclaims, is_slot_reclaimable, keeps_slot_until

_FULL = frozenset({"NoFreeSlot", "QueueSlotsReached"})


def reclaim_for_priority(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    quotas: Mapping[JobKey, PodQuota],
    closing: Closing,
    rules: QueueRules | None,
) -> SlotReclaims:
    """Return the requeues that free slots for jobs of higher priority. O(n log n) for each such job.

    `claims`: trials that are to hold their GPUs now.
    """
    queue_of = None if rules is None else rules.queue_of
    lowest = min((job.gpus.priority for job in snapshot.jobs), default=0)
    requeues: dict[TrialKey, Requeue] = {}
    wakes: list[float] = []
    for job in sorted(snapshot.jobs, key=lambda j: (-j.gpus.priority, j.created, j.key)):
        quota = quotas.get(job.key)
        if job.gpus.priority == lowest or quota is None or quota.reason not in _FULL or job.gpus.per_trial != 1:
            continue
        wanted = min(demand(job, closing), sum(fits(job, gpu) for gpu in snapshot.gpus)) - quota.pods
        mine = queue_name(job, queue_of)
        lower = [
            standing
            for standing in standings.values()
            if standing.job.gpus.priority < job.gpus.priority and queue_name(standing.job, queue_of) == mine
        ]
        wanted -= sum(s.trial.terminating or s.trial.key in requeues for s in lower)  # their slots become free soon
        for standing in _victims(lower, job, snapshot, {*claims, *requeues}):
            if wanted <= 0:
                break
            free_at = keeps_slot_until(standing, snapshot.costs)
            if snapshot.now < free_at:
                wakes.append(free_at)
                continue
            wanted -= 1
            text = f"Job {job.key.name} of priority {job.gpus.priority} has no slot: this trial"
            text = f"{text} (priority {standing.job.gpus.priority}) continues later."
            requeues[standing.trial.key] = Requeue(standing.trial.key, "SlotReclaimed", text)
    return SlotReclaims(requeues, min(wakes, default=None))


def _victims(
    lower: Collection[Standing], job: JobView, snapshot: Snapshot, kept: Collection[TrialKey]
) -> Iterator[Standing]:
    """Yield the trials whose slot can be reclaimed for the job, the lowest priority and last rank first."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    for standing in sorted(lower, key=lambda s: (s.job.gpus.priority, not s.paused, -s.ranked.rank, s.trial.key)):
        if standing.trial.key not in kept and is_slot_reclaimable(standing, job, gpus):
            yield standing

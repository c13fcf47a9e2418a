"""Slot reclaim between jobs: which pods release their slots to a job of higher priority in the same queue.

A job of high priority may arrive when other jobs of its queue have all slots. It then gets one slot for each GPU, from
the jobs of the lowest priority. Only trials that wait release a slot, and only if they lose no work (`slot_reclaim`).
A trial of several GPUs needs slots on one node at a time: no slot is reclaimed for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.completion import Closing
from podium_core.planning.queues.job_priority import queue_name
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.ranking import Standing
from podium_core.planning.slots.pod_quota import PodQuota
from podium_core.planning.slots.reclaimable_slots import Reclaimable, missing_pods, reclaimable_slots
from podium_core.planning.slots.slot_reclaim import SlotReclaims

_FULL = frozenset({"NoFreeSlot", "QueueSlotsReached"})


def reclaim_for_priority(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    quotas: Mapping[JobKey, PodQuota],
    closing: Closing,
    rules: QueueRules | None,
) -> SlotReclaims:
    """Return the requeues that free slots for jobs of higher priority.

    `claims`: trials that are to hold their GPUs now. O(n log n), and O(reclaimable slots) for each such job.
    """
    queue_of = None if rules is None else rules.queue_of
    lowest = min((job.gpus.priority for job in snapshot.jobs), default=0)
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    candidates: dict[str, Reclaimable] | None = None
    requeues: dict[TrialKey, Requeue] = {}
    wakes: dict[str, float] = {}
    for job in sorted(snapshot.jobs, key=lambda j: (-j.gpus.priority, j.created, j.key)):
        quota = quotas.get(job.key)
        if job.gpus.priority == lowest or quota is None or quota.reason not in _FULL or job.gpus.per_trial != 1:
            continue
        if candidates is None:
            candidates = reclaimable_slots(snapshot, standings, claims, queue_of, gpus)
        name = queue_name(job, queue_of)
        mine = candidates.setdefault(name, Reclaimable())
        wanted = min(
            missing_pods(job, quota, closing, snapshot.now), sum(fits(job, gpu) for gpu in snapshot.gpus) - quota.pods
        )
        wanted -= mine.freed_below(job.gpus.priority)
        for standing in mine.free:
            if wanted <= 0 or standing.job.gpus.priority >= job.gpus.priority:
                break
            key = standing.trial.key
            if key in requeues or not all(fits(job, gpus[uuid]) for uuid in standing.trial.gpus):
                continue
            wanted -= 1
            text = f"Job {job.key.name} of priority {job.gpus.priority} has no slot: this trial"
            text = f"{text} (priority {standing.job.gpus.priority}) continues later."
            requeues[key] = Requeue(key, "SlotReclaimed", text)
            mine.freed.append(standing.job.gpus.priority)
        if wanted > 0 and name not in wakes:  # the slots of a job of lower priority are among those of this one
            later = [at for at, priority in mine.kept if priority < job.gpus.priority]
            wakes.update({name: min(later)} if later else {})
    return SlotReclaims(requeues, min(wakes.values(), default=None))

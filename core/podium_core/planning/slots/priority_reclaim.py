"""Slot reclaim between jobs: which pods release their slots to a job of higher priority in the same queue.

A job of high priority may arrive when other jobs of its queue have all slots. It then gets one slot for each GPU, from
the jobs of the lowest priority. Only trials that wait release a slot, and only if they lose no work (`slot_reclaim`).
A trial of several GPUs needs slots on one node at a time: no slot is reclaimed for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.snapshot import GpuView, JobKey, Snapshot, TrialKey
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
    """Return the requeues that free slots for jobs of higher priority.

    `claims`: trials that are to hold their GPUs now. O(n log n), and O(reclaimable slots) for each such job.
    """
    queue_of = None if rules is None else rules.queue_of
    lowest = min((job.gpus.priority for job in snapshot.jobs), default=0)
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    candidates: dict[str, _Candidates] | None = None
    requeues: dict[TrialKey, Requeue] = {}
    wakes: dict[str, float] = {}
    for job in sorted(snapshot.jobs, key=lambda j: (-j.gpus.priority, j.created, j.key)):
        quota = quotas.get(job.key)
        if job.gpus.priority == lowest or quota is None or quota.reason not in _FULL or job.gpus.per_trial != 1:
            continue
        if candidates is None:
            candidates = _candidates(snapshot, standings, claims, queue_of, gpus)
        name = queue_name(job, queue_of)
        mine = candidates.setdefault(name, _Candidates())
        wanted = min(demand(job, closing), sum(fits(job, gpu) for gpu in snapshot.gpus)) - quota.pods
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


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Slots of a queue that its trials could release.

    - `free`: trials whose slot can be reclaimed now, the lowest priority and last rank first
    - `kept`: until when others keep theirs, and their priority
    - `freed`: priorities of the trials whose slots become free soon
    """

    free: list[Standing] = field(default_factory=list)
    kept: list[tuple[float, int]] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)

    def freed_below(self, priority: int) -> int:
        return sum(one < priority for one in self.freed)


def _candidates(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    queue_of: Mapping[JobKey, str] | None,
    gpus: Mapping[str, GpuView],
) -> dict[str, _Candidates]:
    """Return the candidates of each queue. O(n log n)."""
    found: dict[str, _Candidates] = {}
    for standing in standings.values():
        mine = found.setdefault(queue_name(standing.job, queue_of), _Candidates())
        if standing.trial.terminating:
            mine.freed.append(standing.job.gpus.priority)
        elif standing.trial.key not in claims and is_slot_reclaimable(standing, gpus):
            free_at = keeps_slot_until(standing, snapshot.costs)
            if snapshot.now < free_at:
                mine.kept.append((free_at, standing.job.gpus.priority))
            else:
                mine.free.append(standing)
    for mine in found.values():
        mine.free.sort(key=lambda s: (s.job.gpus.priority, not s.paused, -s.ranked.rank, s.trial.key))
    return found

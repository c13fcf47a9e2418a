"""Slots that the trials of each queue could release to others: what slot reclaim between jobs chooses from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.snapshot import JobView, Snapshot
from podium_core.planning.completion import Closing
from podium_core.planning.exploitation import founders_to_come
from podium_core.planning.queues.job_priority import queue_name
from podium_core.planning.ranking import Standing
from podium_core.planning.slots.pod_quota import PodQuota, demand, may_get_pod
from podium_core.planning.slots.slot_reclaim import is_slot_reclaimable, keeps_slot_until


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """Slots of a queue that its trials could release.

    - `free`: trials whose slot can be reclaimed now, the lowest priority and last rank first
    - `kept`: until when others keep theirs, and their priority
    - `freed`: slots that become free soon, by the priority of their trials
    """

    free: list[Standing] = field(default_factory=list)
    kept: list[tuple[float, int]] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)

    def freed_below(self, priority: int) -> int:
        return sum(one < priority for one in self.freed)


def reclaimable_slots(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    queue_of: Mapping[JobKey, str] | None,
    gpus: Mapping[str, GpuView],
) -> dict[str, Reclaimable]:
    """Return the slots of each queue that could be reclaimed. O(n log n).

    `claims`: trials that are to hold their GPUs now. `queue_of`: queue of each job; None without queues.
    """
    found: dict[str, Reclaimable] = {}
    for standing in standings.values():
        mine = found.setdefault(queue_name(standing.job, queue_of), Reclaimable())
        if standing.trial.terminating:
            mine.freed.extend([standing.job.gpus.priority] * len(standing.trial.gpus))
        elif standing.trial.key not in claims and is_slot_reclaimable(standing, gpus):
            free_at = keeps_slot_until(standing, snapshot.costs)
            if snapshot.now < free_at:
                mine.kept.append((free_at, standing.job.gpus.priority))
            else:
                mine.free.append(standing)
    for mine in found.values():
        mine.free.sort(key=lambda s: (s.job.gpus.priority, not s.paused, -s.ranked.rank, s.trial.key))
    return found


def missing_pods(job: JobView, quota: PodQuota, closing: Closing, now: float) -> int:
    """Return how many more pods the job would get now if it had slots for them.

    A trial that its user has suspended, or whose retry is not due, gets none. A learning searcher creates few trials in
    advance, so one at a time counts.
    """
    live = closing.live.get(job.key, ())
    able = sum(t.pod is not None or may_get_pod(t, now) for t in live)
    to_come = founders_to_come(job, closing.trials_by_job.get(job.key, ()))
    most = able + (min(1, to_come) if job.learns else to_come)
    return max(0, min(most, demand(job, closing)) - quota.pods)

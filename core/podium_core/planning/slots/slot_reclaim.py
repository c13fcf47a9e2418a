"""Slot reclaim: which pods release their slots to better-ranked trials.

GPUs have fewer slots than a search has trials. A trial that checkpoints need not keep a slot while better-ranked trials
have none: the slots are a cache of the ranking. In each job, the trials that hold a GPU keep their slots, and as many
next trials in line as there are GPUs get one. If one of these has none, the last trial by rank releases its slot.

This happens only between trials of one job, and only if another pod can continue from the checkpoint on any node. An
unstarted trial loses nothing. A suspended one runs for a moment to checkpoint, so it must have had its slot for some
time. `requeue` deletes the pods, one at a time on each GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.relocation import is_relocatable, is_started
from podium_core.domain.snapshot import Costs, Snapshot
from podium_core.planning.ranking import Standing
from podium_core.planning.slots.pod_quota import PodQuota, may_get_pod

MIN_STAY_REQUEUES = 20.0  # times the cost of a requeue, for which a started trial keeps its slot: 5 % of its GPU's time


@dataclass(frozen=True, slots=True)
class SlotReclaims:
    """Slots that are reclaimed in one cycle, by trial."""

    requeues: Mapping[TrialKey, Requeue]
    wake_at: float | None = None  # when some trial has kept its slot for long enough

    def joined(self, other: SlotReclaims) -> SlotReclaims:
        """Return both; of a trial in both, the requeue of `other`."""
        wakes = [at for at in (self.wake_at, other.wake_at) if at is not None]
        return SlotReclaims({**self.requeues, **other.requeues}, min(wakes, default=None))


def reclaim_slots(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    quotas: Mapping[JobKey, PodQuota],
) -> SlotReclaims:
    """Return the requeues that free slots. O(n log n) in jobs whose trials need more slots than there are.

    `claims`: trials that are to hold their GPUs now.
    """
    full = {key for key, quota in quotas.items() if quota.reason == "NoFreeSlot"}
    jobs = {job.key for job in snapshot.jobs if job.key in full and job.reclaims_slots}
    if not jobs:
        return SlotReclaims({})
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    requeues: dict[TrialKey, Requeue] = {}
    wakes: list[float] = []
    for key, group in groupby(standings.values(), key=lambda s: s.job.key):
        if key in jobs:
            requeues |= _of_job(snapshot, tuple(group), claims, quotas[key].pods, gpus, wakes)
    return SlotReclaims(requeues, min(wakes, default=None))


def _of_job(
    snapshot: Snapshot,
    mine: Sequence[Standing],
    claims: Collection[TrialKey],
    pods: int,
    gpus: Mapping[str, GpuView],
    wakes: list[float],
) -> dict[TrialKey, Requeue]:
    """Return the requeues of one job. `mine`: its trials by rank; `pods`: the pods that it may have."""
    job, now = mine[0].job, snapshot.now
    parallel_trials = max(1, sum(fits(job, gpu) for gpu in gpus.values()) // job.gpus.per_trial)
    in_line = [s for s in mine if s.trial.key not in claims and is_next_in_line(s, now)][:parallel_trials]
    without = [s for s in in_line if s.trial.pod is None]
    pods_there = [pod for s in mine if (pod := s.trial.pod) is not None]
    there = sum([not pod.ends_soon for pod in pods_there])
    free_pods = pods - there  # slots that they get anyway
    if len(without) <= free_pods:
        return {}
    has_holder = any(s.trial.key in claims for s in mine)
    kept = {s.trial.key for s in in_line} | set(claims)
    requeues: dict[TrialKey, Requeue] = {}
    for wanted, victim in zip(without[max(0, free_pods) :], _victims(mine, kept, gpus), strict=False):
        trial = victim.trial
        free_at = keeps_slot_until(victim, snapshot.costs)
        if has_holder and now < free_at:
            wakes.append(free_at)
            continue
        text = f"{wanted.name} (rank {wanted.ranked.rank}) is next in line and has no slot: this trial"
        requeues[trial.key] = Requeue(
            trial.key, "SlotReclaimed", f"{text} (rank {victim.ranked.rank}) continues later."
        )
    return requeues


def is_next_in_line(standing: Standing, now: float) -> bool:
    """Return whether the trial would take a GPU that is offered."""
    trial = standing.trial
    return may_get_pod(trial, now) and not (standing.paused or trial.terminating or trial.in_migration)


def _victims(mine: Sequence[Standing], kept: Collection[TrialKey], gpus: Mapping[str, GpuView]) -> Iterator[Standing]:
    """Yield the trials whose slot can be reclaimed: paused ones first, then the last by rank."""
    for standing in sorted(mine, key=lambda s: (not s.paused, -s.ranked.rank)):
        if standing.trial.key not in kept and is_slot_reclaimable(standing, gpus):
            yield standing


def is_slot_reclaimable(standing: Standing, gpus: Mapping[str, GpuView]) -> bool:
    """Return whether the trial waits, loses nothing without its slot, and its GPUs suit its job."""
    trial, job = standing.trial, standing.job
    if trial.pod is None or trial.terminating or trial.intent.pinned or not trial.gpus or job.gpus.workers > 1:
        return False
    if trial.phase not in (TrialPhase.GATED, TrialPhase.SUSPENDED) or trial.relocation.migration is not None:
        return False
    if not is_relocatable(
        trial.phase,
        checkpointable=job.abilities.checkpointable,
        checkpoint_scope=job.abilities.checkpoint_scope,
        has_checkpoint=trial.attempts.checkpoint_step is not None,
        migrated=trial.relocation.migrated,
    ):
        return False
    there = [gpus[uuid] for uuid in trial.gpus if uuid in gpus]
    return len(there) == len(trial.gpus) and all(gpu.holder != trial.key and fits(job, gpu) for gpu in there)


def keeps_slot_until(standing: Standing, costs: Costs) -> float:
    """Return until when the trial keeps its slot: longer if it has started."""
    trial = standing.trial
    requeues = MIN_STAY_REQUEUES if is_started(trial.phase, migrated=trial.relocation.migrated) else 1.0
    return trial.pod_since + requeues * costs.requeue

"""Who gives its place to whom. GPUs have fewer shares than a search has trials, and a trial that saves need not keep
one while others are to be tried before it: the places are a cache of the ranking.

Called by the planner. Of each job the trials that hold a GPU have places, and as many that are next in line as there
are GPUs; who is among these and has none gets that of the last by rank. Only between trials of one job, and only where
another pod goes on from the save on any node. One that has not begun gives nothing away; one that is suspended works
for a moment to save, and so has had its place for long. `leaving` tells them, one on a GPU at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.phase import TrialPhase
from podium_core.domain.relocation import is_relocatable, is_started
from podium_core.domain.snapshot import GpuView, JobKey, Snapshot, TrialKey
from podium_core.planning.pod_quota import PodQuota
from podium_core.planning.ranking import Standing

MIN_STAY_REQUEUES = (
    20.0  # times what a requeue costs, that who has begun keeps its place at least: 5 % of its GPU's time
)


@dataclass(frozen=True, slots=True)
class SlotReclaims:
    requeues: Mapping[TrialKey, Requeue]
    wake_at: float | None = None  # when somebody has kept its place for long enough


def reclaim_slots(
    snapshot: Snapshot,
    standings: Mapping[TrialKey, Standing],
    claims: Collection[TrialKey],
    allotments: Mapping[JobKey, PodQuota],
) -> SlotReclaims:
    """`claims`: who is to hold its GPUs now. O(n log n) of jobs whose trials want more places than there are."""
    full = {key for key, allotment in allotments.items() if allotment.reason == "NoFreeSlot"}
    jobs = {job.key for job in snapshot.jobs if job.key in full and job.reclaims_slots}
    if not jobs:
        return SlotReclaims({})
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    told: dict[TrialKey, Requeue] = {}
    wakes: list[float] = []
    for key, found in groupby(standings.values(), key=lambda s: s.job.key):
        if key in jobs:
            told |= _of_job(snapshot, tuple(found), claims, allotments[key].pods, gpus, wakes)
    return SlotReclaims(told, min(wakes, default=None))


def _of_job(
    snapshot: Snapshot,
    mine: Sequence[Standing],
    claims: Collection[TrialKey],
    pods: int,
    gpus: Mapping[str, GpuView],
    wakes: list[float],
) -> dict[TrialKey, Requeue]:
    """`mine` by rank; `pods`: that the job may have."""
    job, now = mine[0].job, snapshot.now
    lanes = max(1, sum(fits(job, gpu) for gpu in gpus.values()) // job.gpus_per_trial)
    in_line = [s for s in mine if s.trial.key not in claims and is_next_in_line(s, now)][:lanes]
    without = [s for s in in_line if s.trial.pod is None]
    there = sum(s.trial.pod is not None and (s.trial.termination_overdue or not s.trial.terminating) for s in mine)
    coming = pods - there  # places that they get anyway
    if len(without) <= coming:
        return {}
    works = any(s.trial.key in claims for s in mine)
    kept = {s.trial.key for s in in_line} | set(claims)
    told: dict[TrialKey, Requeue] = {}
    for wanted, giver in zip(without[max(0, coming) :], _givers(mine, kept, gpus), strict=False):
        trial = giver.trial
        stays = MIN_STAY_REQUEUES if is_started(trial.phase, migrated=trial.migrated) else 1.0
        free_at = trial.pod_since + stays * snapshot.costs.requeue
        if works and now < free_at:
            wakes.append(free_at)
            continue
        text = f"{wanted.name} (rank {wanted.ranked.rank}) is next in line and has no place: this trial"
        told[trial.key] = Requeue(trial.key, "SlotReclaimed", f"{text} (rank {giver.ranked.rank}) goes on later.")
    return told


def is_next_in_line(standing: Standing, now: float) -> bool:
    """Whether it would take a GPU that is offered."""
    trial = standing.trial
    return not (standing.paused or trial.suspend or trial.terminating or trial.in_migration or trial.retry_at > now)


def _givers(mine: Sequence[Standing], kept: Collection[TrialKey], gpus: Mapping[str, GpuView]) -> Iterator[Standing]:
    """Who could give its place, those that wait first, then the last by rank."""
    for standing in sorted(mine, key=lambda s: (not s.paused, -s.ranked.rank)):
        trial, job = standing.trial, standing.job
        if trial.key in kept or trial.pod is None or trial.terminating or trial.pinned or not trial.gpus:
            continue
        if trial.phase not in (TrialPhase.GATED, TrialPhase.SUSPENDED) or trial.migration is not None:
            continue
        has_save = trial.checkpoint_step is not None
        if not is_relocatable(
            trial.phase,
            checkpointable=job.checkpointable,
            checkpoint_scope=job.checkpoint_scope,
            has_checkpoint=has_save,
            migrated=trial.migrated,
        ):
            continue
        there = [gpus[uuid] for uuid in trial.gpus if uuid in gpus]
        if len(there) == len(trial.gpus) and all(gpu.holder != trial.key and fits(job, gpu) for gpu in there):
            yield standing

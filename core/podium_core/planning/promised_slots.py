"""Shares that are promised to live trials on their way to another node: on the GPUs that each of them goes to, from the
ask on until its new pod has them.

Called by `carrying`, which promises no share twice, and by the planner, which makes no pod for one that is promised.
All of it follows from the snapshot, so an operator that starts anew keeps what the one before it promised. The
scheduler knows nothing of it: where it gave a share to another pod, the promise is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podium_core.domain.fitting import fits
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import FINAL
from podium_core.domain.snapshot import GpuView, JobView, Snapshot, TrialKey, TrialView

# who is furthest is served first: an image that is made is not to wait for one that is to be made
_FURTHEST = (MigrationPhase.POD_CREATED, MigrationPhase.IMAGE_PUSHED, MigrationPhase.REQUESTED)


@dataclass(frozen=True, slots=True)
class Promises:
    """`shares`: by GPU; `broken`: trials for which too few are left, since other pods have them or GPUs are ill."""

    shares: Mapping[str, int]
    broken: frozenset[TrialKey] = frozenset()


def promises(snapshot: Snapshot) -> Promises:
    """O(trials + GPUs * trials on their way)."""
    shares: dict[str, int] = {}
    broken: set[TrialKey] = set()
    jobs = {job.key: job for job in snapshot.jobs}
    on_way = [trial for trial in snapshot.trials if trial.in_migration and trial.phase not in FINAL]
    for trial in sorted(on_way, key=_furthest):
        job = jobs.get(trial.job)
        reported = [gpu for gpu in snapshot.gpus if gpu.node == trial.migration_target and not gpu.draining]
        there = [gpu for gpu in reported if job is not None and fits(job, gpu)]
        if job is None or any(trial.key in gpu.trials for gpu in there):
            continue  # its new pod has them, though its agent has not said so of that pod
        taken = slots_for(job, there, shares)
        if taken:
            promise(taken, shares)
        elif len(reported) >= job.gpus_per_trial:  # of a node that has reported nothing nobody knows
            broken.add(trial.key)
    return Promises(shares, frozenset(broken))


def slots_for(job: JobView, gpus: Iterable[GpuView], promised: Mapping[str, int]) -> tuple[str, ...]:
    """Those of one node's GPUs whose shares a trial would take, the freest first; empty: too few are free."""
    free = {gpu.uuid: gpu.free_slots - promised.get(gpu.uuid, 0) for gpu in gpus}
    best = sorted((uuid for uuid in free if free[uuid] > 0), key=lambda uuid: (-free[uuid], uuid))
    return tuple(best[: job.gpus_per_trial]) if len(best) >= job.gpus_per_trial else ()


def promise(uuids: Iterable[str], shares: dict[str, int]) -> None:
    """Notes one share of each."""
    for uuid in uuids:
        shares[uuid] = shares.get(uuid, 0) + 1


def _furthest(trial: TrialView) -> tuple[int, TrialKey]:
    phase = MigrationPhase.POD_CREATED if trial.migrated else trial.migration
    return _FURTHEST.index(phase or MigrationPhase.REQUESTED), trial.key

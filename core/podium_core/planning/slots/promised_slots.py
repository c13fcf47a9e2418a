"""Slots that are promised to migrating trials on their target GPUs, from the request until the new pod has them.

`migration` uses it to promise no slot twice, and the planner to create no pod for a promised slot. The promises follow
from the snapshot, so a restarted operator keeps them. The scheduler does not know them: if it gives a slot to another
pod, the promise is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podium_core.domain.fitting import fits
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import FINAL
from podium_core.domain.snapshot import JobView, Snapshot, TrialView

# The most advanced migration comes first: an existing image must not wait for one that does not exist yet.
_PROGRESS = (MigrationPhase.POD_CREATED, MigrationPhase.IMAGE_PUSHED, MigrationPhase.REQUESTED)


@dataclass(frozen=True, slots=True)
class Promises:
    """Promised slots by GPU.

    `broken`: trials for which too few slots are left, since other pods have them or GPUs are unhealthy.
    """

    slots: Mapping[str, int]
    broken: frozenset[TrialKey] = frozenset()


def promises(snapshot: Snapshot) -> Promises:
    """Return the promises that follow from the snapshot. O(trials + GPUs * migrating trials)."""
    slots: dict[str, int] = {}
    broken: set[TrialKey] = set()
    jobs = {job.key: job for job in snapshot.jobs}
    moving = [trial for trial in snapshot.trials if trial.relocation.migration is not None]
    migrating = [trial for trial in moving if trial.in_migration and trial.phase not in FINAL]
    for trial in sorted(migrating, key=_by_progress):
        job = jobs.get(trial.job)
        target = trial.relocation.target
        reported = [gpu for gpu in snapshot.gpus if gpu.node == target and not gpu.availability.draining]
        usable = [gpu for gpu in reported if job is not None and fits(job, gpu)]
        if job is None or any(trial.key in gpu.trials for gpu in usable):
            continue  # its new pod has them, though the agent has not reported that pod
        taken = slots_for(job, usable, slots)
        if taken:
            promise(taken, slots)
        elif len(reported) >= job.gpus.per_trial:  # if the node has reported nothing, this is unknown
            broken.add(trial.key)
    return Promises(slots, frozenset(broken))


def slots_for(job: JobView, gpus: Iterable[GpuView], promised: Mapping[str, int]) -> tuple[str, ...]:
    """Return the GPUs of one node on which a trial would get slots, those with most free slots first.

    Empty: too few.
    """
    free = {gpu.uuid: gpu.free_slots - promised.get(gpu.uuid, 0) for gpu in gpus}
    best = sorted((uuid for uuid in free if free[uuid] > 0), key=lambda uuid: (-free[uuid], uuid))
    return tuple(best[: job.gpus.per_trial]) if len(best) >= job.gpus.per_trial else ()


def promise(uuids: Iterable[str], slots: dict[str, int]) -> None:
    """Add one promised slot on each of these GPUs to `slots`."""
    for uuid in uuids:
        slots[uuid] = slots.get(uuid, 0) + 1


def _by_progress(trial: TrialView) -> tuple[int, TrialKey]:
    phase = MigrationPhase.POD_CREATED if trial.relocation.migrated else trial.relocation.migration
    return _PROGRESS.index(phase or MigrationPhase.REQUESTED), trial.key

"""Which live trials are carried to another node, where to, and when the pod that they go on in is made.

Called by the planner beside `leaving`: on a node that drains, a trial that would lose steps by a requeue is carried if
its job names `container-checkpoint` and the agents of both nodes do it. Steps are as `domain.carrying` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podium_core.domain.actions import CreatePod, Migrate, Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.migration import NOT_RESUMABLE, MigrationPhase
from podium_core.domain.phase import FINAL
from podium_core.domain.relocation import is_migratable, is_relocatable
from podium_core.domain.snapshot import GpuView, JobView, Snapshot, TrialKey, TrialView
from podium_core.planning.promised_slots import promise, promises, slots_for
from podium_core.planning.ranking import Standing


@dataclass(frozen=True, slots=True)
class Migrations:
    """`promised`: shares by GPU that wait for those on their way, those that are asked now among them."""

    actions: tuple[Migrate | CreatePod | Requeue, ...]
    promised: Mapping[str, int]


def migrate(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> Migrations:
    """One at a time from a node: its disk takes all memory of each. O(trials + GPUs of a trial), and of those that
    leave * GPUs."""
    drains = any(gpu.draining for gpu in snapshot.gpus)
    if not drains and all(standing.trial.migration is None for standing in standings.values()):
        return Migrations((), {})
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    busy = {standing.trial.node for standing in standings.values() if is_migrating_away(standing.trial)}
    found = promises(snapshot)
    promised, coming = dict(found.shares), _coming(snapshot)
    told: list[Migrate | CreatePod | Requeue] = []
    for standing in standings.values():
        trial = standing.trial
        if trial.pod is None:
            continue
        # its old pod may be told to go by now, by a kubelet even that never ends it: the image is all that is needed
        if trial.migration is MigrationPhase.IMAGE_PUSHED and is_migrating_away(trial):
            if trial.key not in found.broken:  # else it falls back, and goes on where it is
                text = "Its image is in the registry: it goes on from there."
                told.append(CreatePod(trial.key, trial.attempt + 1, "Migrated", text))
        elif trial.terminating:
            continue
        elif trial.migration is MigrationPhase.FAILED and trial.migrated:
            text = "The pod that it was carried to does not go on: a new one begins from its save, or anew."
            told.append(Requeue(trial.key, "MigrationFailed", text))
        elif trial.migration is None and trial.node not in busy and _wanted(standing.job, trial, gpus):
            shares = _target(standing.job, trial, gpus, promised, coming)
            if shares:
                busy.add(trial.node)
                promise(shares, promised)
                target = gpus[shares[0]].node
                text = f"Node {trial.node} drains, and the trial cannot save: it is carried to {target} alive."
                told.append(Migrate(trial.key, target, "NodeDraining", text))
    return Migrations(tuple(told), promised)


def is_migrating_away(trial: TrialView) -> bool:
    """Its present pod is the old one, and gets no turn any more."""
    return trial.migration in NOT_RESUMABLE and not trial.migrated


def _wanted(job: JobView, trial: TrialView, gpus: Mapping[str, GpuView]) -> bool:
    """Its node drains, and it can leave alive and in no other way."""
    mine = [gpus[uuid] for uuid in trial.gpus if uuid in gpus]
    if not any(gpu.draining for gpu in mine):
        return False
    if is_relocatable(
        trial.phase,
        checkpointable=job.checkpointable,
        checkpoint_scope=job.checkpoint_scope,
        has_checkpoint=trial.checkpoint_step is not None,
    ):
        return False
    return is_migratable(trial.phase, migratable=job.migratable, supported=all(gpu.supports_migration for gpu in mine))


def _target(
    job: JobView,
    trial: TrialView,
    gpus: Mapping[str, GpuView],
    promised: Mapping[str, int],
    coming: Mapping[str | None, int],
) -> tuple[str, ...]:
    """GPUs of the node with most free shares among those that it can be carried to; empty: it stays for now.

    Its GPUs' memory comes back only on GPUs of the same product. A share that is promised, or that a pod on its way may
    take, is not free.
    """
    products = {gpus[uuid].product for uuid in trial.gpus if uuid in gpus}
    there: dict[str, list[GpuView]] = {}
    for gpu in gpus.values():
        takes = gpu.supports_migration and gpu.node != trial.node and gpu.health == "Healthy"
        if takes and {gpu.product} == products and fits(job, gpu):
            there.setdefault(gpu.node, []).append(gpu)
    free: dict[str, int] = {}
    for node, mine in there.items():
        shares = sum(max(0, gpu.free_slots - promised.get(gpu.uuid, 0)) for gpu in mine)
        left = shares - coming.get(node, 0) - coming.get(None, 0)
        if left >= job.gpus_per_trial and slots_for(job, mine, promised):
            free[node] = shares
    return slots_for(job, there[min(free, key=lambda node: (-free[node], node))], promised) if free else ()


def _coming(snapshot: Snapshot) -> Mapping[str | None, int]:
    """Shares that pods will take which have none yet, by node; None: of pods that may go to any. One that finds no node
    keeps nobody waiting: it may never find one."""
    needs = {job.key: job.gpus_per_trial for job in snapshot.jobs}
    found: dict[str | None, int] = {}
    for trial in snapshot.trials:
        unplaced = trial.pod is not None and not trial.gpus and trial.phase not in FINAL
        if unplaced and not trial.stuck and not trial.in_migration:
            found[trial.node] = found.get(trial.node, 0) + needs.get(trial.job, 0)
    return found

"""Choice of the running trials to migrate, of their target nodes, and of the time to create their new pods.

The planner calls it beside `requeue`. A trial on a draining node is migrated if a requeue would lose steps. Its job
must name `container-checkpoint`, and the agents of both nodes must support it. The phases are those of
`domain.migration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podium_core.domain.actions import CreatePod, Migrate, Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.migration import NOT_RESUMABLE, MigrationPhase
from podium_core.domain.phase import FINAL
from podium_core.domain.relocation import is_migratable, is_relocatable
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.ranking import Standing
from podium_core.planning.slots.promised_slots import promise, promises, slots_for


@dataclass(frozen=True, slots=True)
class Migrations:
    """Migrations of one cycle.

    `promised`: by GPU, the slots that wait for migrating trials, those of this cycle included.
    """

    actions: tuple[Migrate | CreatePod | Requeue, ...]
    promised: Mapping[str, int]


def migrate(snapshot: Snapshot, standings: Mapping[TrialKey, Standing]) -> Migrations:
    """Plan migrations, one at a time from each node: its disk holds the whole memory of each trial.

    O(trials + GPUs of a trial), and O(GPUs) for each migrated trial.
    """
    draining = any(gpu.availability.draining for gpu in snapshot.gpus)
    if not draining and all(standing.trial.relocation.migration is None for standing in standings.values()):
        return Migrations((), {})
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    busy = {standing.trial.node for standing in standings.values() if is_migrating_away(standing.trial)}
    known = promises(snapshot)
    promised, incoming = dict(known.slots), _incoming(snapshot)
    actions: list[Migrate | CreatePod | Requeue] = []
    for standing in standings.values():
        trial = standing.trial
        if trial.pod is None:
            continue
        # The old pod may be terminating by now, even without an end: only the image is needed.
        if trial.relocation.migration is MigrationPhase.IMAGE_PUSHED and is_migrating_away(trial):
            if trial.key not in known.broken:  # else the migration fails, and the trial continues where it is
                text = "Its image is in the registry: the trial continues from it."
                actions.append(CreatePod(trial.key, trial.attempts.number + 1, "Migrated", text))
        elif trial.terminating:
            continue
        elif trial.relocation.migration is MigrationPhase.FAILED and trial.relocation.migrated:
            text = "The pod on the target does not continue: a new pod starts from the checkpoint, if there is one."
            actions.append(Requeue(trial.key, "MigrationFailed", text))
        elif trial.relocation.migration is None and trial.node not in busy and _must_migrate(standing.job, trial, gpus):
            slots = _target(standing.job, trial, gpus, promised, incoming)
            if slots:
                busy.add(trial.node)
                promise(slots, promised)
                target = gpus[slots[0]].node
                text = f"Node {trial.node} drains, and the trial cannot checkpoint: it is migrated to {target}."
                actions.append(Migrate(trial.key, target, "NodeDraining", text))
    return Migrations(tuple(actions), promised)


def is_migrating_away(trial: TrialView) -> bool:
    """Return whether the trial's present pod is the old one, which gets no time slice any more."""
    return trial.relocation.migration in NOT_RESUMABLE and not trial.relocation.migrated


def _must_migrate(job: JobView, trial: TrialView, gpus: Mapping[str, GpuView]) -> bool:
    """Return whether the trial's node drains and only a migration keeps its work."""
    mine = [gpus[uuid] for uuid in trial.gpus if uuid in gpus]
    if not any(gpu.availability.draining for gpu in mine):
        return False
    if is_relocatable(
        trial.phase,
        checkpointable=job.abilities.checkpointable,
        checkpoint_scope=job.abilities.checkpoint_scope,
        has_checkpoint=trial.attempts.checkpoint_step is not None,
    ):
        return False
    supported = all(gpu.supports_migration for gpu in mine)
    return is_migratable(trial.phase, migratable=job.abilities.migratable, supported=supported)


def _target(
    job: JobView,
    trial: TrialView,
    gpus: Mapping[str, GpuView],
    promised: Mapping[str, int],
    incoming: Mapping[str | None, int],
) -> tuple[str, ...]:
    """Return GPUs of the possible target node with most free slots; empty: the trial remains for now.

    GPU memory can be restored only on GPUs of the same product. A slot that is promised, or that an unplaced pod may
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
        slots = sum(max(0, gpu.free_slots - promised.get(gpu.uuid, 0)) for gpu in mine)
        left = slots - incoming.get(node, 0) - incoming.get(None, 0)
        if left >= job.gpus.per_trial and slots_for(job, mine, promised):
            free[node] = slots
    return slots_for(job, there[min(free, key=lambda node: (-free[node], node))], promised) if free else ()


def _incoming(snapshot: Snapshot) -> Mapping[str | None, int]:
    """Return the slots that pods without a slot will take, by node; None: pods that may go to any node.

    A pod that finds no node is not counted: it may never find one.
    """
    needs = {job.key: job.gpus for job in snapshot.jobs}
    known: dict[str | None, int] = {}
    for trial in snapshot.trials:
        unplaced = trial.pod is not None and not trial.pod.gpus and not trial.pod.stuck and trial.phase not in FINAL
        if trial.pod is None or trial.job not in needs or not unplaced or trial.in_migration:
            continue
        need, workers = needs[trial.job], trial.pod.workers
        nodes = [worker.node for worker in workers if not worker.gpus] if workers else [trial.node]
        for node in (*nodes, *[None] * (need.workers - max(1, len(workers)))):  # some may have no pod yet
            known[node] = known.get(node, 0) + need.per_worker
    return known

"""Which trials are to leave their pod and go on in another one: the node drains, the GPU is ill or leased no more, the
GPU is wanted by another, a trial or an urgent pod, and the trial cannot be frozen, or its place is (`turnover`).

Called by the planner after the order is made. A requeue costs a save, an end, a start and a load, so:

- never a trial that would lose what it did: it saves when told, or this attempt has not begun. But on a GPU whose lease
  has ended, which is another's now, none may work on;
- one at a time on a GPU: each needs the GPU to save within its grace period;
- an ill GPU is left ever more seldom by the same trial, since health may come and go (REST, doubled each attempt).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.relocation import is_relocatable, is_started
from podium_core.domain.snapshot import GpuView, Snapshot, TrialKey, TrialView
from podium_core.planning.ranking import Standing
from podium_core.planning.run_queue import RunQueuePlan
from podium_core.planning.slot_reclaim import SlotReclaims

MIN_STAY_SECONDS = 30.0  # seconds that a pod is left on a GPU whose health may come back
MAX_STAY_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Requeues:
    actions: tuple[Requeue, ...]
    wake_at: float | None


def requeue(
    snapshot: Snapshot, standings: Mapping[TrialKey, Standing], ordering: RunQueuePlan, turnover: SlotReclaims
) -> Requeues:
    """O(trials * GPUs of a trial), and of those that leave * GPUs."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    draining = frozenset(gpu.node for gpu in snapshot.gpus if gpu.draining)
    wakes = [] if turnover.wake_at is None else [turnover.wake_at]
    asked: list[tuple[Standing, Requeue]] = []
    trouble = draining or any(gpu.health == "Unhealthy" or gpu.reservation_ended for gpu in snapshot.gpus)
    for standing in standings.values():
        if standing.trial.pod is None or standing.trial.terminating:
            continue
        given = turnover.requeues.get(standing.trial.key)
        if standing.job.suspendable and not trouble and given is None:  # none of the reasons below
            continue
        one = (
            _drained(standing, gpus, draining)
            or _lease_ended(standing, gpus)
            or _ill(snapshot, standing, gpus, wakes)
            or _taken(standing, gpus)
            or _wanted(standing, gpus, ordering)
            or given
        )
        if one is not None:
            asked.append((standing, one))
    # holders first: the others of a GPU could not save beside them
    asked.sort(key=lambda pair: (not _holds(pair[0].trial, gpus), pair[0].ranked.rank, pair[0].trial.key))
    busy = {uuid for trial in snapshot.trials if trial.terminating for uuid in trial.gpus}
    told: list[Requeue] = []
    for standing, one in asked:
        if _not_begun(standing.trial):
            told.append(one)
        elif not busy.intersection(standing.trial.gpus):
            told.append(one)
            busy.update(standing.trial.gpus)
    return Requeues(tuple(told), min(wakes, default=None))


def _movable(standing: Standing) -> bool:
    """Whether it can go on from where it is on any other node."""
    trial, job = standing.trial, standing.job
    has_save = trial.checkpoint_step is not None
    return is_relocatable(
        trial.phase,
        checkpointable=job.checkpointable,
        checkpoint_scope=job.checkpoint_scope,
        has_checkpoint=has_save,
        migrated=trial.migrated,
    )


def _drained(standing: Standing, gpus: Mapping[str, GpuView], draining: frozenset[str]) -> Requeue | None:
    trial = standing.trial
    where = (trial.node, *(gpus[uuid].node for uuid in trial.gpus if uuid in gpus))
    node = next((node for node in where if node in draining), None)
    if node is None or standing.job.gpus_per_trial == 0 or not _movable(standing):
        return None
    return Requeue(trial.key, "NodeDraining", f"Node {node} drains: the trial goes on elsewhere.")


def _lease_ended(standing: Standing, gpus: Mapping[str, GpuView]) -> Requeue | None:
    """Who is suspended there stays, with its memory off the GPU, and goes on when the GPU is leased again."""
    trial, job = standing.trial, standing.job
    lost = next((uuid for uuid in trial.gpus if uuid in gpus and gpus[uuid].reservation_ended), None)
    if lost is None:
        return None
    why = f"Podium's lease of GPU {lost} has ended."
    if _not_begun(trial):
        return Requeue(trial.key, "ReservationEnded", f"{why} The trial had not begun: it begins elsewhere.")
    if job.suspendable or not _holds(trial, gpus):
        return None
    how = "saves and goes on later" if job.checkpointable else "cannot save either, and begins anew"
    return Requeue(trial.key, "ReservationEnded", f"{why} The trial cannot be suspended here: it {how}.")


def _ill(snapshot: Snapshot, standing: Standing, gpus: Mapping[str, GpuView], wakes: list[float]) -> Requeue | None:
    trial, job = standing.trial, standing.job
    ill = [uuid for uuid in trial.gpus if uuid in gpus and gpus[uuid].health == "Unhealthy"]
    if not ill or not (job.checkpointable or _not_begun(trial)) or not any(_elsewhere(standing, gpus)):
        return None
    rest = min(MAX_STAY_SECONDS, MIN_STAY_SECONDS * 2.0 ** min(trial.attempt, 20))
    if snapshot.now < trial.pod_since + rest:
        wakes.append(trial.pod_since + rest)
        return None
    return Requeue(trial.key, "GPUUnhealthy", f"GPU {ill[0]} is ill: the trial goes on elsewhere.")


def _elsewhere(standing: Standing, gpus: Mapping[str, GpuView]) -> Iterator[GpuView]:
    """GPUs that could take it; of its own node only, where its saves stay there."""
    bound = standing.job.checkpoint_scope == "node" and not _movable(standing)
    for gpu in gpus.values():
        if fits(standing.job, gpu) and (not bound or gpu.node == standing.trial.node):
            yield gpu


def _taken(standing: Standing, gpus: Mapping[str, GpuView]) -> Requeue | None:
    """An urgent pod is to have its GPU for itself."""
    trial, job = standing.trial, standing.job
    if job.suspendable or not job.checkpointable or not _holds(trial, gpus):
        return None
    for uuid in trial.gpus:
        if uuid in gpus and (name := gpus[uuid].exclusive_pod) is not None:
            who = f"Pod {name}" if name else "An urgent pod"
            why = f"{who} is to have GPU {uuid} for itself."
            return Requeue(trial.key, "Preempted", f"{why} The trial cannot be frozen: it saves and goes on later.")
    return None


def _wanted(standing: Standing, gpus: Mapping[str, GpuView], ordering: RunQueuePlan) -> Requeue | None:
    trial, job = standing.trial, standing.job
    if job.suspendable or not job.checkpointable or not _holds(trial, gpus) or trial.key in ordering.claims:
        return None
    if trial.suspend or job.suspended:
        return Requeue(trial.key, "SuspendedByUser", "The trial is to hold no GPU, and cannot be frozen: it saves.")
    place = ordering.rank_of(trial.key)
    why = place.message if place is not None else "Another trial gets its GPU."
    return Requeue(trial.key, "Preempted", f"{why} It cannot be frozen: it saves and goes on later.")


def _holds(trial: TrialView, gpus: Mapping[str, GpuView]) -> bool:
    return any(gpus[uuid].holder == trial.key for uuid in trial.gpus if uuid in gpus)


def _not_begun(trial: TrialView) -> bool:
    """Nothing of this attempt ran yet, so nothing can be lost."""
    return not is_started(trial.phase, migrated=trial.migrated)

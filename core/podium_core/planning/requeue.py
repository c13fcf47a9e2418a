"""Choice of the trials to requeue: their pod is deleted and a new one continues.

A trial is requeued for one of these reasons:

- The node drains.
- The GPU is unhealthy, or its reservation has ended.
- Another trial or an exclusive pod needs the GPU, and the trial cannot be suspended.
- Its slot is reclaimed (`slot_reclaim`).
- One of its workers finds no slot, and the others keep theirs for nothing.

The planner calls it after the run queues are made. A requeue costs a checkpoint, an end, a start and a load, so:

- A trial that would lose work is never requeued: it checkpoints on request, or this attempt has not started. The one
  exception is a GPU whose reservation has ended: it belongs to another pod, so no trial may run on it.
- One trial at a time leaves a GPU: each needs the GPU to checkpoint within its grace period.
- A trial leaves unhealthy GPUs less and less often, since health may change back and forth (MIN_STAY_SECONDS, doubled
  with each attempt).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podium_core.domain.actions import Requeue
from podium_core.domain.fitting import fits
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import TrialKey
from podium_core.domain.phrases import count
from podium_core.domain.pod_view import PodView
from podium_core.domain.relocation import is_relocatable, is_started
from podium_core.domain.snapshot import Snapshot, TrialView
from podium_core.planning.ranking import Standing
from podium_core.planning.run_queue import RunQueuePlan
from podium_core.planning.slots.slot_reclaim import SlotReclaims

MIN_STAY_SECONDS = 30.0  # seconds that a pod remains on a GPU that may recover
MAX_STAY_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Requeues:
    """Requeues of one cycle."""

    actions: tuple[Requeue, ...]
    wake_at: float | None


def requeue(
    snapshot: Snapshot, standings: Mapping[TrialKey, Standing], queues: RunQueuePlan, reclaims: SlotReclaims
) -> Requeues:
    """Return the requeues. O(trials * GPUs of a trial), and O(GPUs) for each requeued trial."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    draining = frozenset(gpu.node for gpu in snapshot.gpus if gpu.availability.draining)
    wakes = [] if reclaims.wake_at is None else [reclaims.wake_at]
    requested: list[tuple[Standing, Requeue]] = []
    has_problems = draining or any(gpu.health == "Unhealthy" or gpu.reservation_ended for gpu in snapshot.gpus)
    for standing in standings.values():
        pod = standing.trial.pod
        if pod is None or pod.terminating:
            continue
        reclaimed = reclaims.requeues.get(standing.trial.key)
        incomplete = pod.stuck and bool(pod.workers) and not pod.gpus
        if standing.job.abilities.suspendable and not has_problems and reclaimed is None and not incomplete:
            continue  # no reason applies
        action = (
            _drained(standing, gpus, draining)
            or _reservation_ended(standing, gpus)
            or _unhealthy(snapshot, standing, gpus, wakes)
            or _preempted_by_exclusive_pod(standing, gpus)
            or _preempted_by_trial(standing, gpus, queues)
            or (_stuck_worker(standing, pod) if incomplete else None)
            or reclaimed
        )
        if action is not None:
            requested.append((standing, action))
    if not requested:
        return Requeues((), min(wakes, default=None))
    # Holders first: other trials of the GPU could not checkpoint beside them.
    requested.sort(key=lambda pair: (not _holds(pair[0].trial, gpus), pair[0].ranked.rank, pair[0].trial.key))
    busy = {uuid for trial in snapshot.trials if trial.terminating for uuid in trial.gpus}
    actions: list[Requeue] = []
    for standing, action in requested:
        if _is_unstarted(standing.trial):
            actions.append(action)
        elif not busy.intersection(standing.trial.gpus):
            actions.append(action)
            busy.update(standing.trial.gpus)
    return Requeues(tuple(actions), min(wakes, default=None))


def _movable(standing: Standing) -> bool:
    """Return whether the trial can continue on any other node."""
    trial, job = standing.trial, standing.job
    has_checkpoint = trial.attempts.checkpoint_step is not None
    return is_relocatable(
        trial.phase,
        checkpointable=job.abilities.checkpointable,
        checkpoint_scope=job.abilities.checkpoint_scope,
        has_checkpoint=has_checkpoint,
        migrated=trial.relocation.migrated,
    )


def _drained(standing: Standing, gpus: Mapping[str, GpuView], draining: frozenset[str]) -> Requeue | None:
    trial = standing.trial
    nodes = () if trial.pod is None else trial.pod.nodes
    where = (*nodes, *(gpus[uuid].node for uuid in trial.gpus if uuid in gpus))
    node = next((node for node in where if node in draining), None)
    if node is None or standing.job.gpus.per_trial == 0 or not _movable(standing):
        return None
    return Requeue(trial.key, "NodeDraining", f"Node {node} drains: the trial continues elsewhere.")


def _stuck_worker(standing: Standing, pod: PodView) -> Requeue | None:
    """Requeue a trial of which some workers have slots, while another one has found none for a long time.

    The slots could be those that another such trial waits for.
    """
    placed = sum(bool(worker.gpus) for worker in pod.workers)
    if placed == 0 or not (standing.job.abilities.checkpointable or _is_unstarted(standing.trial)):
        return None
    why = f"{placed} of its {count(standing.job.gpus.workers, 'worker')} have slots, and another one finds none."
    return Requeue(standing.trial.key, "WorkerStuck", f"{why} The trial releases them and starts later.")


def _reservation_ended(standing: Standing, gpus: Mapping[str, GpuView]) -> Requeue | None:
    """Requeue a trial whose GPU reservation has ended.

    A suspended trial remains, with its memory off the GPU, and continues when the GPU is reserved again.
    """
    trial, job = standing.trial, standing.job
    unreserved = next((uuid for uuid in trial.gpus if uuid in gpus and gpus[uuid].reservation_ended), None)
    if unreserved is None:
        return None
    why = f"The reservation of GPU {unreserved} has ended."
    if _is_unstarted(trial):
        return Requeue(trial.key, "ReservationEnded", f"{why} The trial had not started: it starts elsewhere.")
    if job.abilities.suspendable or not _holds(trial, gpus):
        return None
    how = "cannot checkpoint either, and starts from step 0"
    if job.abilities.checkpointable:
        how = "checkpoints and continues later"
    return Requeue(trial.key, "ReservationEnded", f"{why} The trial cannot be suspended: it {how}.")


def _unhealthy(
    snapshot: Snapshot, standing: Standing, gpus: Mapping[str, GpuView], wakes: list[float]
) -> Requeue | None:
    trial, job = standing.trial, standing.job
    unhealthy = [uuid for uuid in trial.gpus if uuid in gpus and gpus[uuid].health == "Unhealthy"]
    keeps_work = job.abilities.checkpointable or _is_unstarted(trial)
    if not unhealthy or not keeps_work or not any(_elsewhere(standing, gpus)):
        return None
    min_stay = min(MAX_STAY_SECONDS, MIN_STAY_SECONDS * 2.0 ** min(trial.attempts.number, 20))
    if snapshot.now < trial.pod_since + min_stay:
        wakes.append(trial.pod_since + min_stay)
        return None
    return Requeue(trial.key, "GPUUnhealthy", f"GPU {unhealthy[0]} is unhealthy: the trial continues elsewhere.")


def _elsewhere(standing: Standing, gpus: Mapping[str, GpuView]) -> Iterator[GpuView]:
    """Yield the GPUs that could run it; only those of its node if its checkpoints are there."""
    node_bound = standing.job.abilities.checkpoint_scope == "node" and not _movable(standing)
    for gpu in gpus.values():
        if fits(standing.job, gpu) and (not node_bound or gpu.node == standing.trial.node):
            yield gpu


def _preempted_by_exclusive_pod(standing: Standing, gpus: Mapping[str, GpuView]) -> Requeue | None:
    """Requeue a trial whose GPU an exclusive pod is to get, if it cannot be suspended."""
    trial, job = standing.trial, standing.job
    if job.abilities.suspendable or not job.abilities.checkpointable or not _holds(trial, gpus):
        return None
    for uuid in trial.gpus:
        if uuid in gpus and (name := gpus[uuid].availability.exclusive_pod) is not None:
            pod = f"Pod {name}" if name else "An exclusive pod"
            why = f"{pod} gets the whole GPU {uuid}."
            return Requeue(
                trial.key, "Preempted", f"{why} The trial cannot be suspended: it checkpoints and continues later."
            )
    return None


def _preempted_by_trial(standing: Standing, gpus: Mapping[str, GpuView], queues: RunQueuePlan) -> Requeue | None:
    trial, job = standing.trial, standing.job
    if job.abilities.suspendable or not job.abilities.checkpointable:
        return None
    if not _holds(trial, gpus) or trial.key in queues.claims:
        return None
    if standing.suspended_by_user:
        return Requeue(
            trial.key, "SuspendedByUser", "The trial must give up its GPU and cannot be suspended: it checkpoints."
        )
    rank = queues.rank_of(trial.key)
    why = rank.message if rank is not None else "Another trial gets its GPU."
    return Requeue(trial.key, "Preempted", f"{why} It cannot be suspended: it checkpoints and continues later.")


def _holds(trial: TrialView, gpus: Mapping[str, GpuView]) -> bool:
    return any(gpus[uuid].holder == trial.key for uuid in trial.gpus if uuid in gpus)


def _is_unstarted(trial: TrialView) -> bool:
    """Nothing of this attempt ran yet, so nothing can be unreserved."""
    return not is_started(trial.phase, migrated=trial.relocation.migrated)

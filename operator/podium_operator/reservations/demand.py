"""Demand for GPU reservations and those that exist, as `planning.gpu_reservations` needs them. Pure.

Used by `controller`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from podium_core.domain.gpu_reservation import ReservationFacts, ReservationState, derive_state
from podium_core.domain.phase import FINAL
from podium_core.domain.relocation import is_started
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialView
from podium_core.planning.gpu_reservations import Demand, Pool, Reservation
from podium_core.schema.gpunode import GPUNode, GpuStatus
from podium_operator.observe.reservation_state import SeenLease


def pool_of(job: JobView) -> Pool:
    """Return the pool that serves the job."""
    return Pool(job.key.namespace, "", tuple(sorted(job.products)))


def asks_for_gpus(job: JobView) -> bool:
    """Return True if the job's trials need GPUs."""
    return job.accepted and not job.finished and job.gpus_per_trial > 0


@dataclass(frozen=True, slots=True)
class Wish:
    """Demand of a pool. `nodes`: the only nodes where a further GPU helps; empty: anywhere.

    `together`: some trials need several GPUs, and the GPUs of one trial must be on one node.
    """

    demand: Demand
    nodes: tuple[str, ...] = ()
    together: bool = False


@dataclass(slots=True)
class _Need:
    """GPUs that a pool needs.

    `placed`: GPUs that have trials; `lost`: those of them whose reservation has ended; `free`: further GPUs that trials
    without a GPU could use.
    """

    placed: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    free: int = 0
    together: bool = False


def wishes(snapshot: Snapshot, most: int) -> Mapping[Pool, Wish]:
    """Return the demand of each pool: GPUs with trials, and GPUs that waiting trials could use.

    A pool requests at most `most` GPUs. A suspended search needs none for now. A trial that is suspended on a GPU whose
    reservation has ended can continue only there. While such a trial waits, idle reservations do not count: another GPU
    must be requested, on exactly that node if no other trial could use a GPU elsewhere. O(trials + jobs + GPUs).
    """
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    trials: dict[JobKey, list[TrialView]] = {}
    for trial in snapshot.trials:
        trials.setdefault(trial.job, []).append(trial)
    needs: dict[Pool, _Need] = {}
    for job in snapshot.jobs:
        if asks_for_gpus(job):
            _add(needs.setdefault(pool_of(job), _Need()), job, trials.get(job.key, ()), gpus)
    idle = Counter(gpu.reserved_for for gpu in snapshot.gpus if gpu.reserved_for and not gpu.trials)
    return {pool: _wish(need, idle[pool.namespace], gpus, most) for pool, need in needs.items()}


def _add(need: _Need, job: JobView, trials: Sequence[TrialView], gpus: Mapping[str, GpuView]) -> None:
    if job.suspended:
        return
    need.together |= job.gpus_per_trial > 1
    left = max(0, job.max_trials - sum(trial.phase in FINAL for trial in trials))
    wanted = left if job.parallel is None else min(job.parallel, left)
    for trial in trials:
        lost = any(uuid in gpus and gpus[uuid].reservation_ended for uuid in trial.gpus)
        if trial.phase in FINAL or not trial.gpus or trial.terminating:
            continue
        if lost and not is_started(trial.phase, migrated=trial.migrated):
            continue
        need.placed.update(trial.gpus)
        need.lost.update(trial.gpus if lost else ())
        wanted -= 1
    need.free += max(0, wanted) * job.gpus_per_trial


def _wish(need: _Need, idle: int, gpus: Mapping[str, GpuView], most: int) -> Wish:
    free = max(need.free, idle) if need.lost else need.free
    nodes = sorted({gpus[uuid].node for uuid in need.lost if uuid in gpus}) if not need.free else ()
    return Wish(Demand(len(need.placed) + free, most), tuple(nodes), need.together)


def leases_of(
    seen: Iterable[SeenLease], nodes: Iterable[GPUNode], now: float, silent: Collection[str] = ()
) -> tuple[Reservation, ...]:
    """Return the reservations with their states.

    A reservation is held if the agent of its node names it with that GPU: pod names recur, and an unresponsive or
    deleted node may still report an older reservation pod. The cost of losing a reservation is the number of trials
    that have to move. What the agent of a `silent` node reported of ending trials may never change.
    """
    held = {
        (node.metadata.name, gpu.reservation): (gpu, node.metadata.name in silent)
        for node in nodes
        for gpu in node.status.gpus
        if gpu.reservation is not None
    }
    nothing = (None, False)
    return tuple(_lease(one, *held.get((one.node, one.path), nothing), now=now) for one in seen)


def _lease(seen: SeenLease, gpu: GpuStatus | None, silent: bool, *, now: float) -> Reservation:
    trials = gpu.trials if gpu is not None else []
    return Reservation(
        name=seen.name,
        pool=seen.pool,
        state=state_of(seen, gpu),
        since=seen.created,
        idle_since=now if gpu is not None and not trials else None,
        loss=float(len(trials)),
        unneeded_since=seen.unneeded_since,
        in_use=not silent and any(trial.namespace == seen.pool.namespace for trial in trials),
    )


def state_of(seen: SeenLease, gpu: GpuStatus | None) -> ReservationState:
    """Return the state of one reservation."""
    return derive_state(ReservationFacts(True, seen.bound, gpu is not None, seen.deleting, seen.over))

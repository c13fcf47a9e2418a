"""Demand for GPU reservations and those that exist, as `planning.slots.gpu_reservations` needs them. Pure.

`controller` uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from podium_core.domain.gpu_reservation import ReservationFacts, ReservationState, derive_state
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey
from podium_core.domain.phase import FINAL
from podium_core.domain.relocation import is_started
from podium_core.domain.snapshot import JobView, Snapshot, TrialView
from podium_core.planning.exploitation import most_at_once
from podium_core.planning.queues.queue_rules import QueueRules
from podium_core.planning.slots.gpu_reservations import Demand, Pool, Reservation
from podium_core.schema.gpunode import GPUNode, GpuStatus
from podium_operator.observe.reservation_state import ReservationPodState


def pool_of(job: JobView, default_queue: str = "") -> Pool:
    """Return the pool that serves the job; `default_queue`: for jobs that name no queue."""
    return Pool(job.key.namespace, job.gpus.queue or default_queue, tuple(sorted(job.gpus.products)))


def needs_gpus(job: JobView) -> bool:
    """Return True if the job's trials need GPUs."""
    return job.state.accepted and not job.state.finished and job.gpus.per_trial > 0


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """Demand of a pool. `nodes`: the only nodes where a further GPU helps; empty: anywhere.

    `together`: some pods need several GPUs, which must be on one node. `apart`: some trials have several workers, whose
    GPUs must be on different nodes.
    """

    demand: Demand
    nodes: tuple[str, ...] = ()
    together: bool = False
    apart: bool = False


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
    apart: bool = False


def pool_demands(snapshot: Snapshot, max_gpus: int, default_queue: str = "") -> Mapping[Pool, PoolDemand]:
    """Return the demand of each pool: GPUs with trials, and GPUs that waiting trials could use.

    A pool requests at most `max_gpus` GPUs. A suspended search needs none for now. A trial that is suspended on a GPU
    whose reservation has ended can continue only there. While such a trial waits, idle reservations do not count:
    another GPU must be requested. It must be on that node if no other trial could use a GPU elsewhere. A job that gets
    nothing from its queue (its budget is spent, for example) needs no further GPU. O(trials + jobs + GPUs).
    """
    rules = QueueRules.of(snapshot)
    blocked = () if rules is None else rules.obstacles
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    trials: dict[JobKey, list[TrialView]] = {}
    for trial in snapshot.trials:
        trials.setdefault(trial.job, []).append(trial)
    needs: dict[Pool, _Need] = {}
    for job in snapshot.jobs:
        if needs_gpus(job):
            need = needs.setdefault(pool_of(job, default_queue), _Need())
            _add(need, job, trials.get(job.key, ()), gpus, blocked=job.key in blocked)
    idle = Counter(
        gpu.availability.reserved_for for gpu in snapshot.gpus if gpu.availability.reserved_for and not gpu.trials
    )
    return {pool: _pool_demand(need, idle[pool.namespace], gpus, max_gpus) for pool, need in needs.items()}


def _add(need: _Need, job: JobView, trials: Sequence[TrialView], gpus: Mapping[str, GpuView], *, blocked: bool) -> None:
    if job.state.suspended:
        return
    need.together |= job.gpus.per_worker > 1
    need.apart |= job.gpus.workers > 1
    left = most_at_once(job, trials, sum(trial.phase not in FINAL for trial in trials))
    wanted = left if job.limits.parallel is None else min(job.limits.parallel, left)
    for trial in trials:
        lost = any(uuid in gpus and gpus[uuid].reservation_ended for uuid in trial.gpus)
        if trial.phase in FINAL or not trial.gpus or trial.terminating:
            continue
        if lost and not is_started(trial.phase, migrated=trial.relocation.migrated):
            continue
        need.placed.update(trial.gpus)
        need.lost.update(trial.gpus if lost else ())
        wanted -= 1
    if not blocked:
        need.free += max(0, wanted) * job.gpus.per_trial


def _pool_demand(need: _Need, idle: int, gpus: Mapping[str, GpuView], max_gpus: int) -> PoolDemand:
    free = max(need.free, idle) if need.lost else need.free
    nodes = sorted({gpus[uuid].node for uuid in need.lost if uuid in gpus}) if not need.free else ()
    return PoolDemand(
        Demand(len(need.placed) + free, max_gpus), tuple(nodes), need.together, need.apart and not need.together
    )


def reservations_from(
    pods: Iterable[ReservationPodState], nodes: Iterable[GPUNode], now: float, unresponsive: Collection[str] = ()
) -> tuple[Reservation, ...]:
    """Return the reservations with their states.

    A reservation is held if the agent of its node names it with that GPU. The pod's name is not enough: names recur,
    and an unresponsive or deleted node may still report an older reservation pod. The cost of losing a reservation is
    the number of trials that have to move. The reported trials of a node in `unresponsive` do not count
    as use, because that report may never change.
    """
    held = {
        (node.metadata.name, gpu.reservation): (gpu, node.metadata.name in unresponsive)
        for node in nodes
        for gpu in node.status.gpus
        if gpu.reservation is not None
    }
    nothing = (None, False)
    return tuple(_reservation(one, *held.get((one.node, one.path), nothing), now=now) for one in pods)


def _reservation(pod: ReservationPodState, gpu: GpuStatus | None, unresponsive: bool, *, now: float) -> Reservation:
    trials = gpu.trials if gpu is not None else []
    return Reservation(
        name=pod.name,
        pool=pod.pool,
        state=state_of(pod, gpu),
        since=pod.created,
        idle_since=now if gpu is not None and not trials else None,
        loss=float(len(trials)),
        unneeded_since=pod.unneeded_since,
        in_use=not unresponsive and any(trial.namespace == pod.pool.namespace for trial in trials),
    )


def state_of(pod: ReservationPodState, gpu: GpuStatus | None) -> ReservationState:
    """Return the state of one reservation."""
    return derive_state(ReservationFacts(True, pod.bound, gpu is not None, pod.deleting, pod.ended))

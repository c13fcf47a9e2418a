"""Builders of snapshots: every field has a default, so a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from podium_core.domain.migration import MigrationPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import (
    CheckpointScope,
    Costs,
    GpuView,
    JobKey,
    JobView,
    Point,
    Scalar,
    Snapshot,
    TrialKey,
    TrialView,
)

NAMESPACE = "lab"


def job_key(name: str = "job") -> JobKey:
    return JobKey(NAMESPACE, name)


def trial_key(name: str) -> TrialKey:
    return TrialKey(NAMESPACE, name, f"uid-{name}")


def make_curve(values: Iterable[float], start: float = 1.0) -> tuple[Point, ...]:
    """Return a curve with one point per step and one step per second."""
    return tuple(Point(start + i, value, start + i) for i, value in enumerate(values))


def make_job(
    name: str = "job",
    *,
    policy: str = "hermes",
    settings: Mapping[str, Scalar] | None = None,
    created: float = 0.0,
    maximize: bool = True,
    target: float | None = None,
    max_trials: int = 12,
    parallel: int | None = 8,
    max_steps: float | None = 100.0,
    max_failed: int = 3,
    retries: int = 2,
    gpus_per_trial: int = 1,
    accepted: bool = True,
    suspended: bool = False,
    finished: bool = False,
    budget_gpu_seconds: float | None = None,
    deadline: float | None = None,
    products: tuple[str, ...] = (),
    memory: int | None = None,
    suspendable: bool = True,
    checkpointable: bool = False,
    checkpoint_scope: CheckpointScope | None = None,
    migratable: bool = False,
    moves_memory: bool = False,
    learns: bool = False,
) -> JobView:
    return JobView(
        key=job_key(name),
        uid=f"uid-{name}",
        created=created,
        policy=policy,
        settings=MappingProxyType(dict(settings or {})),
        maximize=maximize,
        target=target,
        max_trials=max_trials,
        parallel=parallel,
        max_steps=max_steps,
        max_failed=max_failed,
        retries=retries,
        gpus_per_trial=gpus_per_trial,
        accepted=accepted,
        suspended=suspended,
        finished=finished,
        budget_gpu_seconds=budget_gpu_seconds,
        deadline=deadline,
        products=products,
        memory=memory,
        suspendable=suspendable,
        checkpointable=checkpointable,
        checkpoint_scope=checkpoint_scope or ("anywhere" if checkpointable else "nowhere"),
        migratable=migratable,
        moves_memory=moves_memory,
        learns=learns,
    )


def make_trial(
    number: int = 0,
    *,
    job: str = "job",
    phase: TrialPhase = TrialPhase.PENDING,
    values: Sequence[float] = (),
    curve: tuple[Point, ...] | None = None,
    gpus: Sequence[str] = (),
    pod: str | Literal["auto"] | None = "auto",
    node: str | None = None,
    attempt: int = 0,
    failures: int = 0,
    gpu_seconds: float = 0.0,
    retry_at: float = 0.0,
    suspend: bool = False,
    pinned: bool = False,
    stopped: bool = False,
    stuck: bool = False,
    waits_for_capacity: bool = False,
    terminating: bool = False,
    termination_overdue: bool = False,
    pod_since: float = 0.0,
    checkpoint_step: float | None = None,
    migration: MigrationPhase | None = None,
    migrated: bool = False,
    migration_target: str | None = None,
    rebalance_count: int = 0,
    destination: str | None = None,
    finished_at: float | None = None,
    parameters: Mapping[str, Scalar] = MappingProxyType({}),
) -> TrialView:
    """Return a trial; `values` is a curve with one point per step. A trial with GPUs has a pod by default."""
    name = f"{job}-{number}"
    has_pod = f"{name}-{attempt}" if gpus else None
    return TrialView(
        key=trial_key(name),
        job=job_key(job),
        number=number,
        created=float(number),
        phase=phase,
        curve=make_curve(values) if curve is None else curve,
        attempt=attempt,
        failures=failures,
        pod=has_pod if pod == "auto" else pod,
        node=node,
        gpus=tuple(gpus),
        gpu_seconds=gpu_seconds,
        retry_at=retry_at,
        suspend=suspend,
        pinned=pinned,
        stopped=stopped,
        stuck=stuck,
        waits_for_capacity=waits_for_capacity,
        terminating=terminating,
        termination_overdue=termination_overdue,
        pod_since=pod_since,
        checkpoint_step=checkpoint_step,
        migration=migration,
        migrated=migrated,
        migration_target=migration_target,
        rebalance_count=rebalance_count,
        destination=destination,
        finished_at=finished_at,
        parameters=tuple(parameters.items()),
    )


def make_gpu(
    uuid: str = "gpu-0",
    *,
    node: str = "node-a",
    health: Literal["Healthy", "Unhealthy", "Unknown"] = "Healthy",
    slots: int = 4,
    holder: TrialKey | None = None,
    holder_since: float | None = None,
    trials: Sequence[TrialKey] = (),
    run_queue: Sequence[TrialKey] = (),
    product: str = "",
    memory_total: int = 0,
    memory_reserved: int = 0,
    memory_movable: int = 0,
    draining: bool = False,
    exclusive_pod: str | None = None,
    reserved_for: str | None = None,
    supports_migration: bool = False,
    in_effect: bool = False,
    no_preemption: bool = False,
) -> GpuView:
    return GpuView(
        node=node,
        uuid=uuid,
        health=health,
        slots=slots,
        holder=holder,
        holder_since=holder_since,
        trials=tuple(trials),
        run_queue=tuple(run_queue),
        free_slots=max(0, slots - len(trials)),
        product=product,
        memory_total=memory_total,
        memory_reserved=memory_reserved,
        memory_movable=memory_movable,
        draining=draining,
        exclusive_pod=exclusive_pod,
        reserved_for=reserved_for,
        supports_migration=supports_migration,
        in_effect=in_effect,
        no_preemption=no_preemption,
    )


def make_snapshot(
    *,
    now: float = 1000.0,
    jobs: Iterable[JobView] = (),
    trials: Iterable[TrialView] = (),
    gpus: Iterable[GpuView] = (),
    costs: Costs | None = None,
    epochs: Mapping[str, int] | None = None,
    rebalancing: RebalancingRules | None = None,
    full_nodes: Iterable[tuple[JobKey, str]] = (),
) -> Snapshot:
    return Snapshot(
        now=now,
        jobs=tuple(jobs),
        trials=tuple(trials),
        gpus=tuple(gpus),
        costs=costs or Costs(),
        epochs=MappingProxyType(dict(epochs or {})),
        rebalancing=rebalancing,
        full_nodes=frozenset(full_nodes),
    )

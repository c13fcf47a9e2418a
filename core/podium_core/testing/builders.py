"""Builders of snapshots: every field has a default, so a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from podium_core.domain.migration import CarryPhase
from podium_core.domain.phase import TrialPhase
from podium_core.domain.rebalancing import Levelling
from podium_core.domain.snapshot import (
    Costs,
    GpuView,
    JobKey,
    JobView,
    Point,
    SavesAt,
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
    freezes: bool = True,
    saves: bool = False,
    saves_at: SavesAt | None = None,
    carries: bool = False,
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
        freezes=freezes,
        saves=saves,
        saves_at=saves_at or ("anywhere" if saves else "nowhere"),
        carries=carries,
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
    wants_room: bool = False,
    leaving: bool = False,
    overdue: bool = False,
    pod_since: float = 0.0,
    saved: float | None = None,
    carrying: CarryPhase | None = None,
    carried: bool = False,
    carried_to: str | None = None,
    moves: int = 0,
    bound_for: str | None = None,
    ended: float | None = None,
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
        wants_room=wants_room,
        leaving=leaving,
        overdue=overdue,
        pod_since=pod_since,
        saved=saved,
        carrying=carrying,
        carried=carried,
        carried_to=carried_to,
        moves=moves,
        bound_for=bound_for,
        ended=ended,
        parameters=tuple(parameters.items()),
    )


def make_gpu(
    uuid: str = "gpu-0",
    *,
    node: str = "node-a",
    health: Literal["Healthy", "Unhealthy", "Unknown"] = "Healthy",
    shares: int = 4,
    holder: TrialKey | None = None,
    holder_since: float | None = None,
    trials: Sequence[TrialKey] = (),
    order: Sequence[TrialKey] = (),
    product: str = "",
    memory_total: int = 0,
    memory_reserved: int = 0,
    memory_movable: int = 0,
    draining: bool = False,
    exclusive: str | None = None,
    leased_by: str | None = None,
    carries: bool = False,
    in_effect: bool = False,
    ousts_nobody: bool = False,
) -> GpuView:
    return GpuView(
        node=node,
        uuid=uuid,
        health=health,
        shares=shares,
        holder=holder,
        holder_since=holder_since,
        trials=tuple(trials),
        order=tuple(order),
        free_shares=max(0, shares - len(trials)),
        product=product,
        memory_total=memory_total,
        memory_reserved=memory_reserved,
        memory_movable=memory_movable,
        draining=draining,
        exclusive=exclusive,
        leased_by=leased_by,
        carries=carries,
        in_effect=in_effect,
        ousts_nobody=ousts_nobody,
    )


def make_snapshot(
    *,
    now: float = 1000.0,
    jobs: Iterable[JobView] = (),
    trials: Iterable[TrialView] = (),
    gpus: Iterable[GpuView] = (),
    costs: Costs | None = None,
    epochs: Mapping[str, int] | None = None,
    levelling: Levelling | None = None,
    no_room: Iterable[tuple[JobKey, str]] = (),
) -> Snapshot:
    return Snapshot(
        now=now,
        jobs=tuple(jobs),
        trials=tuple(trials),
        gpus=tuple(gpus),
        costs=costs or Costs(),
        epochs=MappingProxyType(dict(epochs or {})),
        levelling=levelling,
        no_room=frozenset(no_room),
    )

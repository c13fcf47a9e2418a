"""Builders of snapshots: every field has a default, so a test names only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.gpu_view import GpuView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.migration import MigrationPhase
from podium_core.domain.observe import Gate, PodFacts
from podium_core.domain.phase import TrialPhase
from podium_core.domain.pod_view import PodView, WorkerView
from podium_core.domain.population import Lineage, Population
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import (
    Abilities,
    CheckpointScope,
    Costs,
    GpuNeeds,
    JobLimits,
    JobState,
    JobView,
    Point,
    Scalar,
    Snapshot,
    TrialOrigin,
    TrialView,
)
from podium_core.domain.tenure import Tenure
from podium_core.placement.views import GpuReading

NAMESPACE = "lab"
View = TypeVar("View", JobView, TrialView, GpuView, PodFacts, GpuReading)


def job_key(name: str = "job") -> JobKey:
    return JobKey(NAMESPACE, name)


def trial_key(name: str) -> TrialKey:
    return TrialKey(NAMESPACE, name, f"uid-{name}")


def make_curve(values: Iterable[float], start: float = 1.0) -> tuple[Point, ...]:
    """Return a curve with one point per step and one step per second."""
    return tuple(Point(start + i, value, start + i) for i, value in enumerate(values))


def _changed(view: View, fields: Mapping[str, Any], paths: Mapping[str, str]) -> View:
    """Return a copy of the view; `paths` says in which of its groups a field is, if it is in one."""
    changes: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        group, _, inner = paths.get(name, name).rpartition(".")
        changes.setdefault(group, {})[inner] = value
    own = changes.pop("", {})
    groups = {group: replace(getattr(view, group), **inner) for group, inner in changes.items()}
    return replace(view, **own, **groups)


def _in_group(group: str, *same: str, **renamed: str) -> dict[str, str]:
    """Return where the fields of a group are; `renamed` have another name in it."""
    return {name: f"{group}.{inner}" for name, inner in (*zip(same, same, strict=True), *renamed.items())}


class JobFields(TypedDict, total=False):
    """Fields of a job and of its groups."""

    policy: str
    settings: Mapping[str, Scalar]
    created: float
    maximize: bool
    target: float | None
    max_steps: float | None
    learns: bool
    population: Population | None
    max_trials: int
    parallel: int | None
    max_failed: int
    retries: int
    budget_gpu_seconds: float | None
    deadline: float | None
    gpus_per_trial: int
    workers: int
    products: tuple[str, ...]
    memory: int | None
    queue: str
    priority: int
    suspendable: bool
    checkpointable: bool
    checkpoint_scope: CheckpointScope
    migratable: bool
    moves_memory: bool
    accepted: bool
    suspended: bool
    finished: bool


_JOB_PATHS = {
    **_in_group("limits", "max_trials", "parallel", "max_failed", "retries", "budget_gpu_seconds", "deadline"),
    **_in_group("gpus", "products", "memory", "queue", "priority", "workers", gpus_per_trial="per_trial"),
    **_in_group("abilities", "suspendable", "checkpointable", "checkpoint_scope", "migratable", "moves_memory"),
    **_in_group("state", "accepted", "suspended", "finished"),
}


def make_job(name: str = "job", **fields: Unpack[JobFields]) -> JobView:
    """Return a job. The checkpoints of its trials, if there are any, can be read anywhere by default."""
    fields.setdefault("checkpoint_scope", "anywhere" if fields.get("checkpointable") else "nowhere")
    job = JobView(
        key=job_key(name),
        uid=f"uid-{name}",
        created=0.0,
        policy="hermes",
        settings=MappingProxyType({}),
        maximize=True,
        target=None,
        max_steps=100.0,
        limits=JobLimits(max_trials=12, parallel=8, max_failed=3, retries=2),
        gpus=GpuNeeds(per_trial=1),
        abilities=Abilities(),
        state=JobState(accepted=True, suspended=False),
    )
    return change_job(job, **fields)


def change_job(job: JobView, **fields: Unpack[JobFields]) -> JobView:
    """Return the job with these fields changed."""
    return _changed(job, fields, _JOB_PATHS)


class TrialFields(TypedDict, total=False):
    """Fields of a trial and of its groups."""

    phase: TrialPhase
    values: Sequence[float]
    curve: tuple[Point, ...]
    gpu_seconds: float
    switch_seconds: float | None
    created: float
    parameters: Mapping[str, Scalar]
    lineage: Lineage | None
    finished_at: float | None
    objective_values: tuple[float, ...]
    pod: str | None
    node: str | None
    gpus: Sequence[str]
    workers: tuple[WorkerView, ...]
    pod_since: float
    terminating: bool
    termination_overdue: bool
    stuck: bool
    waits_for_capacity: bool
    attempt: int
    failures: int
    retry_at: float
    checkpoint_step: float | None
    suspend: bool
    pinned: bool
    stopped: bool
    migration: MigrationPhase | None
    migrated: bool
    migration_target: str | None
    rebalance_count: int
    destination: str | None


_TRIAL_PATHS = {
    **_in_group("origin", "created", "parameters", "lineage"),
    **_in_group("usage", "gpu_seconds", "switch_seconds"),
    **_in_group("result", "finished_at", "objective_values"),
    **_in_group("pod", "node", "gpus", "terminating", "termination_overdue", "stuck", "waits_for_capacity", "workers"),
    **_in_group("pod", pod_since="since"),
    **_in_group("attempts", "failures", "retry_at", "checkpoint_step", attempt="number"),
    **_in_group("intent", "suspend", "pinned", "stopped"),
    **_in_group("relocation", "migration", "migrated", "rebalance_count", "destination", migration_target="target"),
}


def make_trial(number: int = 0, *, job: str = "job", **fields: Unpack[TrialFields]) -> TrialView:
    """Return a trial. A trial with GPUs has a pod by default."""
    name = f"{job}-{number}"
    if fields.get("gpus"):
        fields.setdefault("pod", f"{name}-{fields.get('attempt', 0)}")
    trial = TrialView(trial_key(name), job_key(job), number, TrialOrigin(float(number)), TrialPhase.PENDING)
    return change_trial(trial, **fields)


def change_trial(trial: TrialView, **fields: Unpack[TrialFields]) -> TrialView:
    """Return the trial with these fields changed; `values` is a curve with one point per step.

    What is named of a pod belongs to an ended pod if the trial has none.
    """
    changes: dict[str, Any] = {**fields}
    if "values" in fields:
        changes["curve"] = make_curve(changes.pop("values"))
    if "parameters" in fields:
        changes["parameters"] = tuple(fields["parameters"].items())
    if "gpus" in fields:
        changes["gpus"] = tuple(fields["gpus"])
    name = changes.pop("pod", trial.pod.name if trial.pod else None)
    no_pod = PodView(f"{trial.key.name}-{fields.get('attempt', trial.attempts.number)}")
    changed = _changed(replace(trial, pod=trial.pod or trial.ended_pod or no_pod), changes, _TRIAL_PATHS)
    pod = changed.pod
    if pod is None or name is None:
        return replace(changed, pod=None, ended_pod=None if pod == no_pod else pod)
    return replace(changed, pod=replace(pod, name=name), ended_pod=None)


class GpuFields(TypedDict, total=False):
    """Fields of a GPU and of its groups."""

    node: str
    health: Literal["Healthy", "Unhealthy", "Unknown"]
    slots: int
    product: str
    holder: TrialKey | None
    holder_since: float | None
    tenure: Tenure | None
    trials: Sequence[TrialKey]
    run_queue: Sequence[TrialKey]
    in_effect: bool
    no_preemption: bool
    on_hold: Iterable[TrialKey]
    memory_total: int
    memory_reserved: int
    memory_movable: int
    draining: bool
    exclusive_pod: str | None
    reserved_for: str | None
    supports_migration: bool


_GPU_PATHS = {
    **_in_group("run_queue", "in_effect", "no_preemption", "on_hold", run_queue="trials"),
    **_in_group("memory", memory_total="total", memory_reserved="reserved", memory_movable="movable"),
    **_in_group("availability", "draining", "exclusive_pod", "reserved_for"),
}


def make_gpu(uuid: str = "gpu-0", **fields: Unpack[GpuFields]) -> GpuView:
    """Return a GPU; its free slots are those without a trial."""
    gpu = change_gpu(GpuView("node-a", uuid, "Healthy", slots=4), **fields)
    return replace(gpu, free_slots=max(0, gpu.slots - len(gpu.trials)))


def change_gpu(gpu: GpuView, **fields: Unpack[GpuFields]) -> GpuView:
    """Return the GPU with these fields changed."""
    changes: dict[str, Any] = {**fields}
    changes |= {name: tuple(changes[name]) for name in ("trials", "run_queue") if name in fields}
    if "on_hold" in fields:
        changes["on_hold"] = frozenset(fields["on_hold"])
    return _changed(gpu, changes, _GPU_PATHS)


class PodFields(TypedDict, total=False):
    """Fields of the facts about a pod and of their groups."""

    phase: str
    reason: str
    message: str
    deleting: bool
    node: str | None
    gate: Gate
    exit_code: int | None
    exit_reason: str
    exit_message: str
    failed_init: str
    waiting_reason: str
    unschedulable: str
    waits_for_memory: str
    whole_gpus: bool
    disruption: str
    requeue: str
    migrated: bool


_POD_PATHS = {
    **_in_group("end", "failed_init", exit_code="code", exit_reason="reason", exit_message="message"),
    **_in_group("wait", waiting_reason="container", unschedulable="node", waits_for_memory="gpu_memory"),
}


def make_pod_facts(phase: str = "Pending", /, **fields: Unpack[PodFields]) -> PodFacts:
    """Return the facts about a pod."""
    return change_pod_facts(PodFacts(phase), **fields)


def change_pod_facts(facts: PodFacts, **fields: Unpack[PodFields]) -> PodFacts:
    """Return the facts with these fields changed."""
    return _changed(facts, fields, _POD_PATHS)


class ReadingFields(TypedDict, total=False):
    """Fields of the reading of a GPU and of its groups."""

    uuid: str
    product: str
    memory_total: int
    memory_reserved: int
    memory_movable: int
    memory_used: int
    sm_utilization: float
    health: Literal["Healthy", "Unhealthy", "Unknown"]
    health_reason: str
    slots: int
    trials: int
    ranks: tuple[int | None, ...]
    pods: tuple[str, ...]
    throttled: bool
    temperature: float | None
    ecc_uncorrected: int
    xid: int | None


_READING_PATHS = {
    **_in_group("memory", memory_reserved="reserved", memory_movable="movable", memory_used="used"),
    **_in_group("condition", "throttled", "temperature", "ecc_uncorrected", "xid"),
}


def make_reading(uuid: str = "", /, **fields: Unpack[ReadingFields]) -> GpuReading:
    """Return the reading of a healthy GPU with four slots."""
    return change_reading(GpuReading(uuid, health="Healthy", slots=4), **fields)


def change_reading(gpu: GpuReading, **fields: Unpack[ReadingFields]) -> GpuReading:
    """Return the reading with these fields changed."""
    return _changed(gpu, fields, _READING_PATHS)


class SnapshotFields(TypedDict, total=False):
    """Fields of a snapshot."""

    now: float
    jobs: Iterable[JobView]
    trials: Iterable[TrialView]
    gpus: Iterable[GpuView]
    costs: Costs
    epochs: Mapping[str, int]
    rebalancing: RebalancingRules | None
    full_nodes: Iterable[tuple[JobKey, str]]
    queues: Iterable[QueueView]


def make_snapshot(**fields: Unpack[SnapshotFields]) -> Snapshot:
    """Return a snapshot, taken at 1000 s by default."""
    changes: dict[str, Any] = {"now": 1000.0, **fields}
    for name in ("jobs", "trials", "gpus", "queues"):
        changes[name] = tuple(changes.get(name, ()))
    changes["full_nodes"] = frozenset(changes.get("full_nodes", ()))
    return Snapshot(**changes)

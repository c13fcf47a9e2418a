"""Page of the GPUs: holder, run queue, memory, temperature and health of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from podium_core.schema.gpunode import GPUNode, GpuStatus
from podium_dashboard.pages.page import Fragment, fragment
from podium_dashboard.state import State
from podium_views import formatting
from podium_views.job_snapshot import run_queue_of

MAX_GPUS = 300


@dataclass(frozen=True, slots=True)
class Waiting:
    """Trial that has a slot on a GPU and is not the holder."""

    namespace: str
    trial: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class GpuCard:
    """One GPU."""

    name: str
    product: str
    health: str
    health_reason: str
    holder: tuple[str, str] | None
    held_for: str
    utilization: float
    memory_used: int
    memory_total: int
    memory: str
    temperature: str
    slots: str
    waiting: tuple[Waiting, ...]
    notes: tuple[str, ...]


def fragments(state: State, now: datetime) -> tuple[Fragment, ...]:
    """Return the fragments of the page."""
    at = state.stopped or now
    cards = [card(node, gpu, at) for node in state.nodes for gpu in node.status.gpus]
    shown = cards[:MAX_GPUS]
    return (fragment("gpus", "gpus.html.j2", cards=shown, more=len(cards) - len(shown), ready=state.ready),)


def card(node: GPUNode, gpu: GpuStatus, now: datetime) -> GpuCard:
    """Return the card of one GPU."""
    holder = gpu.holder
    queue = {entry.uid: (place, entry) for place, entry in enumerate(run_queue_of(node, gpu.uuid))}
    others = [trial for trial in gpu.trials if holder is None or trial.uid != holder.uid]
    others.sort(key=lambda trial: (queue[trial.uid][0] if trial.uid in queue else len(queue), trial.trial))
    waiting = []
    for one in others:
        entry = queue[one.uid][1] if one.uid in queue else None
        reason = "" if entry is None else formatting.cause(entry.reason, entry.message)
        waiting.append(Waiting(one.namespace, one.trial, one.state.value, reason))
    return GpuCard(
        name=f"{node.metadata.name}/{gpu.index}",
        product=gpu.product,
        health=gpu.health,
        health_reason=gpu.health_reason,
        holder=None if holder is None else (holder.namespace, holder.trial),
        held_for="" if holder is None else formatting.since(holder.since, now),
        utilization=max(0.0, min(gpu.sm_utilization, 100.0)),
        memory_used=gpu.memory_used,
        memory_total=gpu.memory_total,
        memory=formatting.memory_in_use(gpu.memory_used, gpu.memory_total),
        temperature=formatting.NOTHING if gpu.temperature is None else f"{gpu.temperature:.0f} °C",
        slots=f"{len(gpu.trials) + len(gpu.other_pods)} of {gpu.slots}",
        waiting=tuple(waiting),
        notes=tuple(_notes(node, gpu)),
    )


def _notes(node: GPUNode, gpu: GpuStatus) -> list[str]:
    notes = []
    if node.spec.released:
        notes.append("Thawed by `podium thaw`: nothing is suspended here.")
    if node.spec.draining:
        notes.append("Draining: no trial is placed here.")
    if gpu.exclusive_pod is not None:
        notes.append(f"Exclusive pod {gpu.exclusive_pod or 'is being admitted'}: the trials are suspended.")
    if gpu.reservation is not None:
        notes.append(f"Reserved by {gpu.reservation}.")
    elif node.status.mode == "reservations":
        notes.append("Not reserved: no trial runs here.")
    notes += [f"Other pod {formatting.full_name(pod.namespace, pod.pod)}." for pod in gpu.other_pods]
    if gpu.throttle:
        notes.append(f"Slowed down: {', '.join(gpu.throttle)}.")
    if gpu.ecc_uncorrected:
        notes.append(f"{formatting.count(gpu.ecc_uncorrected, 'uncorrected memory error')}.")
    return notes

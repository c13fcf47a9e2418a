"""Newest scheduling decision of a job as one plain sentence, for the live table.

A decision is either a switch that an agent still has to perform, or the last GPU allocation that started. The source
is the operator's run queues and the trials' allocations, so the sentence needs no events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from podium_core.domain.phase import is_final
from podium_core.schema.gpunode import RunQueueEntry
from podium_core.schema.trial import Allocation, HyperParamTrial
from podium_views import formatting
from podium_views.job_snapshot import JobSnapshot, run_queue_of

WORD = re.compile(r"[A-Z][a-z]+|[A-Z]+(?![a-z])|[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class _Decision:
    """One trial gets one GPU. `at` is None while the agent has not performed the switch."""

    winner: str
    loser: str | None
    uuid: str
    at: datetime | None
    entry: RunQueueEntry | None

    @property
    def sort_key(self) -> tuple[bool, float, str]:
        """Return a key by time; a switch in progress is the newest."""
        return (self.at is None, 0.0 if self.at is None else self.at.timestamp(), self.uuid)


def newest_decision(snapshot: JobSnapshot) -> str:
    """Return what happened last and why, or nothing if no trial has received a GPU.

    Example: "digits-7 preempts digits-3 on GPU node-1/0: rank 1, expected gain 0.8 %, switch 0.4 s".
    """
    decisions = [*_pending(snapshot), *_performed(snapshot)]
    if not decisions:
        return ""
    newest = max(decisions, key=lambda decision: decision.sort_key)
    reasons = ", ".join(_reasons(snapshot, newest))
    return f"{_event(snapshot, newest)}: {reasons}" if reasons else _event(snapshot, newest)


def _pending(snapshot: JobSnapshot) -> Iterator[_Decision]:
    """Yield the switches of which the run queue is written and the holder is still the old one."""
    names = {trial.metadata.uid: trial.metadata.name for trial in snapshot.trials}
    for node, gpu in snapshot.gpus:
        first = next(iter(run_queue_of(node, gpu.uuid)), None)
        present = {trial.uid for trial in gpu.trials}
        if first is None or gpu.holder is None or not first.preempts or node.spec.released:
            continue
        if first.uid != gpu.holder.uid and first.uid in present and {first.uid, gpu.holder.uid} & set(names):
            yield _Decision(first.trial, gpu.holder.trial, gpu.uuid, None, first)


def _performed(snapshot: JobSnapshot) -> Iterator[_Decision]:
    """Yield the newest GPU allocation of each GPU, with the trial that held the GPU before."""
    started: dict[str, list[tuple[datetime, HyperParamTrial, Allocation]]] = {}
    for trial in snapshot.trials:
        for allocation in trial.status.allocations:
            for uuid in allocation.gpus:
                started.setdefault(uuid, []).append((allocation.start, trial, allocation))
    for uuid, history in started.items():
        history.sort(key=lambda one: (one[0], one[1].metadata.name))
        start, winner, _ = history[-1]
        before = next((trial for _, trial, _ in reversed(history[:-1]) if trial is not winner), None)
        preempted = before is not None and not _ended_by(before, start)
        loser = before.metadata.name if before is not None and preempted else None
        yield _Decision(winner.metadata.name, loser, uuid, start, _entry_of(snapshot, uuid, winner.metadata.uid))


def _ended_by(trial: HyperParamTrial, moment: datetime) -> bool:
    finished = trial.status.finished_at
    return is_final(trial.status.phase) and (finished is None or finished <= moment)


def _entry_of(snapshot: JobSnapshot, uuid: str, uid: str) -> RunQueueEntry | None:
    """Return the run queue entry of a trial if it is the first one of that GPU."""
    node = next((node for node, gpu in snapshot.gpus if gpu.uuid == uuid), None)
    first = [] if node is None else run_queue_of(node, uuid)[:1]
    return next((entry for entry in first if entry.uid == uid), None)


def _event(snapshot: JobSnapshot, decision: _Decision) -> str:
    gpu = f"GPU {snapshot.gpu_name(decision.uuid)}"
    if decision.loser is None:
        return f"{decision.winner} takes {gpu}"
    return f"{decision.winner} preempts {decision.loser} on {gpu}"


def _reasons(snapshot: JobSnapshot, decision: _Decision) -> Iterator[str]:
    by_name = {trial.metadata.name: trial for trial in snapshot.trials}
    winner, loser = by_name.get(decision.winner), by_name.get(decision.loser or "")
    if winner is not None and winner.status.rank is not None:
        yield f"rank {winner.status.rank}"
    entry = decision.entry
    if entry is not None and entry.gain is not None:
        yield f"expected gain {100 * entry.gain:.1f} %"
    elif entry is not None and entry.reason and entry.reason != "GPURetained":  # says nothing about how it came
        yield _plain(entry.reason)
    if loser is not None and decision.at is not None:
        seconds = _switch_seconds(winner, loser)
        if seconds is not None:
            yield f"switch {formatting.duration(seconds)}"
    if decision.at is None:
        yield "switch in progress"


def _plain(reason: str) -> str:
    """Return a CamelCase reason as plain words: "FreeGPU" becomes "free GPU"."""
    words = WORD.findall(formatting.clean(reason))
    return " ".join(word if len(word) > 1 and word.isupper() else word.lower() for word in words)


def _switch_seconds(winner: HyperParamTrial | None, loser: HyperParamTrial) -> float | None:
    """Return the recorded seconds to suspend the loser and to resume the winner; None without a suspension."""
    if not loser.status.suspensions.recent:
        return None
    suspend = loser.status.suspensions.recent[-1].suspend_seconds
    resumed = winner.status.suspensions.recent[-1:] if winner is not None else []
    return suspend + sum(record.resume_seconds or 0.0 for record in resumed)

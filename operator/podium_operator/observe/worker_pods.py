"""The pods of one attempt as one pod: that of worker 0, with facts about all workers. Pure; `cluster_state` uses it.

A trial of several workers trains only while all of them do, so the worker that is behind decides its phase. Once a
worker fails, is deleted or is lost, the operator deletes the others (`actuator`), with the reason WorkerEnded. When all
have ended, an end without this reason decides how the attempt ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from podium_core.domain.observe import PodEnd, PodFacts, classify_end
from podium_core.domain.phase import TrialPhase
from podium_core.schema.trial import pod_name
from podium_operator.observe.pod_state import PodState

WORKER_ENDED = "WorkerEnded"  # why the operator deletes the pods of a trial's other workers, as written on them
CREATION_SECONDS = 15.0  # worker 0's pod is created last; pods without it are younger than this, or it is gone
JOB_CREATION_SECONDS = 60.0  # in which a Job creates all pods of a trial, in any order
_ENDED = ("Succeeded", "Failed")
_GATES = ("Waiting", "Running", "Done", "None")


def combine(pods: Sequence[PodState], deleted: PodState | None, now: float) -> PodState | None:
    """Return the pod that stands for an attempt; None while its pods are being created.

    `pods`: those of the attempt that exist; `deleted`: the last state of the trial's deleted pods.
    """
    ordered = tuple(sorted(pods, key=lambda pod: pod.rank))
    size = max(pod.size for pod in ordered)
    if size == 1:
        return ordered[0]
    gone = _gone(ordered, size, deleted)
    created = min(pod.created for pod in ordered)
    of_job = ordered[0].of_job
    missing = gone.items() if of_job else [(0, gone[0])] if 0 in gone else []
    never = any(pod is None or pod.created < created for _, pod in missing)  # else the memory is of an earlier try
    seconds = JOB_CREATION_SECONDS if of_job else CREATION_SECONDS
    if never and not any(_is_over(pod) for pod in ordered) and now - created < seconds:
        return None
    return _combined(ordered, gone)


def with_deleted(known: PodState | None, pod: PodState) -> PodState:
    """Return what to remember of a trial's deleted pods after this one was deleted.

    Of several workers all are remembered, in `workers`. The others are those of the worker that was deleted first.
    """
    if pod.size == 1:
        return pod
    before = known.workers if known is not None and known.attempt == pod.attempt else ()
    workers = (*before, replace(pod, workers=()))
    cause = min(workers, key=lambda one: one.facts.requeue == WORKER_ENDED)
    return replace(cause, workers=workers)


def without_slots(pod: PodState, holding: Collection[str]) -> bool:
    """Return whether a worker that has not ended has no slot. `holding`: uids of pods with a slot."""
    return pod.broken or any(one.uid not in holding for one in workers_of(pod) if one.facts.phase != "Succeeded")


def workers_of(pod: PodState) -> tuple[PodState, ...]:
    """Return the pods of an attempt that exist, by rank."""
    return pod.workers or (pod,)


def combined_state(states: Sequence[str | None], current: TrialPhase) -> str | None:
    """Return the state of a trial from the agents' states of its workers; None if they do not decide it.

    The agents suspend and resume the workers at about the same time. Between the first and the last the trial is on its
    way.
    """
    known = set(states)
    if len(known) == 1 or None in known or "Gated" in known:
        return states[0] if len(known) == 1 else None
    for moving in ("Suspending", "Resuming"):
        if moving in known:
            return moving
    if "Suspended" not in known:
        return "Starting"
    return "Suspending" if current in (TrialPhase.RUNNING, TrialPhase.SUSPENDING) else "Resuming"


@dataclass(frozen=True, slots=True)
class _End:
    """End of an attempt: the worker that decides it, and whether its pod is gone."""

    worker: PodState
    missing: bool = False


def _gone(ordered: Sequence[PodState], size: int, deleted: PodState | None) -> Mapping[int, PodState | None]:
    """Return the workers without a pod, with the last known state of it."""
    there = {pod.rank for pod in ordered}
    attempt = ordered[0].attempt
    memory = deleted.workers if deleted is not None and deleted.attempt == attempt else ()
    known = {pod.rank: pod for pod in memory}
    return {rank: known.get(rank) for rank in range(size) if rank not in there}


def _combined(ordered: Sequence[PodState], gone: Mapping[int, PodState | None]) -> PodState:
    first = ordered[0] if ordered[0].rank == 0 else gone.get(0) or ordered[0]
    deadlines = [pod.deletion_deadline for pod in ordered if pod.deletion_deadline is not None]
    startable = [pod.startable_since for pod in ordered]
    facts, worker, missing = _facts(ordered, gone)
    return replace(
        first,
        name=first.name if first.of_job else pod_name(first.trial, first.attempt),
        facts=facts,
        created=min(pod.created for pod in ordered),
        ended_at=worker.ended_at if facts.phase in _ENDED or missing else None,
        deletion_deadline=max(deadlines, default=None),
        startable_since=max(startable) if all(startable) else 0.0,
        workers=tuple(ordered),
        decisive=worker.rank,
        missing=missing,
        broken=bool(gone) or any(_is_over(pod) for pod in ordered),
    )


def _facts(ordered: Sequence[PodState], gone: Mapping[int, PodState | None]) -> tuple[PodFacts, PodState, bool]:
    """Return the facts, the worker that they are about, and whether its pod is gone."""
    first = ordered[0]
    succeeded = first.rank == 0 and first.facts.phase == "Succeeded"
    if succeeded and not first.facts.deleting and not _is_lost(ordered, gone):
        return first.facts, first, False
    alive = [pod for pod in ordered if pod.facts.phase not in _ENDED]
    if alive:
        return _facts_alive(alive, deleting=any(pod.facts.deleting for pod in ordered))
    end = _decisive_end(ordered, gone)
    if succeeded and _end(end.worker).kind != "TrialFailure":
        # if it had printed its last step, it is complete, whatever happened to the others
        reason = end.worker.facts.requeue if _is_cause(end.worker) else ""
        return replace(first.facts, deleting=True, requeue=reason), first, False
    return end.worker.facts, end.worker, end.missing


def _facts_alive(alive: Sequence[PodState], *, deleting: bool) -> tuple[PodFacts, PodState, bool]:
    """Return the facts of the worker that is behind, with the reason for which Podium deletes any of them."""
    behind = min(alive, key=_progress)
    reasons = {pod.facts.requeue for pod in alive if pod.facts.requeue}
    reason = min(reasons, key=lambda one: (one == WORKER_ENDED, one), default="")
    return replace(behind.facts, deleting=deleting, requeue=reason, disruption=""), behind, False


def _is_lost(ordered: Sequence[PodState], gone: Mapping[int, PodState | None]) -> bool:
    """Return whether the cluster or a person ended a worker."""
    if any(pod is None or _is_cause(pod) for pod in gone.values()):
        return True
    return any(_is_cause(pod) and (pod.facts.deleting or _end(pod).kind == "Disrupted") for pod in ordered)


def _decisive_end(ordered: Sequence[PodState], gone: Mapping[int, PodState | None]) -> _End:
    """Return the end that decides how the attempt ended: what the cluster did precedes what followed in a process."""
    known = [pod for pod in gone.values() if pod is not None and _end(pod).kind != "NotEnded"]
    causes = [pod for pod in (*ordered, *known) if _is_cause(pod)]
    for pod in causes:
        if _end(pod).kind == "Disrupted":
            return _End(pod)
    for deleted in gone.values():
        if deleted is None or (_is_cause(deleted) and deleted not in known):
            return _End(deleted or ordered[0], missing=True)
    failed = [pod for pod in causes if _end(pod).kind == "TrialFailure"]
    if failed:
        return _End(min(failed, key=lambda pod: pod.ended_at or 0.0))
    return _End(ordered[0], missing=True)


def _end(pod: PodState) -> PodEnd:
    return classify_end(pod.facts)


def _is_cause(pod: PodState) -> bool:
    """Return whether the pod did not end because another worker had."""
    return pod.facts.requeue != WORKER_ENDED


def _is_over(pod: PodState) -> bool:
    """Return whether the attempt cannot continue with this pod."""
    return pod.facts.deleting or _end(pod).kind in ("Disrupted", "TrialFailure")


def _progress(pod: PodState) -> tuple[bool, int, Literal[0, 1]]:
    """Return how far the start of a pod is."""
    facts = pod.facts
    return facts.node is not None, _GATES.index(facts.gate), 1 if facts.phase == "Running" else 0

"""Explain why a job runs or waits: a pure function of the stored objects.

The dashboard and `podium explain job` call it. `podium_simulator.expected` adds when the next trial starts and when the
job ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from podium_core.domain.keys import JobKey
from podium_core.domain.phase import ON_GPU
from podium_core.domain.phrases import count
from podium_core.domain.snapshot import JobView
from podium_core.planning.exploitation import founders
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import FINISHED
from podium_core.waiting.explanation import Ahead, GpuState, JobExplanation, QueuedTrial, Reason, State
from podium_core.waiting.gpus import gpu_states
from podium_core.waiting.objects import StoredObjects, live, names_by_uid, view_of
from podium_core.waiting.queue import is_waiting, waiting_queue
from podium_core.waiting.reasons import no_trial_yet, no_usable_gpu, trial_reasons, whole_job


def explain_job(objects: StoredObjects, key: JobKey) -> JobExplanation:
    """Return why the job runs or waits. Raises KeyError if it is not among the objects."""
    job = objects.job(key)
    view, mine = view_of(job), objects.trials_of(key)
    alive = live(mine)
    gpus = gpu_states(view, objects.nodes, names_by_uid(objects.trials)) if view.gpus.per_trial else ()
    closed = whole_job(job)
    founded = sum(trial.spec.parent is None for trial in mine)
    to_come = 0 if job.status.phase in FINISHED else max(0, founders(view) - founded)
    running = sum(trial.status.phase in ON_GPU for trial in alive)
    waiting = sum(is_waiting(trial) for trial in alive)
    reasons: tuple[Reason, ...] = ()
    queue: tuple[QueuedTrial, ...] = ()
    if closed is not None:
        reasons = (closed,)
    else:
        unfit = no_usable_gpu(job, view, objects.nodes, gpus)
        of_trials = trial_reasons(alive)
        more = no_trial_yet(job, gpus, to_come, len(alive))
        if more is not None and any(one.code == more.code for one in of_trials):
            more = None
        reasons = tuple(one for one in (unfit, *of_trials, more) if one is not None)
        queue = waiting_queue(objects, rivals(objects, view, gpus))
    state = _state(job, closed, reasons, running)
    position = next((one.position for one in queue if (one.namespace, one.job) == key), None)
    ahead = _ahead(key, queue, gpus, position)
    return JobExplanation(
        namespace=key.namespace,
        job=key.name,
        state=state,
        summary=_summary(job, state, (running, waiting, to_come), position, len(queue)),
        running=running,
        waiting=waiting,
        to_come=to_come,
        position=position,
        reasons=reasons,
        ahead=ahead,
        queue=queue,
        gpus=gpus,
    )


def rivals(objects: StoredObjects, view: JobView, gpus: Sequence[GpuState]) -> Collection[JobKey]:
    """Return the open jobs that could use a GPU that this job can use, this job included."""
    mine = {gpu.uuid for gpu in gpus if gpu.use != "unusable"}
    found = {view.key}
    for job in objects.open_jobs():
        other = view_of(job)
        if other.gpus.per_trial and not mine.isdisjoint(
            gpu.uuid for gpu in gpu_states(other, objects.nodes, {}) if gpu.use != "unusable"
        ):
            found.add(other.key)
    return found


def _state(job: HyperParamJob, closed: Reason | None, reasons: Sequence[Reason], running: int) -> State:
    if job.status.phase in FINISHED:
        return "Ended"
    if reasons and reasons[0].code == "JobSuspended":
        return "Suspended"
    if closed is not None:
        return "Refused" if job.status.phase == "Refused" else "Blocked"
    if running:
        return "Running"
    structural = any(one.blocks and not one.trials for one in reasons)
    return "Blocked" if structural or (reasons and all(one.blocks for one in reasons)) else "Waiting"


def _ahead(
    key: JobKey, queue: Sequence[QueuedTrial], gpus: Sequence[GpuState], position: int | None
) -> tuple[Ahead, ...]:
    own = f"{key.namespace}/{key.name}"
    holds = Counter(gpu.job or "another namespace" for gpu in gpus if gpu.use == "held" and gpu.job != own)
    before = [] if position is None else queue[: position - 1]
    waits = Counter(f"{one.namespace}/{one.job}" for one in before)
    jobs = sorted({*holds, *waits}, key=lambda job: (-holds[job], -waits[job], job))
    return tuple(Ahead(job, holds[job], waits[job]) for job in jobs)


def _summary(job: HyperParamJob, state: State, counts: tuple[int, int, int], position: int | None, length: int) -> str:
    running, waiting, to_come = counts
    if state == "Ended":
        return f"The search has ended: {job.status.phase}."
    if state in ("Refused", "Suspended") or (state == "Blocked" and not running and not waiting):
        return "The search does not run."
    verb = "runs" if running == 1 else "run"
    text = f"{count(running, 'trial')} {verb}, {waiting} wait{'s' if waiting == 1 else ''}"
    text = f"{text}, {to_come} are still to be created." if to_come else f"{text}."
    if position is None:
        return text
    return f"{text} Its next trial is number {position} of {count(length, 'waiting trial')}."

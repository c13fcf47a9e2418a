"""Reasons for which trials of a job do not run, each with its cure, the dominant one first. Pure.

The planner's own reasons are in the statuses of the trials. Here they are grouped, ordered and given a cure: what a
person must do comes first, then what blocks everything, then a lack of capacity, then what passes by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from podium_core.domain.phrases import count, one_line
from podium_core.domain.snapshot import JobView
from podium_core.schema.base import Condition
from podium_core.schema.gpunode import GPUNode
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import FINISHED
from podium_core.schema.trial import HyperParamTrial
from podium_core.waiting.explanation import GpuState, Reason
from podium_core.waiting.objects import competes
from podium_core.waiting.queue import PAUSED, is_waiting

EXAMPLES = 3  # names of trials that a sentence lists
_USER, _BLOCKED, _CAPACITY, _PASSING = range(4)
NOTHING_TO_DO = "Nothing to do."


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is known of a reason. `text`: what the trials do, after their number."""

    tier: int
    text: str
    cure: str = NOTHING_TO_DO


_SHARE = "Wait, or add GPUs; `podium explain trial NAME` shows rank, rival and gain."
_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "TrialSuspended": _Kind(_USER, "suspended by spec.suspend", "Set spec.suspend of the trial to false."),
        "SuspendedByUser": _Kind(_USER, "suspended by spec.suspend", "Set spec.suspend of the trial to false."),
        "RunInterrupted": _Kind(
            _USER, "stopped with their run", "Give the same `podium run` command again: it continues."
        ),
        "BackOff": _Kind(
            _BLOCKED, "in a pause before a new attempt", "Read why the attempts failed: `podium logs TRIAL --previous`."
        ),
        "QuotaExceeded": _Kind(
            _BLOCKED, "refused by a quota of the namespace", "Raise the ResourceQuota, or wait until other pods end."
        ),
        "PodRejected": _Kind(
            _BLOCKED, "rejected by the cluster", "Read the message; correct the template or the node."
        ),
        "ReservationEnded": _Kind(_BLOCKED, "without their reserved GPU", "Wait until the GPU is reserved again."),
        "Unscheduled": _Kind(
            _BLOCKED,
            "without a node",
            "Compare CPUs, memory, tolerations and node selector of the template with the nodes.",
        ),
        "PodsStuck": _Kind(_BLOCKED, "held back by pods that do not start", "Read the events of those pods."),
        "NoFittingGPU": _Kind(
            _BLOCKED, "without a fitting GPU", "Compare gpus.products and gpus.memory with the nodes."
        ),
        "NoReservation": _Kind(_BLOCKED, "without a GPU reservation", "Read the job's condition GPUsReserved."),
        "NoGPUs": _Kind(_BLOCKED, "without any GPU", "Check that the agents run: `podium gpus`."),
        "QueueNotFound": _Kind(
            _BLOCKED, "in a queue that does not exist", "Create the GPUQueue, or correct spec.queue of the job."
        ),
        "QueueForbidden": _Kind(
            _BLOCKED, "in a queue that their namespace may not use", "Ask an admin, or correct spec.queue of the job."
        ),
        "QueueBudgetSpent": _Kind(
            _BLOCKED, "in a queue whose budget is spent", "Ask an admin to raise spec.budget of the GPUQueue."
        ),
        "QueueQuotaTooSmall": _Kind(
            _BLOCKED, "wider than the quota of their queue", "Ask an admin to raise spec.gpus of the GPUQueue."
        ),
        "QueueQuotaReached": _Kind(
            _CAPACITY, "waiting because their queue holds its quota", "Wait, or ask an admin: `podium get queues`."
        ),
        "QueueShareReached": _Kind(
            _CAPACITY, "waiting because their queue holds its share", "Wait, or ask an admin: `podium get queues`."
        ),
        "QueueSlotsReached": _Kind(_CAPACITY, "waiting because their queue has its slots", NOTHING_TO_DO),
        "InsufficientGPUMemory": _Kind(
            _CAPACITY, "waiting for GPU memory", "Wait, or declare gpus.memory so that fewer trials share a GPU."
        ),
        "NoFreeSlot": _Kind(_CAPACITY, "waiting for a free slot", "Wait, or add GPUs or slots (agent.slotsPerGPU)."),
        "WaitingForSlot": _Kind(
            _CAPACITY, "waiting for a free slot", "Wait, or add GPUs or slots (agent.slotsPerGPU)."
        ),
        "SlotReclaimed": _Kind(_CAPACITY, "waiting for a slot that a better trial got", NOTHING_TO_DO),
        "ParallelLimitReached": _Kind(
            _CAPACITY, "held back by trials.parallel", "Raise trials.parallel, or write auto."
        ),
        "FairShareReached": _Kind(
            _CAPACITY, "waiting because their job holds its fair share", "Wait until other jobs end, or add GPUs."
        ),
        "PriorityTooLow": _Kind(
            _CAPACITY, "waiting for a job of higher priority", "Wait, or raise spec.priority of their job."
        ),
        "OtherJobNext": _Kind(_CAPACITY, "waiting because another job has the GPU next", NOTHING_TO_DO),
        "HolderPinned": _Kind(_CAPACITY, "behind a pinned trial", "Unpin that trial if others must run."),
        "HolderNotPreemptible": _Kind(
            _CAPACITY, "behind a trial that cannot be suspended", "Name a suspension method in the job of that trial."
        ),
        "WaitingForHolder": _Kind(_CAPACITY, "behind better-ranked trials", _SHARE),
        "WaitingForAllGPUs": _Kind(_CAPACITY, "waiting for all of their GPUs", _SHARE),
        "RankedBehind": _Kind(_CAPACITY, "behind better-ranked trials", _SHARE),
        "InsufficientGain": _Kind(_CAPACITY, "not better than the holder by the cost of a switch", _SHARE),
        "MinTimeSlice": _Kind(_CAPACITY, "waiting until the holder's time slice ends"),
        "StarvationGuard": _Kind(_CAPACITY, "behind a trial that had waited longest"),
        "TimeSliceEnded": _Kind(_CAPACITY, "suspended until their next time slice", _SHARE),
        "GPUPreempted": _Kind(_CAPACITY, "giving their GPU to a better trial", _SHARE),
        "PausedByPolicy": _Kind(
            _CAPACITY, "paused by the policy", "Nothing to do; with policy fifo no trial is paused."
        ),
        "WaitingForTimeSlice": _Kind(_PASSING, "at the gate before their first time slice", _SHARE),
        "WaitingForPod": _Kind(_PASSING, "waiting for a new pod"),
        "WaitingForGPU": _Kind(_CAPACITY, "waiting for a GPU", "Wait, or add GPUs."),
        "PodTerminating": _Kind(_PASSING, "waiting until their old pod is gone"),
        "MigrationInProgress": _Kind(_PASSING, "moving to another node"),
        "ContainerCreating": _Kind(_PASSING, "preparing their pod"),
        "WorkersNotReady": _Kind(
            _PASSING, "waiting until all of their workers can run", "Wait; if it lasts, read the events of those pods."
        ),
        "WorkerStuck": _Kind(
            _BLOCKED,
            "without slots for all of their workers",
            "Add nodes, or compare CPUs, memory and node selector of the template with the nodes.",
        ),
        "NoGPUAssigned": _Kind(_PASSING, "waiting for the node to name their GPU"),
        "PodDisrupted": _Kind(_PASSING, "continuing in a new pod"),
        "FreeGPU": _Kind(_PASSING, "about to get a free GPU"),
    }
)
_RETRIED = frozenset({"BackOff", "PodRejected"})  # a person should look, but Podium tries again by itself
_UNKNOWN = _Kind(_BLOCKED, "waiting", "Read `podium explain trial NAME` and `kubectl describe pod`.")


def whole_job(job: HyperParamJob) -> Reason | None:
    """Return why nothing of a job runs, whatever the GPUs are; None if there is no such reason."""
    status, spec = job.status, job.spec
    if status.phase in FINISHED:
        return Reason(status.reason or "Final", status.message or "The search has ended.", NOTHING_TO_DO, (), True)
    accepted = _condition(job, "Accepted")
    if status.phase == "Refused" or (accepted is not None and accepted.status == "False"):
        code, text = (status.reason, status.message) if accepted is None else (accepted.reason, accepted.message)
        cure = "Correct the field that the message names, then delete the job and create it again."
        return Reason(code or "Refused", text or "The job was refused.", cure, (), True)
    if job.metadata.deletion_timestamp is not None:
        return Reason("BeingDeleted", "The job is being deleted.", NOTHING_TO_DO, (), True)
    if accepted is not None and accepted.status == "Unknown":
        cure = "Create what the message names, or wait until it has ended."
        return Reason(accepted.reason, accepted.message, cure, (), True)
    if spec.suspend:
        text = "The job is suspended (spec.suspend): its trials keep their progress and hold no GPU."
        return Reason("JobSuspended", text, f"Run `podium resume {job.metadata.name}`.", (), True)
    if not competes(job):
        text = "The operator has not checked the job yet."
        return Reason("ValidationPending", text, "Check that the operator runs, and read its log.", (), True)
    ranked = _condition(job, "Ranked")
    if ranked is not None and ranked.status == "False":
        return Reason(ranked.reason, ranked.message, "Set another spec.policy.name.", (), True)
    return None


def no_usable_gpu(
    job: HyperParamJob, view: JobView, nodes: Sequence[GPUNode], gpus: Sequence[GpuState]
) -> Reason | None:
    """Return why no GPU can run a trial of the job; None if one can, or if its trials use none."""
    need = view.gpus.per_worker
    if need == 0:
        return None
    if not gpus:
        return _reason("NoGPUs", "No node has reported a GPU, or you may not read the GPUNodes.")
    usable = [gpu for gpu in gpus if gpu.use != "unusable"]
    reserved = _condition(job, "GPUsReserved")
    if not usable:
        if reserved is not None and reserved.status == "False":
            return Reason(reserved.reason, reserved.message, _KINDS["NoReservation"].cure, (), True)
        causes = Counter(gpu.code for gpu in gpus)
        code, _ = causes.most_common(1)[0]
        if code in ("ExclusivePod", "NoFreeSlot"):
            pods = sorted({gpu.by for gpu in gpus if gpu.by})
            text = f"Other pods have all {len(gpus)} GPUs" + (f": {', '.join(pods[:EXAMPLES])}" if pods else "") + "."
            return Reason("NoFreeSlot", text, "Wait until those pods end, or add GPUs.", (), True)
        listed = " ".join(
            next(gpu.message for gpu in gpus if gpu.code == one) for one, _ in causes.most_common(EXAMPLES)
        )
        return _reason("NoFittingGPU", f"None of {count(len(gpus), 'GPU')} can run a trial: {listed}")
    names = {gpu.uuid for gpu in usable}
    there = [sum(one.uuid in names for one in node.status.gpus) for node in nodes]
    most, workers = max(there), view.gpus.workers
    if workers > 1 and sum(gpus >= need for gpus in there) < workers:
        text = f"A trial needs {workers} nodes with {count(need, 'GPU')} each (trials.workers, gpus.perTrial), and only"
        text = f"{text} {count(sum(gpus >= need for gpus in there), 'node')} can give as many."
        return Reason("TooFewGPUs", text, "Lower trials.workers in a new job, or add nodes.", (), True)
    if need > most:
        text = f"A trial needs {need} GPUs of one node (gpus.perTrial), and no node has more than {most} that it can"
        text = f"{text} use."
        return Reason("TooFewGPUs", text, "Lower gpus.perTrial in a new job, or add larger nodes.", (), True)
    return None


def trial_reasons(trials: Iterable[HyperParamTrial]) -> tuple[Reason, ...]:
    """Return the grouped reasons of the live trials that do not run.

    Those for a person come first, then the largest group.
    """
    groups: dict[str, list[HyperParamTrial]] = {}
    for trial in trials:
        if trial.spec.suspend:
            groups.setdefault("TrialSuspended", []).append(trial)
        elif is_waiting(trial):
            groups.setdefault(_code(trial), []).append(trial)
    order = sorted(groups, key=lambda code: (_KINDS.get(code, _UNKNOWN).tier, -len(groups[code]), code))
    return tuple(_group(code, groups[code]) for code in order)


def no_trial_yet(job: HyperParamJob, gpus: Sequence[GpuState], to_come: int, alive: int) -> Reason | None:
    """Return why no more trials are created; None if none is left or nothing holds them back."""
    if not to_come:
        return None
    parallel = job.spec.trials.parallel
    if isinstance(parallel, int) and alive >= parallel:
        text = f"{count(to_come, 'trial')} of the search are still to be created: {alive} are unfinished, and"
        text = f"{text} trials.parallel allows {parallel} at a time."
        return Reason("ParallelLimitReached", text, _KINDS["ParallelLimitReached"].cure)
    usable = [gpu for gpu in gpus if gpu.use != "unusable"]
    if job.spec.gpus.per_trial and usable and not any(gpu.free_slots for gpu in usable):
        text = f"{count(to_come, 'trial')} of the search are still to be created: all slots of"
        return Reason("NoFreeSlot", f"{text} {count(len(usable), 'usable GPU')} are taken.", _KINDS["NoFreeSlot"].cure)
    return None


def _code(trial: HyperParamTrial) -> str:
    """Return the reason of a waiting trial. A refusal by a quota arrives as the message of another reason."""
    status = trial.status
    if "exceeded quota" in status.message:
        return "QuotaExceeded"
    if status.reason in PAUSED:
        return "PausedByPolicy"
    return status.reason or "WaitingForSlot"


def _group(code: str, trials: Sequence[HyperParamTrial]) -> Reason:
    kind = _KINDS.get(code, _UNKNOWN)
    names = tuple(trial.metadata.name for trial in trials)
    listed = ", ".join(names[:EXAMPLES]) + (", ..." if len(names) > EXAMPLES else "")
    first = next((trial for trial in trials if trial.status.message), None)
    verb = "is" if len(trials) == 1 else "are"
    text = f"{count(len(trials), 'trial')} ({listed}) {verb} {kind.text}."
    if first is not None and kind.tier != _USER:
        text = f"{text} {first.metadata.name}: {one_line(first.status.message)}"
    return Reason(code, text, kind.cure, names, kind.tier in (_USER, _BLOCKED) and code not in _RETRIED)


def _reason(code: str, text: str) -> Reason:
    return Reason(code, text, _KINDS[code].cure, (), True)


def _condition(job: HyperParamJob, kind: str) -> Condition | None:
    return next((one for one in job.status.conditions if one.type == kind), None)

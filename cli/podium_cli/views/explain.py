"""Output of `podium explain trial`: phase, reason, position in the run queue, holder and history of a trial."""

from __future__ import annotations

from typing import Any

from podium_cli.structured import time
from podium_cli.views.trials import trial_data
from podium_core.domain.phase import TrialPhase
from podium_core.schema.trial import HyperParamTrial, Migration, TrialStatus
from podium_views import additional_metrics, formatting
from podium_views.job_snapshot import JobSnapshot, run_queue_of

SHOWN_ALLOCATIONS = 8
SAME_GPUS = (
    "on the same GPUs: its container has access to no others; it reaches others by a checkpoint or a live migration"
)


def lines(snapshot: JobSnapshot, trial: HyperParamTrial) -> list[str]:
    """Return the lines of the explanation."""
    status, spec = trial.status, trial.spec
    reason = formatting.cause(status.reason, status.message)
    requests = [name for name in ("suspend", "pinned", "stopped") if getattr(spec, name)]
    output = [
        f"trial        {trial.metadata.namespace}/{trial.metadata.name} of job {spec.job}",
        f"parameters   {formatting.parameters(spec.parameters)}",
        f"phase        {status.phase.value}" + (f"  {reason}" if reason else ""),
        f"rank         {formatting.NOTHING if status.rank is None else status.rank}",
        f"progress     {_progress(snapshot, trial)}",
        *(f"metric       {sentence}" for sentence in additional_metrics.sentences(snapshot.job, trial)),
        *_pods(status),
        f"attempt      {status.attempt}, failures {status.failures}",
    ]
    if requests:
        output.append(f"requested    {', '.join(requests)}")
    for uuid in status.gpus:
        output += _gpu_lines(snapshot, trial, uuid)
    if status.phase is TrialPhase.SUSPENDED and status.gpus:
        output.append(f"resumes      {SAME_GPUS}")
    if status.migration is not None:
        output.append(f"migration    {_migration(snapshot, status.migration)}")
    suspensions = status.suspensions
    output.append(
        f"suspensions  {suspensions.count}: suspend {suspensions.suspend_seconds:.2f} s, "
        f"resume {suspensions.resume_seconds:.2f} s in total"
    )
    output.append(f"GPU time     {status.gpu_seconds:.1f} GPU-seconds as holder")
    lost = status.lost_work
    if lost.count:
        steps, times = formatting.count(round(lost.steps), "step"), formatting.count(lost.count, "time")
        output.append(f"lost work    {steps} and {lost.gpu_seconds:.1f} GPU-seconds in {times}")
    for condition in status.conditions:
        why = f"{formatting.clean(condition.reason)}: {formatting.clean(condition.message)}"
        output.append(f"condition    {condition.type}={condition.status}  {why}")
    for allocation in status.allocations[-SHOWN_ALLOCATIONS:]:
        gpus = " ".join(snapshot.gpu_name(uuid) for uuid in allocation.gpus)
        lasted = formatting.since(allocation.start, allocation.end or snapshot.now) + (
            "" if allocation.end else " and continues"
        )
        output.append(f"held         {gpus}  from {allocation.start:%H:%M:%S} for {lasted}")
    if len(status.allocations) > SHOWN_ALLOCATIONS:
        output.append(
            f"             and {formatting.count(len(status.allocations) - SHOWN_ALLOCATIONS, 'allocation')} before"
        )
    return output


def _pods(status: TrialStatus) -> list[str]:
    """Return the pod and its node; of several workers, a line for each."""
    if not status.workers:
        return [f"pod          {status.pod or 'none'} on {status.node or 'no node'}"]
    return [f"worker {one.rank:<6}{one.pod} on {one.node or 'no node'}" for one in status.workers]


def _progress(snapshot: JobSnapshot, trial: HyperParamTrial) -> str:
    spec, status = snapshot.job.spec, trial.status
    metric = spec.objective.metric
    now = (
        f"{spec.metrics.step_key} {formatting.step(status.last_step)}, {metric} {formatting.number(status.last_value)}"
    )
    best = status.best
    return now if best is None else f"{now}, best {formatting.number(best.value)} at {formatting.step(best.step)}"


def _migration(snapshot: JobSnapshot, migration: Migration) -> str:
    """Return how far a live migration is, and why it failed if it did."""
    problem = formatting.cause(migration.code, migration.message)
    age = formatting.since(migration.since, snapshot.now)
    nodes = f"from {migration.source_node} to {migration.target_node} ({migration.reason})"
    return f"{migration.phase.value} for {age}, {nodes}  {problem}".rstrip()


def _gpu_lines(snapshot: JobSnapshot, trial: HyperParamTrial, uuid: str) -> list[str]:
    """Return the position in the run queue of one GPU with its reason, and the GPU's holder."""
    output = [f"GPU          {snapshot.gpu_name(uuid)} ({uuid})"]
    for node, gpu in snapshot.gpus:
        if gpu.uuid != uuid:
            continue
        queue = run_queue_of(node, uuid)
        for position, entry in enumerate(queue, start=1):
            if entry.uid == trial.metadata.uid:
                why = formatting.cause(entry.reason, entry.message)
                output.append(f"run queue    position {position} of {len(queue)}  {why}".rstrip())
        if gpu.holder is None:
            output.append("holder       none")
        elif gpu.holder.uid == trial.metadata.uid:
            output.append(f"holder       this trial, for {formatting.since(gpu.holder.since, snapshot.now)}")
        else:
            rival = next((entry for entry in queue if entry.uid == gpu.holder.uid), None)
            why = formatting.cause(rival.reason, rival.message) if rival else ""
            held = formatting.since(gpu.holder.since, snapshot.now)
            output.append(f"holder       {gpu.holder.namespace}/{gpu.holder.trial}, for {held}  {why}".rstrip())
        if node.spec.released:
            output.append("thawed       by `podium thaw`: nothing is suspended on this node")
    return output


def data(snapshot: JobSnapshot, trial: HyperParamTrial) -> dict[str, Any]:
    """Return the explanation for programs; unknown values are null."""
    status, spec = trial.status, trial.spec
    own = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {
        **trial_data(snapshot, trial),
        "failures": status.failures,
        "requested": {name: getattr(spec, name) for name in ("suspend", "pinned", "stopped")},
        "runQueues": [queue for uuid in status.gpus for queue in _queue_data(snapshot, trial, uuid)],
        "suspendSeconds": status.suspensions.suspend_seconds,
        "resumeSeconds": status.suspensions.resume_seconds,
        "lostWork": {"count": status.lost_work.count, "steps": status.lost_work.steps}
        | {"gpuSeconds": status.lost_work.gpu_seconds},
        "migration": own.get("migration"),
        "conditions": own.get("conditions", []),
        "allocations": own.get("allocations", []),
    }


def _queue_data(snapshot: JobSnapshot, trial: HyperParamTrial, uuid: str) -> list[dict[str, Any]]:
    """Return the run queue of one GPU from the trial's point of view; none if the GPU is not known."""
    found = []
    for node, gpu in snapshot.gpus:
        if gpu.uuid != uuid:
            continue
        queue = run_queue_of(node, uuid)
        uids = [entry.uid for entry in queue]
        position = uids.index(trial.metadata.uid) if trial.metadata.uid in uids else None
        holder = gpu.holder
        held = None
        if holder is not None:
            held = {"namespace": holder.namespace, "trial": holder.trial, "since": time(holder.since)}
        found.append(
            {
                "gpu": snapshot.gpu_name(uuid),
                "uuid": uuid,
                "position": None if position is None else position + 1,
                "length": len(queue),
                "reason": None if position is None else queue[position].reason,
                "message": None if position is None else queue[position].message,
                "holder": held,
                "thawed": node.spec.released,
            }
        )
    return found

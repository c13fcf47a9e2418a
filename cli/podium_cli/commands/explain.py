"""Command `podium explain trial NAME`: phase, reason, position in the run queue, holder and history of a trial.

The explanation of `podium explain pod NAME` is in `explain_pod`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from podium_cli.commands.explain_pod import pod_explanation
from podium_cli.job_snapshot import JobSnapshot, run_queue_of
from podium_cli.objects import parse_job, parse_node, parse_trial
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples, one_of
from podium_cli.options.names import trial_names
from podium_cli.output import show
from podium_cli.session import Session, fetch, gpu_nodes, run_with_cluster
from podium_cli.views import additional_metrics, formatting
from podium_cluster import clock
from podium_cluster.resources import JOBS, TRIALS
from podium_core.domain.phase import TrialPhase
from podium_core.placement.registry import DEFAULT, POLICIES, placement_policy
from podium_core.schema.trial import HyperParamTrial, Migration

SHOWN_ALLOCATIONS = 8
SAME_GPUS = (
    "on the same GPUs: its container has access to no others; it reaches others by a checkpoint or a live migration"
)


app = typer.Typer()
explain = typer.Typer(
    help="Explain why a trial runs or waits, or how the nodes are scored for a pod.",
    no_args_is_help=True,
    epilog=examples("podium explain trial digits-3", "podium explain pod digits-3-0"),
)
app.add_typer(explain, name="explain")


@explain.command("trial", epilog=examples("podium explain trial digits-3"))
def explain_trial(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the HyperParamTrial.", autocompletion=trial_names)
    ],
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Explain why a trial runs or waits.

    Shows phase and reason, rank, progress, position in the run queue, holder of
    the GPU, suspensions, lost work and the last GPU allocations.
    """
    run_with_cluster(_explain(Session.of(namespace, kubeconfig, context), name))


@explain.command("pod", epilog=examples("podium explain pod digits-3-0"))
def explain_pod(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Pod.")],
    policy: Annotated[str, one_of(POLICIES, help=f"Placement policy: {', '.join(POLICIES)}.")] = DEFAULT,
    podium_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the agents' heartbeats.")
    ] = "podium-system",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Explain how the nodes are scored for a pod.

    Shows the extender's score or refusal of each node.
    """
    session = Session.of(namespace, kubeconfig, context)
    show(run_with_cluster(pod_explanation(session, name, placement_policy(policy), podium_namespace)))


async def _explain(session: Session, name: str) -> None:
    async with session.api() as api:
        trial = parse_trial(await fetch(api, TRIALS, name, session.namespace))
        job = parse_job(await fetch(api, JOBS, trial.spec.job, session.namespace))
        nodes = tuple(parse_node(item) for item in await gpu_nodes(api))
    print("\n".join(lines(JobSnapshot(job, (trial,), nodes, datetime.fromtimestamp(clock.now(), UTC)), trial)))


def lines(snapshot: JobSnapshot, trial: HyperParamTrial) -> list[str]:
    """Return the lines of the explanation."""
    status, spec = trial.status, trial.spec
    reason = ": ".join(formatting.clean(part) for part in (status.reason, status.message) if part)
    requests = [name for name in ("suspend", "pinned", "stopped") if getattr(spec, name)]
    output = [
        f"trial        {trial.metadata.namespace}/{trial.metadata.name} of job {spec.job}",
        f"parameters   {formatting.parameters(spec.parameters)}",
        f"phase        {status.phase.value}" + (f"  {reason}" if reason else ""),
        f"rank         {formatting.NOTHING if status.rank is None else status.rank}",
        f"progress     {_progress(snapshot, trial)}",
        *(f"metric       {sentence}" for sentence in additional_metrics.sentences(snapshot.job, trial)),
        f"pod          {status.pod or 'none'} on {status.node or 'no node'}",
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
    problem = ": ".join(formatting.clean(part) for part in (migration.code, migration.message) if part)
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
                why = ": ".join(formatting.clean(part) for part in (entry.reason, entry.message) if part)
                output.append(f"run queue    position {position} of {len(queue)}  {why}".rstrip())
        if gpu.holder is None:
            output.append("holder       none")
        elif gpu.holder.uid == trial.metadata.uid:
            output.append(f"holder       this trial, for {formatting.since(gpu.holder.since, snapshot.now)}")
        else:
            rival = next((entry for entry in queue if entry.uid == gpu.holder.uid), None)
            why = ": ".join(formatting.clean(part) for part in (rival.reason, rival.message) if part) if rival else ""
            held = formatting.since(gpu.holder.since, snapshot.now)
            output.append(f"holder       {gpu.holder.namespace}/{gpu.holder.trial}, for {held}  {why}".rstrip())
        if node.spec.released:
            output.append("thawed       by `podium thaw`: nothing is suspended on this node")
    return output

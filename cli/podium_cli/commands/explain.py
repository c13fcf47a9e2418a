"""`podium explain trial NAME`: why a trial is where it is: phase, reason, its place on the GPU, its rival, its past.
`podium explain pod NAME` is in `explain_pod`.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command
from podium_cli.commands.explain_pod import explain_pod
from podium_cli.exit_codes import Exit
from podium_cli.job_picture import JobPicture
from podium_cli.objects import parse_job, parse_node, parse_trial
from podium_cli.output import show
from podium_cli.session import Session, carry_out, fetch, gpu_nodes
from podium_cli.views import additional_metrics as observed
from podium_cli.views import formatting as texts
from podium_cluster.resources import JOBS, TRIALS
from podium_core.domain.phase import TrialPhase
from podium_core.placement.registry import DEFAULT, POLICIES, placement_policy
from podium_core.schema.trial import HyperParamTrial, Migration

LAST_TURNS = 8
OWN_GPUS = (
    "on its own GPUs: its container sees no others of its node; to others it goes by its save, or is carried alive"
)


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "explain",
        _run,
        says=SAYS["explain"],
        examples="podium explain trial digits-3\npodium explain pod digits-3-0",
    )
    parser.add_argument(
        "what",
        choices=("trial", "pod"),
        help="trial: phase, reason, rank, who has its GPU, what it did so far; pod: score or refusal of each node",
    )
    parser.add_argument("name", help="name of the HyperParamTrial or of the Pod")
    text = f"of placement: {', '.join(POLICIES)} (default: {DEFAULT})"
    parser.add_argument("--policy", choices=POLICIES, default=DEFAULT, metavar="NAME", help=text)
    parser.add_argument(
        "--podium-namespace",
        default="podium-system",
        metavar="NAME",
        help="where the agents' heartbeats are (default: podium-system)",
    )


def _run(arguments: argparse.Namespace) -> Exit:
    if arguments.what == "pod":
        policy = placement_policy(arguments.policy)
        show(carry_out(explain_pod(Session.of(arguments), arguments.name, policy, arguments.podium_namespace)))
        return Exit.OK
    return carry_out(_explain(Session.of(arguments), arguments.name))


async def _explain(session: Session, name: str) -> Exit:
    async with session.api() as api:
        trial = parse_trial(await fetch(api, TRIALS, name, session.namespace))
        job = parse_job(await fetch(api, JOBS, trial.spec.job, session.namespace))
        nodes = tuple(parse_node(item) for item in await gpu_nodes(api))
    print("\n".join(lines(JobPicture(job, (trial,), nodes, datetime.now(UTC)), trial)))
    return Exit.OK


def lines(picture: JobPicture, trial: HyperParamTrial) -> list[str]:
    """The explanation; pure."""
    status, spec = trial.status, trial.spec
    reason = ": ".join(texts.clean(part) for part in (status.reason, status.message) if part)
    wishes = [name for name in ("suspend", "pinned", "stopped") if getattr(spec, name)]
    found = [
        f"trial        {trial.metadata.namespace}/{trial.metadata.name} of job {spec.job}",
        f"parameters   {texts.parameters(spec.parameters)}",
        f"phase        {status.phase.value}" + (f"  {reason}" if reason else ""),
        f"rank         {texts.NOTHING if status.rank is None else status.rank}",
        f"progress     {_progress(picture, trial)}",
        *(f"also         {told}" for told in observed.sentences(picture.job, trial)),
        f"pod          {status.pod or 'none'} on {status.node or 'no node'}",
        f"attempt      {status.attempt}, failures {status.failures}",
    ]
    if wishes:
        found.append(f"asked for    {', '.join(wishes)}")
    for uuid in status.gpus:
        found += _gpu_lines(picture, trial, uuid)
    if status.phase is TrialPhase.SUSPENDED and status.gpus:
        found.append(f"comes back   {OWN_GPUS}")
    if status.migration is not None:
        found.append(f"carried      {_way(picture, status.migration)}")
    suspensions = status.suspensions
    found.append(
        f"suspensions  {suspensions.count}, {suspensions.suspend_seconds:.2f} s out and "
        f"{suspensions.resume_seconds:.2f} s in; "
        f"{status.gpu_seconds:.1f} GPU-seconds held"
    )
    for condition in status.conditions:
        told = f"{texts.clean(condition.reason)}: {texts.clean(condition.message)}"
        found.append(f"condition    {condition.type}={condition.status}  {told}")
    for hold in status.allocations[-LAST_TURNS:]:
        gpus = " ".join(picture.gpu_name(uuid) for uuid in hold.gpus)
        lasted = texts.since(hold.start, hold.end or picture.now) + ("" if hold.end else " and still does")
        found.append(f"held         {gpus}  from {hold.start:%H:%M:%S} for {lasted}")
    if len(status.allocations) > LAST_TURNS:
        found.append(f"             and {texts.count(len(status.allocations) - LAST_TURNS, 'turn')} before")
    return found


def _progress(picture: JobPicture, trial: HyperParamTrial) -> str:
    spec, status = picture.job.spec, trial.status
    metric = spec.objective.metric
    now = f"{spec.metrics.step_key} {texts.step(status.last_step)}, {metric} {texts.number(status.last_value)}"
    best = status.best
    return now if best is None else f"{now}, best {texts.number(best.value)} at {texts.step(best.step)}"


def _way(picture: JobPicture, way: Migration) -> str:
    """How far a live trial's way to another node is, and why it fell back if it did."""
    told = ": ".join(texts.clean(part) for part in (way.code, way.message) if part)
    lasts = texts.since(way.since, picture.now)
    return f"{way.phase.value} for {lasts}, from {way.source_node} to {way.target_node} ({way.reason})  {told}".rstrip()


def _gpu_lines(picture: JobPicture, trial: HyperParamTrial, uuid: str) -> list[str]:
    """Its place in the order of one GPU, with the operator's reason, and who has that GPU instead."""
    found = [f"GPU          {picture.gpu_name(uuid)} ({uuid})"]
    for node, gpu in picture.gpus:
        if gpu.uuid != uuid:
            continue
        order = next((entry.run_queue for entry in node.spec.gpus if entry.uuid == uuid), [])
        for place, entry in enumerate(order, start=1):
            if entry.uid == trial.metadata.uid:
                told = ": ".join(texts.clean(part) for part in (entry.reason, entry.message) if part)
                found.append(f"place        {place} of {len(order)} in the order of this GPU  {told}".rstrip())
        if gpu.holder is None:
            found.append("holder       nobody")
        elif gpu.holder.uid == trial.metadata.uid:
            found.append(f"holder       this trial, for {texts.since(gpu.holder.since, picture.now)}")
        else:
            rival = next((entry for entry in order if entry.uid == gpu.holder.uid), None)
            told = ": ".join(texts.clean(part) for part in (rival.reason, rival.message) if part) if rival else ""
            held = texts.since(gpu.holder.since, picture.now)
            found.append(f"rival        {gpu.holder.namespace}/{gpu.holder.trial} holds it for {held}  {told}".rstrip())
        if node.spec.released:
            found.append("released     by `podium thaw`: nothing is suspended on this node")
    return found

"""Command `podium drain`: move the trials off a node before its maintenance, without lost work.

The command cordons the node and sets GPUNode.spec.draining under a field manager of its own. The operator moves every
trial that can continue on another node. The command names the other trials with the work that would be lost; they keep
running unless --lose-steps is given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import Field

from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_job, parse_trial
from podium_cli.options.common import Kubeconfig, KubeContext, Namespace, examples, seconds
from podium_cli.options.names import node_names
from podium_cli.session import MANAGER, Session, fetch, run_with_cluster
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, JOBS, NODES, PODS, TRIALS
from podium_core.domain.migration import CONTAINER_CHECKPOINT, IN_PROGRESS, RETRIABLE_CODES, MigrationPhase
from podium_core.domain.phase import FINAL
from podium_core.domain.relocation import is_migratable, is_relocatable
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.checkpointing import can_checkpoint, can_migrate, checkpoint_scope
from podium_core.schema.job import HyperParamJob
from podium_core.schema.template.workload import TRIAL_UID_LABEL
from podium_core.schema.trial import HyperParamTrial

DRAINER = "podium-cli-drain"  # differs from `podium thaw`, whose next apply would remove this field
TRIAL_LABEL = "podium.dev/trial"
POLL_SECONDS = 0.5


class _Owner(StatusModel):
    kind: str
    uid: str


class _PodMeta(ObjectMeta):
    owner_references: list[_Owner] = Field(default_factory=list)


class _Phase(StatusModel):
    phase: str = ""


class _Methods(StatusModel):
    methods: list[str] = Field(default_factory=list)


class _GpuNode(StatusModel):
    metadata: ObjectMeta
    status: _Methods = _Methods()


class _Pod(StatusModel):
    metadata: _PodMeta
    status: _Phase = _Phase()


@dataclass(frozen=True, slots=True)
class RemainingTrial:
    """A trial whose pod is still on the node.

    `lost_work` is what a deletion of the pod would lose; empty if nothing. `relocation` is a clause that tells how the
    trial is moved; empty if it cannot be moved or its pod is terminating.
    """

    trial: str
    namespace: str
    pod: str
    pod_uid: str
    lost_work: str
    relocation: str = ""


app = typer.Typer()


@app.command(
    epilog=examples("podium drain node-a", "podium drain node-a --wait 600 --lose-steps", "podium drain node-a --undo")
)
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=node_names)],
    wait: Annotated[
        float, typer.Option(parser=seconds, metavar="SECONDS", help="How long to wait; 0: do not wait.")
    ] = 300,
    lose_steps: Annotated[
        bool,
        typer.Option("--lose-steps", help="Delete the pods of trials that cannot be moved, too: their work is lost."),
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Admit trials to the node again.")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
) -> None:
    """Move trials off a node without lost work and admit none there until --undo.

    The node is cordoned. Trials with checkpoints continue on other nodes, others
    are migrated live where the agents support it. Trials that would lose work are
    named and keep running unless --lose-steps is given.
    """
    session = Session.of(namespace, kubeconfig, context)
    run_with_cluster(_undo(session, node) if undo else _drain(session, node, wait, lose_steps=lose_steps))


async def _undo(session: Session, node: str) -> None:
    async with session.api() as api:
        await _mark(api, node, draining=False)
    print(f"{node}: accepts trials again")


async def _drain(session: Session, node: str, wait: float, *, lose_steps: bool) -> None:
    async with session.api() as api:
        await _mark(api, node, draining=True)
        print(f"{node}: cordoned; trials that can continue on another node are moved", flush=True)
        if wait > 0:
            await _until_empty(api, node, wait, lose_steps=lose_steps)


async def _mark(api: Api, node: str, *, draining: bool) -> None:
    for resource in (NODES, GPUNODES):
        await fetch(api, resource, node, None)  # an apply would create a missing object
    await api.patch(NODES, node, None, {"spec": {"unschedulable": draining or None}}, manager=MANAGER)
    await api.apply(GPUNODES, {"metadata": {"name": node}, "spec": {"draining": draining}}, manager=DRAINER)


async def _until_empty(api: Api, node: str, wait: float, *, lose_steps: bool) -> None:
    deadline = time.monotonic() + wait
    before: dict[str, RemainingTrial] = {}
    reported: set[tuple[str, str]] = set()
    while True:
        there = {one.pod_uid: one for one in await _remaining_trials(api, node)}
        for one in (one for uid, one in before.items() if uid not in there):
            print(f"{one.namespace}/{one.trial} is gone ({len(there)} remaining)", flush=True)
        before = there
        for one in (one for one in there.values() if one.relocation and (one.pod_uid, one.relocation) not in reported):
            print(f"{one.namespace}/{one.trial} {one.relocation}", flush=True)
            reported.add((one.pod_uid, one.relocation))
        stuck = [one for one in there.values() if one.lost_work]
        for one in (one for one in stuck if (one.pod_uid, "") not in reported):
            end = "its pod is deleted" if lose_steps else "it keeps running here"
            print(f"{one.namespace}/{one.trial} cannot be moved: {one.lost_work}; {end}", flush=True)
            if lose_steps:
                await api.delete(PODS, one.pod, one.namespace, uid=one.pod_uid)
            reported.add((one.pod_uid, ""))
        if not there:
            print(f"no trial remains; `podium drain {node} --undo` admits trials again")
            return
        if len(stuck) == len(there) and not lose_steps:
            names = ", ".join(sorted(f"{one.namespace}/{one.trial}" for one in stuck))
            message = (
                f"{names} cannot be moved and keep running on {node}; let them end, or delete them with --lose-steps"
            )
            raise CliError(Exit.FAILED, "TrialsRemaining", message)
        if time.monotonic() > deadline:
            names = ", ".join(sorted(f"{one.namespace}/{one.trial}" for one in there.values()))
            message = f"after {wait:g} s still on {node}: {names}; see `podium explain trial`, or wait longer (--wait)"
            raise CliError(Exit.TIMEOUT, "DrainTimeout", message)
        await asyncio.sleep(POLL_SECONDS)


async def _remaining_trials(api: Api, node: str) -> tuple[RemainingTrial, ...]:
    """Return the trials on the node. The pods decide, because the agent may be unresponsive."""
    pods = (await api.list(PODS, labels=TRIAL_LABEL, fields=f"spec.nodeName={node}"))["items"]
    if not pods:
        return ()
    trials = [parse_trial(item) for item in (await api.list(TRIALS))["items"]]
    jobs = [parse_job(item) for item in (await api.list(JOBS))["items"]]
    nodes = [_GpuNode.model_validate(item) for item in (await api.list(GPUNODES))["items"]]
    return remaining_trials(pods, trials, jobs, supports_migration(node, nodes))


def supports_migration(node: str, nodes: Iterable[_GpuNode]) -> bool:
    """Return whether the agents of this node and of at least one other support live migration."""
    able = {one.metadata.name for one in nodes if CONTAINER_CHECKPOINT in one.status.methods}
    return node in able and len(able) > 1


def remaining_trials(
    pods: Iterable[Mapping[str, Any]],
    trials: Iterable[HyperParamTrial],
    jobs: Iterable[HyperParamJob],
    node_migrates: bool = False,
) -> tuple[RemainingTrial, ...]:
    """Return the trials whose pods have not ended; `node_migrates` is the result of `supports_migration`."""
    by_uid = {trial.metadata.uid: trial for trial in trials}
    by_name = {(job.metadata.namespace, job.metadata.name): job for job in jobs}
    remaining: list[RemainingTrial] = []
    for pod in map(_Pod.model_validate, pods):
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        meta = pod.metadata
        owners = (owner.uid for owner in meta.owner_references if owner.kind == "HyperParamTrial")
        trial = by_uid.get(next(owners, meta.labels.get(TRIAL_UID_LABEL, "")))  # the label: a Job controls the pod
        job = by_name.get((trial.metadata.namespace, trial.spec.job)) if trial is not None else None
        name = meta.labels.get(TRIAL_LABEL, meta.name)
        # a terminating pod needs no action, nor does a pod whose trial has ended or was deleted
        leaving = meta.deletion_timestamp is not None or trial is None or job is None or trial.status.phase in FINAL
        lost_work = relocation = ""
        if not leaving and trial is not None and job is not None:
            relocation, lost_work = relocation_of(job, trial, meta.uid, node_migrates)
        remaining.append(RemainingTrial(name, meta.namespace, meta.name, meta.uid, lost_work, relocation))
    return tuple(sorted(remaining, key=lambda one: (one.namespace, one.trial)))


def relocation_of(job: HyperParamJob, trial: HyperParamTrial, pod_uid: str, node_migrates: bool) -> tuple[str, str]:
    """Return how the trial is moved, or the work that is lost if it cannot be moved; the other is empty."""
    migration = trial.status.migration
    migrated = migration is not None and migration.pod_uid != pod_uid and migration.phase in IN_PROGRESS
    lost_work = lost_work_of(job, trial, migrated=migrated)
    if not lost_work:
        return "continues on another node without lost work", ""
    if migrated and can_migrate(job.spec) and node_migrates:
        return "was migrated here live: it moves on once it has printed a value on this node", ""
    if (
        migration is not None
        and migration.pod_uid == pod_uid
        and migration.phase is MigrationPhase.FAILED
        and migration.code not in RETRIABLE_CODES
    ):
        return "", f"its live migration failed ({migration.code}: {migration.message}); {lost_work}"
    if is_migratable(trial.status.phase, migratable=can_migrate(job.spec), supported=node_migrates):
        return "is migrated live (experimental): it loses no work unless its restore fails", ""
    return "", lost_work


def lost_work_of(job: HyperParamJob, trial: HyperParamTrial, *, migrated: bool = False) -> str:
    """Return what the trial would lose on another node, and why; empty if it can be moved.

    `migrated`: a live migration brought the trial here, and it has printed no value yet.
    """
    status, where = trial.status, checkpoint_scope(job.spec)
    has_checkpoint = status.checkpoint is not None
    if job.spec.gpus.per_trial > 0 and is_relocatable(
        status.phase,
        checkpointable=can_checkpoint(job.spec),
        checkpoint_scope=where,
        has_checkpoint=has_checkpoint,
        migrated=migrated,
    ):
        return ""
    if where == "node" and (status.checkpoint is not None or can_checkpoint(job.spec)):
        return "its checkpoints are in a folder of this node, and its next pod would wait for this node"
    why = "its job writes no checkpoints (suspension.methods has no app-checkpoint)"
    if job.spec.gpus.per_trial == 0:
        why = "it has no GPU (gpus.perTrial: 0), and Podium moves only trials with a GPU"
    start = status.checkpoint.step if status.checkpoint is not None and where == "anywhere" else 0.0
    steps = max(0.0, (status.last_step or 0.0) - start)
    lost = "1 step" if steps == 1.0 else f"{steps:g} steps"
    return f"{why}; it would lose {lost} (it is at {status.last_step or 0.0:g}, its checkpoint at {start:g})"

"""`podium drain`: empty a node of trials before it goes, without losing a step.

It cordons the node and sets GPUNode.spec.draining, under a field manager of its own; the operator moves every trial
that can go on elsewhere. Those that cannot are named with what would be lost, and go on unless --lose-steps is given.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from podium_cli.command_table import SAYS
from podium_cli.commands.base import Commands, command, seconds
from podium_cli.exit_codes import CliError, Exit
from podium_cli.objects import parse_job, parse_trial
from podium_cli.session import MANAGER, Session, carry_out, fetch
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, JOBS, NODES, PODS, TRIALS
from podium_core.domain.migration import CONTAINER_CHECKPOINT, IN_PROGRESS, RETRIABLE_CODES, MigrationPhase
from podium_core.domain.phase import FINAL
from podium_core.domain.relocation import is_migratable, is_relocatable
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.checkpointing import can_checkpoint, can_migrate, checkpoint_scope
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import HyperParamTrial

DRAINER = "podium-cli-drain"  # not that of `podium thaw`, whose next apply would take this field away
TRIAL_LABEL = "podium.dev/trial"
LOOK_SECONDS = 0.5


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
class Left:
    """A trial that is still on the node. `cost`: what would be lost by ending its pod; empty: nothing. `how`: in what
    way it leaves, with what that costs."""

    trial: str
    namespace: str
    pod: str
    pod_uid: str
    cost: str
    how: str = ""


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "drain",
        _run,
        says=SAYS["drain"],
        examples="""
            podium drain node-a
            podium drain node-a --wait 600 --lose-steps
            podium drain node-a --undo
        """,
    )
    parser.add_argument("node", help="name of the node")
    parser.add_argument(
        "--wait", type=seconds, default=300.0, metavar="SECONDS", help="how long to wait (default 300; 0: not)"
    )
    parser.add_argument(
        "--lose-steps", action="store_true", help="end trials that cannot be saved, too: they begin further back"
    )
    parser.add_argument("--undo", action="store_true", help="let trials come again")


def _run(arguments: argparse.Namespace) -> Exit:
    session = Session.of(arguments)
    if arguments.undo:
        return carry_out(_undo(session, arguments.node))
    return carry_out(_drain(session, arguments.node, arguments.wait, lose_steps=arguments.lose_steps))


async def _undo(session: Session, node: str) -> Exit:
    async with session.api() as api:
        await _mark(api, node, draining=False)
    print(f"{node}: trials may come again")
    return Exit.OK


async def _drain(session: Session, node: str, wait: float, *, lose_steps: bool) -> Exit:
    async with session.api() as api:
        await _mark(api, node, draining=True)
        print(f"{node}: cordoned; trials that can save leave it", flush=True)
        return await _until_empty(api, node, wait, lose_steps=lose_steps) if wait > 0 else Exit.OK


async def _mark(api: Api, node: str, *, draining: bool) -> None:
    for resource in (NODES, GPUNODES):
        await fetch(api, resource, node, None)  # an apply would create what is not there
    await api.patch(NODES, node, None, {"spec": {"unschedulable": draining or None}}, manager=MANAGER)
    await api.apply(GPUNODES, {"metadata": {"name": node}, "spec": {"draining": draining}}, manager=DRAINER)


async def _until_empty(api: Api, node: str, wait: float, *, lose_steps: bool) -> Exit:
    deadline = time.monotonic() + wait
    before: dict[str, Left] = {}
    told: set[tuple[str, str]] = set()
    while True:
        there = {one.pod_uid: one for one in await _look(api, node)}
        for one in (one for uid, one in before.items() if uid not in there):
            print(f"{one.namespace}/{one.trial} has left ({len(there)} to go)", flush=True)
        before = there
        for one in (one for one in there.values() if one.how and (one.pod_uid, one.how) not in told):
            print(f"{one.namespace}/{one.trial} {one.how}", flush=True)
            told.add((one.pod_uid, one.how))
        stuck = [one for one in there.values() if one.cost]
        for one in (one for one in stuck if (one.pod_uid, "") not in told):
            end = "it is ended" if lose_steps else "it goes on here"
            print(f"{one.namespace}/{one.trial} cannot be moved: {one.cost}; {end}", flush=True)
            if lose_steps:
                await api.delete(PODS, one.pod, one.namespace, uid=one.pod_uid)
            told.add((one.pod_uid, ""))
        if not there:
            print(f"no trial is left; `podium drain {node} --undo` lets them come again")
            return Exit.OK
        if len(stuck) == len(there) and not lose_steps:
            names = ", ".join(sorted(f"{one.namespace}/{one.trial}" for one in stuck))
            message = f"{names} cannot be moved and go on at {node}; --lose-steps ends them, or let them finish first"
            raise CliError(Exit.FAILED, "TrialsRemaining", message)
        if time.monotonic() > deadline:
            names = ", ".join(sorted(f"{one.namespace}/{one.trial}" for one in there.values()))
            message = f"after {wait:g} s still on {node}: {names}; see `podium explain trial`, or wait longer (--wait)"
            raise CliError(Exit.TIMEOUT, "DrainTimeout", message)
        await asyncio.sleep(LOOK_SECONDS)


async def _look(api: Api, node: str) -> tuple[Left, ...]:
    """The pods say who is there: an agent may be silent."""
    pods = (await api.list(PODS, labels=TRIAL_LABEL, fields=f"spec.nodeName={node}"))["items"]
    if not pods:
        return ()
    trials = [parse_trial(item) for item in (await api.list(TRIALS))["items"]]
    jobs = [parse_job(item) for item in (await api.list(JOBS))["items"]]
    nodes = [_GpuNode.model_validate(item) for item in (await api.list(GPUNODES))["items"]]
    return left(pods, trials, jobs, carries_from(node, nodes))


def carries_from(node: str, nodes: Iterable[_GpuNode]) -> bool:
    """Whether its agent and that of another node carry live trials."""
    able = {one.metadata.name for one in nodes if CONTAINER_CHECKPOINT in one.status.methods}
    return node in able and len(able) > 1


def left(
    pods: Iterable[Mapping[str, Any]],
    trials: Iterable[HyperParamTrial],
    jobs: Iterable[HyperParamJob],
    node_carries: bool = False,
) -> tuple[Left, ...]:
    """Whose pods have not ended, and what ending them would cost. `node_carries`: see `carries_from`."""
    by_uid = {trial.metadata.uid: trial for trial in trials}
    by_name = {(job.metadata.namespace, job.metadata.name): job for job in jobs}
    found: list[Left] = []
    for pod in map(_Pod.model_validate, pods):
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        meta = pod.metadata
        owners = (owner.uid for owner in meta.owner_references if owner.kind == "HyperParamTrial")
        trial = by_uid.get(next(owners, ""))
        job = by_name.get((trial.metadata.namespace, trial.spec.job)) if trial is not None else None
        name = meta.labels.get(TRIAL_LABEL, meta.name)
        # a pod on its way out goes whatever it costs, and so does one whose trial is gone or over
        going = meta.deletion_timestamp is not None or trial is None or job is None or trial.status.phase in FINAL
        cost = how = ""
        if not going and trial is not None and job is not None:
            how, cost = leaves_by(job, trial, meta.uid, node_carries)
        found.append(Left(name, meta.namespace, meta.name, meta.uid, cost, how))
    return tuple(sorted(found, key=lambda one: (one.namespace, one.trial)))


def leaves_by(job: HyperParamJob, trial: HyperParamTrial, pod_uid: str, node_carries: bool) -> tuple[str, str]:
    """In what way it leaves with what that costs, and what is lost otherwise; one of them is empty."""
    way = trial.status.migration
    carried = way is not None and way.pod_uid != pod_uid and way.phase in IN_PROGRESS
    cost = cost_of(job, trial, carried=carried)
    if not cost:
        return "leaves: it loses no step", ""
    if carried and can_migrate(job.spec) and node_carries:
        return "was carried here alive: it leaves once it has printed a value here", ""
    if (
        way is not None
        and way.pod_uid == pod_uid
        and way.phase is MigrationPhase.FAILED
        and way.code not in RETRIABLE_CODES
    ):
        return "", f"it could not be carried ({way.code}: {way.message}); {cost}"
    if is_migratable(trial.status.phase, migratable=can_migrate(job.spec), supported=node_carries):
        return "is carried alive (experimental): it loses no step, unless its restore fails", ""
    return "", cost


def cost_of(job: HyperParamJob, trial: HyperParamTrial, *, carried: bool = False) -> str:
    """What the trial would lose on another node, and why; empty where it can be moved. `carried`: it came here alive,
    and has printed no value yet."""
    status, where = trial.status, checkpoint_scope(job.spec)
    has_save = status.checkpoint is not None
    if job.spec.gpus.per_trial > 0 and is_relocatable(
        status.phase,
        checkpointable=can_checkpoint(job.spec),
        checkpoint_scope=where,
        has_checkpoint=has_save,
        migrated=carried,
    ):
        return ""
    if where == "node" and (status.checkpoint is not None or can_checkpoint(job.spec)):
        return "its saves are in a folder of this node, and its next pod would wait for it to come back"
    why = "its job does not save (suspension.methods without app-checkpoint)"
    if job.spec.gpus.per_trial == 0:
        why = "it has no GPU (gpus.perTrial: 0), and Podium moves only trials that have one"
    begin = status.checkpoint.step if status.checkpoint is not None and where == "anywhere" else 0.0
    steps = max(0.0, (status.last_step or 0.0) - begin)
    lost = "1 step" if steps == 1.0 else f"{steps:g} steps"
    return f"{why}; it would lose {lost} (it is at {status.last_step or 0.0:g}, saved at {begin:g})"

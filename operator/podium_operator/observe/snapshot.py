"""Convert the cluster state and the observations to the planner's snapshot. Pure; called once in each reconcile."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from podium_core.domain.migration import CONTAINER_CHECKPOINT, NOT_RESUMABLE
from podium_core.domain.phase import FINAL
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import GpuView, JobKey, JobView, Snapshot, TrialKey, TrialView
from podium_core.domain.switch_costs import SwitchTotals, mean_costs, mean_switch
from podium_core.planning.job_view import job_view
from podium_core.schema.gpunode import GPUNode, GpuRunQueue
from podium_core.schema.job import HyperParamJob
from podium_core.schema.trial import SuspensionRecord, Suspensions
from podium_operator.act.migration import standing
from podium_operator.act.rebalancing import bound_for
from podium_operator.observe.cluster_state import World, job_key, trial_key
from podium_operator.observe.node_fit import wants_room
from podium_operator.observe.observation import Sight
from podium_operator.observe.trial_state import SeenTrial
from podium_operator.searchers.registry import SEARCHERS

ACCEPTED = "Accepted"
FREEZE = "freeze"  # every agent whose GPUs are dedicated to Podium supports it
FINISHED = ("Succeeded", "Failed")
log = logging.getLogger(__name__)


def build_snapshot(
    world: World,
    sights: Mapping[TrialKey, Sight],
    requeue: float | None = None,
    levelling: RebalancingRules | None = None,
    no_room: Collection[tuple[JobKey, str]] = (),
) -> Snapshot:
    """Return the planner's snapshot.

    `requeue` is the measured cost of a requeue in seconds, None before the first measurement. `levelling` holds the
    rules of rebalancing, None where it is off. `no_room` names nodes without capacity, by job.
    """
    places = _places(world)
    return Snapshot(
        now=world.now,
        jobs=tuple(_jobs(world, places)),
        trials=tuple(
            _trial(trial, sights[trial_key(trial)])
            for trial in world.trials
            if trial.metadata.deletion_timestamp is None
        ),
        gpus=tuple(gpu for node in world.nodes for gpu in _gpus(world, node)),
        costs=mean_costs([_ways(trial.status.suspensions) for trial in world.trials], requeue),
        epochs={node.metadata.name: node.spec.epoch for node in world.nodes},
        rebalancing=levelling,
        full_nodes=frozenset(no_room),
    )


def is_accepted(job: HyperParamJob) -> bool:
    """Return True if the job's condition Accepted is True."""
    return any(c.type == ACCEPTED and c.status == "True" for c in job.status.conditions)


def is_finished(job: HyperParamJob) -> bool:
    """Return True if the job has ended and was not edited afterwards (more trials, say)."""
    return job.status.phase in FINISHED and job.status.observed_generation >= job.metadata.generation


def _places(world: World) -> Mapping[JobKey, frozenset[str]]:
    """Return, by job, the nodes on whose GPUs its trials are."""
    jobs = {trial.metadata.uid: job_key(trial) for trial in world.trials}
    found: dict[JobKey, set[str]] = {}
    for node in world.nodes:
        for there in (there for gpu in node.status.gpus for there in gpu.trials):
            if there.uid in jobs:
                found.setdefault(jobs[there.uid], set()).add(node.metadata.name)
    return {key: frozenset(nodes) for key, nodes in found.items()}


def _in_place(nodes: Sequence[GPUNode], places: Collection[str]) -> frozenset[str]:
    """Return the suspension methods that keep a job's trials on their GPUs.

    These are the methods supported by every node with trials of the job, or by every node with GPUs if it has none.
    """
    there = [node for node in nodes if node.metadata.name in places] or [node for node in nodes if node.status.gpus]
    carried_out = [
        (frozenset(node.status.methods) - {CONTAINER_CHECKPOINT})
        | (frozenset({FREEZE}) if node.status.mode == "dedicated" else frozenset())
        for node in there
    ]
    return frozenset.intersection(*carried_out) if carried_out else frozenset({FREEZE})


def _jobs(world: World, places: Mapping[JobKey, Collection[str]]) -> Iterable[JobView]:
    """Yield the jobs; a job that cannot be converted is not planned for and does not affect the others."""
    for job in world.jobs:
        namespace, name = job.metadata.namespace, job.metadata.name
        if job.metadata.deletion_timestamp is not None:
            continue
        try:
            yield _job(job, _in_place(world.nodes, places.get(JobKey(namespace, name), ())))
        except Exception as error:
            log.error("job %s/%s is left unchanged: %r", namespace, name, error)


def _job(job: HyperParamJob, in_place: frozenset[str]) -> JobView:
    return job_view(
        job,
        points=SEARCHERS[job.spec.search.algorithm].size(job.spec),
        accepted=is_accepted(job),
        finished=is_finished(job),
        suspendable=not in_place.isdisjoint(job.spec.suspension.methods),
    )


def _trial(trial: SeenTrial, sight: Sight) -> TrialView:
    created = trial.metadata.creation_timestamp
    # the planner does not need the ended pod of a finished trial; one that still runs has to be deleted
    over = sight.phase in FINAL and sight.pod is not None and sight.pod.facts.phase in ("Succeeded", "Failed")
    carrying, carried = standing(trial, sight.pod)
    return TrialView(
        key=trial_key(trial),
        job=job_key(trial),
        number=trial.spec.number,
        created=created.timestamp() if created else 0.0,
        phase=sight.phase,
        curve=trial.points,
        attempt=sight.attempt,
        failures=sight.failures,
        pod=sight.pod.name if sight.pod and not over else None,
        node=sight.node,
        gpus=() if sight.phase in FINAL else sight.gpus,
        gpu_seconds=trial.status.gpu_seconds,
        retry_at=sight.retry_at,
        suspend=trial.spec.suspend or (carrying in NOT_RESUMABLE and not carried),
        pinned=trial.spec.pinned,
        stopped=trial.spec.stopped,
        stuck=sight.stuck,
        waits_for_capacity=sight.stuck and sight.pod is not None and wants_room(sight.pod.facts),
        terminating=sight.leaving,
        termination_overdue=sight.overdue,
        pod_since=sight.pod.created if sight.pod else 0.0,
        checkpoint_step=trial.status.checkpoint.step if trial.status.checkpoint else None,
        switch_seconds=_switch(trial.status.suspensions.recent),
        migration=carrying,
        migrated=carried,
        migration_target=trial.status.migration.target_node if trial.status.migration and carrying else None,
        rebalance_count=trial.status.rebalanced.count if trial.status.rebalanced else 0,
        destination=bound_for(trial, sight),
        finished_at=trial.status.finished_at.timestamp() if trial.status.finished_at else None,
        parameters=tuple(trial.spec.parameters.items()),
    )


def _gpus(world: World, node: GPUNode) -> Iterable[GpuView]:
    silent = node.metadata.name in world.silent
    ordered = {gpu.uuid: gpu for gpu in node.spec.gpus}
    for gpu in node.status.gpus:
        holder, shares = gpu.holder, max(0, gpu.slots - len(gpu.other_pods))
        order = ordered.get(gpu.uuid, GpuRunQueue(uuid=gpu.uuid))
        yield GpuView(
            node=node.metadata.name,
            uuid=gpu.uuid,
            # an unresponsive agent cannot start anything: its last report may be old
            health="Unknown" if silent else gpu.health,
            slots=shares,
            holder=TrialKey(holder.namespace, holder.trial, holder.uid) if holder else None,
            # by the operator's clock: the clock of the agent's node may differ
            holder_since=world.turns.get((node.metadata.name, gpu.uuid), holder.since.timestamp()) if holder else None,
            trials=tuple(TrialKey(t.namespace, t.trial, t.uid) for t in gpu.trials),
            run_queue=tuple(TrialKey(e.namespace, e.trial, e.uid) for e in order.run_queue),
            in_effect=gpu.epoch == node.spec.epoch,
            no_preemption=not order.preempts and node.status.observed_epoch == node.spec.epoch,
            free_slots=max(0, shares - len(gpu.trials)),
            product=gpu.product,
            memory_total=gpu.memory_total,
            memory_reserved=gpu.memory_claimed,
            memory_movable=gpu.memory_movable,
            draining=node.spec.draining,
            exclusive_pod=gpu.exclusive_pod,
            reserved_for=None if node.status.mode == "dedicated" else (gpu.reservation or "").partition("/")[0],
            supports_migration=CONTAINER_CHECKPOINT in node.status.methods,
        )


def _switch(recent: Sequence[SuspensionRecord]) -> float | None:
    """Return the mean switch time of the method that was used last."""
    return mean_switch([(one.suspend_seconds, one.resume_seconds) for one in recent if one.method == recent[-1].method])


def _ways(past: Suspensions) -> SwitchTotals:
    """Return the totals of suspensions; those without a resumption (yet) are among the recent ones."""
    away = sum(one.resume_seconds is None for one in past.recent)
    return SwitchTotals(past.count, past.suspend_seconds, past.count - away, past.resume_seconds)

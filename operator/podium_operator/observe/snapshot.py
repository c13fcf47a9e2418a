"""Convert the cluster state and the observations to the planner's snapshot. Pure; called once in each reconcile."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from podium_core.domain.gpu_queue import QueueView
from podium_core.domain.gpu_view import Availability, GpuMemory, GpuView, RunQueueView
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.migration import CONTAINER_CHECKPOINT, NOT_RESUMABLE
from podium_core.domain.phase import FINAL
from podium_core.domain.pod_view import PodView
from podium_core.domain.rebalancing import RebalancingRules
from podium_core.domain.snapshot import (
    Attempts,
    Intent,
    JobView,
    Relocation,
    Snapshot,
    TrialOrigin,
    TrialResult,
    TrialUsage,
    TrialView,
)
from podium_core.domain.switch_costs import mean_costs
from podium_core.objectives.values import measured_of, objective_values
from podium_core.planning.job_view import job_view
from podium_core.schema.gpunode import GPUNode, GpuRunQueue, GpuStatus
from podium_core.schema.job import HyperParamJob
from podium_core.schema.job_status import FINISHED
from podium_core.schema.lineage import lineage_from
from podium_operator.act.migration import migration_of_pod
from podium_operator.act.rebalancing import chosen_node
from podium_operator.log_fields import about_item
from podium_operator.observe.cluster_state import ClusterState, job_key, trial_key
from podium_operator.observe.node_fit import lacks_capacity
from podium_operator.observe.observation import Observation
from podium_operator.observe.trial_state import TrialState
from podium_searchers.search import size

ACCEPTED = "Accepted"
FREEZE = "freeze"  # every agent whose GPUs are dedicated to Podium supports it
log = logging.getLogger(__name__)


def build_snapshot(
    cluster: ClusterState,
    observations: Mapping[TrialKey, Observation],
    requeue_seconds: float | None = None,
    rebalancing: RebalancingRules | None = None,
    full_nodes: Collection[tuple[JobKey, str]] = (),
    queues: tuple[QueueView, ...] = (),
) -> Snapshot:
    """Return the planner's snapshot.

    `requeue_seconds` is the measured cost of a requeue in seconds, None before the first measurement. `rebalancing`
    holds the rules of rebalancing, None where it is off. `full_nodes` names nodes without capacity, by job. `queues`:
    the GPUQueues with their usage; without any, jobs share the GPUs without queues.
    """
    nodes_by_job = _nodes_by_job(cluster)
    several = {
        JobKey(job.metadata.namespace, job.metadata.name): job
        for job in cluster.jobs
        if job.spec.objectives is not None
    }
    return Snapshot(
        now=cluster.now,
        jobs=tuple(_jobs(cluster, nodes_by_job)),
        trials=tuple(
            _trial(trial, observations[trial_key(trial)], several.get(job_key(trial)))
            for trial in cluster.trials
            if trial.metadata.deletion_timestamp is None
        ),
        gpus=tuple(gpu for node in cluster.nodes for gpu in _gpus(cluster, node)),
        costs=mean_costs([trial.switches for trial in cluster.trials], requeue_seconds),
        epochs={node.metadata.name: node.spec.epoch for node in cluster.nodes},
        rebalancing=rebalancing,
        full_nodes=frozenset(full_nodes),
        queues=queues,
    )


def is_accepted(job: HyperParamJob) -> bool:
    """Return True if the job's condition Accepted is True."""
    return any(c.type == ACCEPTED and c.status == "True" for c in job.status.conditions)


def is_finished(job: HyperParamJob) -> bool:
    """Return True if the job has ended and was not edited afterwards (more trials, say)."""
    return job.status.phase in FINISHED and job.status.observed_generation >= job.metadata.generation


def _nodes_by_job(cluster: ClusterState) -> Mapping[JobKey, frozenset[str]]:
    """Return, by job, the nodes on whose GPUs its trials are."""
    jobs = {trial.metadata.uid: job_key(trial) for trial in cluster.trials}
    grouped: dict[JobKey, set[str]] = {}
    for node in cluster.nodes:
        for there in (there for gpu in node.status.gpus for there in gpu.trials):
            if there.uid in jobs:
                grouped.setdefault(jobs[there.uid], set()).add(node.metadata.name)
    return {key: frozenset(nodes) for key, nodes in grouped.items()}


def _in_place_methods(nodes: Sequence[GPUNode], nodes_by_job: Collection[str]) -> frozenset[str]:
    """Return the suspension methods that keep a job's trials on their GPUs.

    These are the methods supported by every node with trials of the job, or by every node with GPUs if it has none.
    """
    there = [node for node in nodes if node.metadata.name in nodes_by_job] or [
        node for node in nodes if node.status.gpus
    ]
    supported = [
        (frozenset(node.status.methods) - {CONTAINER_CHECKPOINT})
        | (frozenset({FREEZE}) if node.status.mode == "dedicated" else frozenset())
        for node in there
    ]
    return frozenset.intersection(*supported) if supported else frozenset({FREEZE})


def _jobs(cluster: ClusterState, nodes_by_job: Mapping[JobKey, Collection[str]]) -> Iterable[JobView]:
    """Yield the jobs; a job that cannot be converted is not planned for and does not affect the others."""
    for job in cluster.jobs:
        namespace, name = job.metadata.namespace, job.metadata.name
        if job.metadata.deletion_timestamp is not None:
            continue
        try:
            yield _job(job, _in_place_methods(cluster.nodes, nodes_by_job.get(JobKey(namespace, name), ())))
        except Exception as error:
            with about_item(job):
                log.error("job %s/%s is left unchanged: %r", namespace, name, error)


def _job(job: HyperParamJob, in_place: frozenset[str]) -> JobView:
    return job_view(
        job,
        points=size(job.spec),
        accepted=is_accepted(job),
        finished=is_finished(job),
        suspendable=not in_place.isdisjoint(job.spec.suspension.methods),
    )


def _trial(trial: TrialState, observation: Observation, several: HyperParamJob | None) -> TrialView:
    """Return the planner's view of a trial; `several`: its job, if that has several objectives."""
    values = () if several is None else objective_values(several.spec, measured_of(trial, observation.phase))
    pod = _pod(observation)
    # the planner does not need the ended pod of a finished trial; one that still runs has to be deleted
    over = (
        observation.phase in FINAL
        and observation.pod is not None
        and observation.pod.facts.phase in ("Succeeded", "Failed")
    )
    live = observation.pod is not None and not over
    relocation = _relocation(trial, observation)
    on_its_way = relocation.migration in NOT_RESUMABLE and not relocation.migrated
    return TrialView(
        key=trial_key(trial),
        job=job_key(trial),
        number=trial.spec.number,
        origin=TrialOrigin(
            trial.metadata.created, tuple(trial.spec.parameters.items()), lineage_from(trial.spec.parent)
        ),
        phase=observation.phase,
        curve=trial.points,
        usage=TrialUsage(trial.status.gpu_seconds, trial.switch_seconds),
        pod=pod if live else None,
        ended_pod=None if live else pod,
        attempts=Attempts(
            observation.attempts.number,
            observation.attempts.failures,
            observation.attempts.retry_at,
            checkpoint_step=trial.status.checkpoint.step if trial.status.checkpoint else None,
        ),
        intent=Intent(trial.spec.suspend or on_its_way, trial.spec.pinned, trial.spec.stopped),
        relocation=relocation,
        result=TrialResult(trial.status.finished_at.timestamp() if trial.status.finished_at else None, values),
    )


def _pod(observation: Observation) -> PodView:
    """Return the trial's pod, or what is still known of its ended pod."""
    pod = observation.pod
    return PodView(
        name=pod.name if pod else "",
        node=observation.node,
        gpus=() if observation.phase in FINAL else observation.gpus,
        since=pod.created if pod else 0.0,
        terminating=observation.delays.terminating,
        termination_overdue=observation.delays.overdue,
        stuck=observation.delays.stuck,
        waits_for_capacity=observation.delays.stuck and pod is not None and lacks_capacity(pod.facts),
        workers=() if observation.phase in FINAL else observation.workers,
    )


def _relocation(trial: TrialState, observation: Observation) -> Relocation:
    phase, migrated = migration_of_pod(trial, observation.pod)
    status = trial.status
    return Relocation(
        migration=phase,
        migrated=migrated,
        target=status.migration.target_node if status.migration and phase else None,
        rebalance_count=status.rebalanced.count if status.rebalanced else 0,
        destination=chosen_node(trial, observation),
    )


def _gpus(cluster: ClusterState, node: GPUNode) -> Iterable[GpuView]:
    unresponsive = node.metadata.name in cluster.unresponsive
    run_queues = {gpu.uuid: gpu for gpu in node.spec.gpus}
    for gpu in node.status.gpus:
        holder, slots = gpu.holder, max(0, gpu.slots - len(gpu.other_pods))
        yield GpuView(
            node=node.metadata.name,
            uuid=gpu.uuid,
            # an unresponsive agent cannot start anything: its last report may be old
            health="Unknown" if unresponsive else gpu.health,
            slots=slots,
            free_slots=max(0, slots - len(gpu.trials)),
            product=gpu.product,
            holder=TrialKey(holder.namespace, holder.trial, holder.uid) if holder else None,
            # by the operator's clock: the clock of the agent's node may differ
            holder_since=cluster.holder_since.get((node.metadata.name, gpu.uuid), holder.since.timestamp())
            if holder
            else None,
            tenure=cluster.tenures.get((node.metadata.name, gpu.uuid)),
            trials=tuple(TrialKey(t.namespace, t.trial, t.uid) for t in gpu.trials),
            run_queue=_run_queue(node, gpu, run_queues.get(gpu.uuid, GpuRunQueue(uuid=gpu.uuid))),
            memory=GpuMemory(gpu.memory_total, gpu.memory_claimed, gpu.memory_movable),
            availability=Availability(
                draining=node.spec.draining,
                exclusive_pod=gpu.exclusive_pod,
                reserved_for=None if node.status.mode == "dedicated" else (gpu.reservation or "").partition("/")[0],
            ),
            supports_migration=CONTAINER_CHECKPOINT in node.status.methods,
        )


def _run_queue(node: GPUNode, gpu: GpuStatus, run_queue: GpuRunQueue) -> RunQueueView:
    return RunQueueView(
        trials=tuple(TrialKey(e.namespace, e.trial, e.uid) for e in run_queue.run_queue),
        in_effect=gpu.epoch == node.spec.epoch,
        on_hold=frozenset([TrialKey(e.namespace, e.trial, e.uid) for e in run_queue.run_queue if e.on_hold]),
        no_preemption=not run_queue.preempts and node.status.observed_epoch == node.spec.epoch,
    )

"""Carry out the planner's decisions, one API call for each action. Every call may be repeated without harm.

A refused call affects only its action: it is counted, logged with the server's message, and tried again by the next
reconcile. Only a pod that the API server calls invalid is final: the template is wrong, and no retry corrects it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import UnionType

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUNODES, JOBS, PODS, TRIALS, Resource
from podium_core.domain.actions import Action, CreatePod, CreateTrial, DeletePod, EndTrial, Requeue, WriteRunQueues
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.domain.phase import TrialPhase
from podium_core.domain.population import Lineage
from podium_core.objectives.values import measured_of, objective_values
from podium_core.schema.gpunode import GpuNodeSpec, GpuRunQueue, RunQueueEntry
from podium_core.schema.job import Direction, HyperParamJob
from podium_core.schema.lineage import parent_from
from podium_core.schema.search.settings import learns
from podium_core.schema.trial import pod_name
from podium_operator.act.inherited_checkpoint import Inheritance, ParentLostError, inheritance, is_inheriting
from podium_operator.act.migration import accepts_trials, annotation_changes, migration_of_attempt
from podium_operator.act.pod_groups import PodGroupCreator
from podium_operator.act.pod_manifest import (
    MIGRATE_ANNOTATION,
    PodOrigin,
    PodRules,
    make_pod,
    make_trial,
)
from podium_operator.act.pod_resources import gate_needs_slot, ran_out_of_gpu_memory, smallest_whole_gpu
from podium_operator.act.postponed_actions import FinalReportWait, PostponedError, RefusedAction, refused_again
from podium_operator.act.requeue import INVALID, RequeueActuator
from podium_operator.act.workers import WorkerCreator, all_workers, older_pods_remain, workers_to_end
from podium_operator.act.workloads import WorkloadCreator, WorkloadFailedError
from podium_operator.jobs.events import emit
from podium_operator.log_fields import about_action
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState, job_key
from podium_operator.observe.pod_state import PodState
from podium_operator.observe.trial_state import TrialState
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.observe.worker_pods import workers_of
from podium_searchers.base import TrialResult
from podium_searchers.pbt import propose_child
from podium_searchers.search import propose, warm_start_results

MANAGER = "podium-operator"
PARALLEL_CALLS = 16
LONGEST_MESSAGE = 1024
MIGRATED_GRACE_SECONDS = 1
ECHO_SECONDS = 10.0  # time within which the cache shows what was created
log = logging.getLogger(__name__)


def _superseded(cluster: ClusterState) -> Iterator[PodState]:
    """Yield pods that still run though a later attempt of their trial exists: both would write to one folder."""
    for pods in cluster.pods_by_trial.values():
        for pod in chain.from_iterable(map(workers_of, pods[1:])):
            if pod.facts.phase not in ("Succeeded", "Failed") and not pod.facts.deleting:
                yield pod


def trial_results(job: HyperParamJob, trials: Iterable[TrialState]) -> Sequence[TrialResult]:
    """Return the results by trial number. O(trials)."""
    about = (job.metadata.namespace, job.metadata.name)
    mine = [one for one in trials if (one.metadata.namespace, one.spec.job) == about]
    maximize = job.spec.objective.direction is Direction.MAXIMIZE
    return [
        TrialResult.at(
            one.status.phase,
            one.spec.number,
            one.spec.parameters,
            one.status.last_step,
            one.best(maximize),
            objective_values(job.spec, measured_of(one, one.status.phase)),
        )
        for one in sorted(mine, key=lambda one: one.spec.number)
    ]


class Actuator:
    """Carries out actions, and remembers what the API server refused."""

    def __init__(self, api: Api, caches: WatchCaches, rules: PodRules, metrics: Metrics) -> None:
        self._api = api
        self._caches = caches
        self._rules = rules
        self._metrics = metrics
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)
        self._run_queue_slots = asyncio.Semaphore(PARALLEL_CALLS)  # no GPU waits for pods that are being created
        self._refused: dict[TrialKey, RefusedAction] = {}
        self._requeues = RequeueActuator(api, MANAGER)
        self._workers = WorkerCreator(api, MANAGER)
        self._pod_groups = PodGroupCreator(api, MANAGER)
        self._workloads = WorkloadCreator(api, MANAGER)
        self._refused_migrations: dict[TrialKey, str] = {}
        self._tried: dict[JobKey, list[TrialResult]] = {}  # in this reconcile, for searches that learn
        self._sent: dict[TrialKey, float] = {}  # when, by a monotonic clock
        self._final_reports = FinalReportWait()

    async def write_run_queues(self, cluster: ClusterState, actions: Iterable[Action]) -> None:
        """Carry out what GPUs wait for: the first half of a reconcile.

        Deletions go before the run queues. Otherwise the agent would suspend a trial because its run queue no longer
        names it, and would have to resume it at once for its SIGTERM.
        """
        actions = tuple(actions)
        self._refused = {key: refusal for key, refusal in self._refused.items() if key in cluster.trial_by_key}
        self._requeues.start(cluster)
        self._final_reports.forget(cluster)
        self._refused_migrations = {}
        now = time.monotonic()
        self._sent = {key: at for key, at in self._sent.items() if now < at + ECHO_SECONDS}
        await asyncio.gather(*(self._request_migration(pod, target) for pod, target in annotation_changes(cluster)))
        await asyncio.gather(*(self._delete_superseded(pod) for pod in _superseded(cluster)))
        await self._carry_out_all(cluster, actions, DeletePod | Requeue)
        await asyncio.gather(*(self._requeues.end_worker(pod, reason) for pod, reason in workers_to_end(cluster)))
        await self._carry_out_all(cluster, actions, WriteRunQueues)

    async def write_run_queues_only(self, cluster: ClusterState, actions: Iterable[Action]) -> None:
        """Write run queues between two reconciles, unless a pod has to be deleted or an agent asked first."""
        actions = tuple(actions)
        deletes = any(isinstance(action, DeletePod | Requeue) for action in actions)
        if not (
            deletes or any(_superseded(cluster)) or any(workers_to_end(cluster)) or any(annotation_changes(cluster))
        ):
            await self._carry_out_all(cluster, actions, WriteRunQueues)

    async def create(self, cluster: ClusterState, actions: Sequence[Action]) -> tuple[EndTrial, ...]:
        """Create trials and pods: the second half of a reconcile.

        Return the trials that ended because they cannot be started.
        """
        self._tried = {}
        self._workloads.start({action.trial for action in actions if isinstance(action, CreatePod)})
        ends = await self._carry_out_all(cluster, actions, CreateTrial | CreatePod)
        return tuple(end for end in ends if end is not None)

    async def _carry_out_all(
        self, cluster: ClusterState, actions: Iterable[Action], kinds: UnionType | type
    ) -> list[EndTrial | None]:
        calls = [self._carry_out_guarded(cluster, action) for action in actions if isinstance(action, kinds)]
        return list(await asyncio.gather(*calls))

    def refused(self) -> Mapping[TrialKey, str]:
        """Return the trials whose pod cannot be created for now, with the server's message."""
        return {key: refusal.message for key, refusal in self._refused.items()}

    def undeleted(self) -> Mapping[TrialKey, str]:
        """Return the trials whose requeue was refused in this reconcile, with the server's message."""
        return self._requeues.undeleted()

    def waiting(self) -> Mapping[TrialKey, str]:
        """Return what the JobSets and TrainJobs wait for that have no pods yet."""
        return self._workloads.waiting()

    def in_backoff(self) -> Collection[str]:
        """Return the uids of pods that the API server recently did not delete: their requeue backs off."""
        return self._requeues.in_backoff()

    def refused_migrations(self) -> Mapping[TrialKey, str]:
        """Return the migrating trials whose new pod was just refused for good, with the server's message."""
        return self._refused_migrations

    def sent(self) -> Collection[TrialKey]:
        """Return the migrating trials whose new pod was sent recently and not refused."""
        return self._sent.keys()

    def _start_backoff(self, action: CreatePod, error: ApiError, what: str) -> None:
        lacks = error.not_found or error.conflict  # these say themselves what the cluster lacks, or what is in the way
        text = f"{'The trial cannot start' if lacks else f'The API server refuses the {what} for now'}: {error.message}"
        self._refused[action.trial] = refused_again(self._refused.get(action.trial), text)

    async def _carry_out_guarded(self, cluster: ClusterState, action: Action) -> EndTrial | None:
        with about_action(cluster, action):
            return await self._carry_out_or_log(cluster, action)

    async def _carry_out_or_log(self, cluster: ClusterState, action: Action) -> EndTrial | None:
        kind = type(action).__name__
        try:
            async with self._run_queue_slots if isinstance(action, WriteRunQueues) else self._slots:
                end = await self._carry_out(cluster, action)
        except PostponedError:
            return None
        except ApiError as error:
            self._metrics.failed.labels(kind).inc()
            log.warning("%s was not carried out: %s", action, error)
            if isinstance(action, CreatePod):
                workload = cluster.job_by_key[job_key(cluster.trial_by_key[action.trial])].spec.workload
                self._start_backoff(action, error, "pod" if workload is None else workload.kind)
            return None
        except Exception as error:
            # validation accepted a spec that cannot be carried out: only this trial is affected
            self._metrics.failed.labels(kind).inc()
            log.exception("%s cannot be carried out: %s", action, error)
            return None
        self._metrics.actions.labels(kind).inc()
        return end

    async def _carry_out(self, cluster: ClusterState, action: Action) -> EndTrial | None:
        match action:
            case WriteRunQueues():
                await self._write_run_queues(cluster, action)
            case CreateTrial():
                await self._create_trial(cluster, action)
            case CreatePod():
                return await self._create_pod(cluster, action)
            case DeletePod():
                for pod in all_workers(cluster.latest_pod.get(action.trial)):
                    await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
            case Requeue():
                await self._requeues.carry_out(cluster, action)
        return None

    async def _request_migration(self, pod: PodState, target: str) -> None:
        """Ask the pod's agent to migrate the trial to `target`, or (empty) to cancel that."""
        about = {"uid": pod.uid, "annotations": {MIGRATE_ANNOTATION: target or None}}
        try:
            await self._api.patch(PODS, pod.name, pod.namespace, {"metadata": about}, manager=MANAGER)
        except ApiError as error:
            log.warning("pod %s/%s: its agent could not be asked to migrate it: %s", pod.namespace, pod.name, error)

    async def _delete_superseded(self, pod: PodState) -> None:
        """Delete a pod whose trial has a later attempt."""
        try:
            log.warning("pod %s/%s is deleted: a later attempt of its trial exists", pod.namespace, pod.name)
            # the process of a migrated trial is stopped and has nothing to checkpoint any more
            grace = {"grace_seconds": MIGRATED_GRACE_SECONDS} if pod.migrate_to else {}
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid, **grace)
        except ApiError as error:
            log.warning("pod %s/%s was not deleted: %s", pod.namespace, pod.name, error)

    async def _write_run_queues(self, cluster: ClusterState, action: WriteRunQueues) -> None:
        gpus = [
            GpuRunQueue(
                uuid=uuid,
                run_queue=[
                    RunQueueEntry(
                        namespace=rank.trial.namespace,
                        trial=rank.trial.name,
                        uid=rank.trial.uid,
                        reason=rank.reason,
                        message=rank.message[:LONGEST_MESSAGE],
                        gain=rank.gain,
                        preempts=True if position == 0 and uuid in action.preempting else None,
                        on_hold=True if rank.on_hold else None,
                    )
                    for position, rank in enumerate(ranks)
                ],
            )
            for uuid, ranks in action.gpus
        ]
        spec = GpuNodeSpec(epoch=action.epoch, gpus=gpus)
        # the other fields belong to podium-cli: applying them here would take them away
        body = spec.model_dump(by_alias=True, include={"epoch", "gpus"}, exclude_none=True, mode="json")
        # without the uid, an apply would create a deleted object again
        about = {"name": action.node, "uid": cluster.node_by_name[action.node].metadata.uid}
        try:
            await self._api.apply(GPUNODES, {"metadata": about, "spec": body}, manager=MANAGER)
        except ApiError as error:
            if error.transient:
                self._caches.remember_unconfirmed(action.node, spec.epoch)
            raise
        self._caches.remember_written(action.node, spec)

    async def _create_trial(self, cluster: ClusterState, action: CreateTrial) -> None:
        job = cluster.job_by_key[action.job]
        if learns(job.spec) and action.job not in self._tried:
            self._tried[action.job] = [*warm_start_results(job), *trial_results(job, cluster.trials)]
        tried = self._tried.get(action.job, [])  # other searches ignore the results
        if action.lineage is not None:
            await self._create_child(cluster, job, action.number, action.lineage)
            return
        parameters = propose(job.spec, action.number, tried)
        if parameters is None:
            log.info("job %s: the search space is exhausted before trial %d", job.metadata.name, action.number)
            return
        tried.append(TrialResult(action.number, parameters))  # the next proposals have to differ from this one
        await self._create(TRIALS, make_trial(job, action.number, parameters))

    async def _create_child(self, cluster: ClusterState, job: HyperParamJob, number: int, lineage: Lineage) -> None:
        """Create a child of population-based training. If the parent was deleted now, the next plan decides again."""
        parent = cluster.trial_by_key.get(TrialKey(job.metadata.namespace, lineage.parent, lineage.uid))
        if parent is not None:
            parameters = propose_child(job.spec, number, parent.spec.parameters)
            await self._create(TRIALS, make_trial(job, number, parameters, parent_from(lineage)))

    def _inheritance(self, cluster: ClusterState, job: HyperParamJob, trial: TrialState) -> Inheritance | None:
        """Return the copy of the parent's checkpoint that the next pod makes. Raises ParentLostError."""
        origin = trial.spec.parent
        if origin is None or not is_inheriting(trial):
            return None
        parent = cluster.trial_by_key.get(TrialKey(trial.metadata.namespace, origin.name, origin.uid))
        nodes = {node.metadata.name for node in cluster.nodes}
        return inheritance(job, parent, self._rules.image, nodes)

    async def _create_pod(self, cluster: ClusterState, action: CreatePod) -> EndTrial | None:
        trial = cluster.trial_by_key[action.trial]
        job = cluster.job_by_key[job_key(trial)]
        before = self._refused.get(action.trial)
        if before is not None and before.in_backoff:
            raise PostponedError
        if action.attempt and not self._final_reports.may_continue(cluster, trial, time.monotonic()):
            raise PostponedError
        migration = migration_of_attempt(cluster, trial, action.attempt)
        if migration is not None:
            if action.trial in self._sent or not accepts_trials(cluster, migration.target_node):
                raise PostponedError  # a second pod could be refused because of the first one, for example by a quota
            self._sent[action.trial] = time.monotonic()
        try:
            nodes = {node.metadata.name for node in cluster.nodes}
            latest = cluster.latest_pod.get(action.trial)
            memory_exceeded = ran_out_of_gpu_memory(trial, latest.facts if latest is not None else None)
            alone = smallest_whole_gpu(job.spec.gpus, cluster.nodes) if memory_exceeded else None
            inherited, slot = self._inheritance(cluster, job, trial), gate_needs_slot(cluster.nodes)
            several = job.spec.workload is not None or job.spec.trials.workers > 1
            if several and older_pods_remain(cluster, action.trial, action.attempt):
                raise PostponedError
            if self._workloads.is_paused(action.trial):
                raise PostponedError
            grouped = await self._pod_groups.create(trial, action.attempt, job.spec.trials.workers)
            origin = PodOrigin(nodes, alone, migration, inherited, gate_slot=slot, grouped=grouped)
            make = partial(make_pod, job, trial, action.attempt, self._rules, origin)
            if job.spec.workload is not None:
                make_of = partial(make_pod, trial=trial, attempt=action.attempt, rules=self._rules, origin=origin)
                await self._workloads.create(cluster, trial, action.attempt, make_of)
            elif job.spec.trials.workers > 1:
                await self._workers.create(trial, action.attempt, job.spec.trials.workers, make)
            else:
                await self._create(PODS, make())
        except ParentLostError as error:
            return EndTrial(action.trial, TrialPhase.FAILED, "ParentLost", f"The trial cannot start: {error}.")
        except WorkloadFailedError as error:
            return EndTrial(action.trial, TrialPhase.FAILED, "WorkloadFailed", f"The trial cannot start: {error}")
        except ApiError as error:
            if (
                migration is not None and not error.transient
            ):  # the new pod surely does not exist: the trial continues where it is
                self._refused_migrations[action.trial] = error.message
                del self._sent[action.trial]
                return None
            if error.status != INVALID:
                raise
            name = pod_name(trial.metadata.name, action.attempt)
            what = "pod" if job.spec.workload is None else job.spec.workload.kind
            text = f"The API server refuses {what} {name}: {error.message}"
            await emit(self._api, JOBS, job.metadata, "PodRefused", text, "Warning")
            return EndTrial(action.trial, TrialPhase.FAILED, "PodRefused", f"{text} Correct it in the job.")
        self._refused.pop(action.trial, None)
        return None

    async def _create(self, resource: Resource, manifest: dict[str, object]) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **manifest}
        try:
            await self._api.create(resource, body, manager=MANAGER)
        except ApiError as error:
            if not error.conflict:
                raise  # otherwise it exists already: an earlier reconcile or operator created it

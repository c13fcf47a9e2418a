"""Watch caches of jobs, trials, pods, GPUNodes, heartbeats and GPUQueues, read as one `ClusterState`.

A stale cache could spoil only one thing: the epoch of a run queue. So the run queues that were written are remembered
until the cache shows them. Everything else that the operator does may be done twice without harm: names of trials and
pods are deterministic, and statuses are applied whole.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from podium_cluster import clock
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, GPUQUEUES, JOBS, LEASES, PODS, TRIALS, Selection
from podium_cluster.watch import Key, WatchCache, wait_all_synced
from podium_core.domain.keys import JobKey, TrialKey
from podium_core.placement.node_parser import LEASE_PREFIX
from podium_core.schema.base import ObjectMeta, StatusModel
from podium_core.schema.gpunode import GPUNode, GpuNodeSpec
from podium_core.schema.gpuqueue import GPUQueue
from podium_core.schema.job import HyperParamJob
from podium_core.schema.validation import Refusal, parse_job
from podium_operator.act.pod_manifest import TRIAL_LABEL
from podium_operator.observe.cluster_state import ClusterState, belongs_to_job, job_key, trial_key
from podium_operator.observe.holder_times import HolderTimes, Tenures
from podium_operator.observe.pod_state import PodState, parse_pod
from podium_operator.observe.reservation_state import ReservationPodState, parse_reservation_pod
from podium_operator.observe.trial_state import TrialState, parse_trial
from podium_operator.observe.waiting_pods import UnplacedPodState, parse_unplaced_pod
from podium_operator.observe.worker_pods import with_deleted
from podium_operator.reservations.reservation_pod import RESERVATION_LABEL
from podium_operator.settings import OperatorSettings

# longer than the lag of a healthy watch. After this time the cached run queue is taken to be the one in force, and it
# is written again if needed. Its epoch still follows the last one, because two run queues must never share an epoch
REMEMBER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Written:
    """Run queues that the cache may not show yet; `uid` identifies the GPUNode, since a new one starts at epoch 0."""

    spec: GpuNodeSpec
    uid: str
    at: float


class _LeaseSpec(StatusModel):
    renew_time: datetime | None = None


class _Lease(StatusModel):
    metadata: ObjectMeta
    spec: _LeaseSpec = _LeaseSpec()


class WatchCaches:
    """All watch caches of the operator."""

    def __init__(self, api: Api, settings: OperatorSettings) -> None:
        self._settings = settings
        namespace = settings.watch_namespace
        self._jobs: WatchCache[HyperParamJob] = WatchCache(api, Selection(JOBS, namespace), _job)
        self._trials: WatchCache[TrialState] = WatchCache(
            api, Selection(TRIALS, namespace), partial(parse_trial, registry=settings.checkpoint_registry)
        )
        self._pods: WatchCache[PodState] = WatchCache(api, Selection(PODS, namespace, labels=TRIAL_LABEL), parse_pod)
        self._nodes: WatchCache[GPUNode] = WatchCache(api, Selection(GPUNODES), GPUNode.model_validate)
        self._heartbeats: WatchCache[_Lease] = WatchCache(
            api, Selection(LEASES, settings.namespace), _Lease.model_validate
        )
        self._written: dict[str, _Written] = {}
        # Leases are renewed all the time without any news: they wake no reconcile
        self._reservation_pods: WatchCache[ReservationPodState] = WatchCache(
            api, Selection(PODS, namespace, labels=RESERVATION_LABEL), parse_reservation_pod
        )
        self._queues: WatchCache[GPUQueue] = WatchCache(api, Selection(GPUQUEUES), GPUQueue.model_validate)
        self._waking: tuple[WatchCache[Any], ...] = (
            self._jobs,
            self._trials,
            self._pods,
            self._nodes,
            self._reservation_pods,
            self._queues,
        )
        # of all namespaces: any pod may need a reserved GPU. Most of them are Podium's trials and wake no reconcile
        unplaced = Selection(PODS, fields="spec.nodeName=,status.phase=Pending")
        self._unplaced_pods: WatchCache[UnplacedPodState] | None = (
            WatchCache(api, unplaced, parse_unplaced_pod) if settings.gpu_mode == "reservations" else None
        )
        self._last_heartbeats: dict[str, tuple[datetime | None, float]] = {}
        self._end_observed_at: dict[str, float] = {}
        self._deleted_pods: dict[TrialKey, PodState] = {}
        self._holder_times = HolderTimes()
        self._tenures = Tenures()
        self._pods.follow(self._pod_changed)

    @property
    def all_caches(self) -> tuple[WatchCache[Any], ...]:
        """Every watch cache."""
        unplaced = () if self._unplaced_pods is None else (self._unplaced_pods,)
        return (*self._waking, *unplaced, self._heartbeats)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` for every change except a renewed heartbeat."""
        for cache in self._waking:
            cache.subscribe(listener)

        def unplaced_pod_changed(_: Key, before: UnplacedPodState | None, after: UnplacedPodState | None) -> None:
            if any(one is not None and one.request is not None for one in (before, after)):
                listener()

        if self._unplaced_pods is not None:
            self._unplaced_pods.follow(unplaced_pod_changed)

    def subscribe_nodes(self, listener: Callable[[], None]) -> None:
        """Call `listener` only for changes of GPUNodes: agents' reports and run queues."""
        self._nodes.subscribe(listener)

    async def wait_synced(self) -> None:
        """Wait until every cache has been filled."""
        await wait_all_synced(self.all_caches)

    def not_ready(self) -> str | None:
        """Return what is missing, for /readyz; None if everything is there."""
        return None if all(cache.synced for cache in self.all_caches) else "the caches are not filled yet"

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.all_caches:
                group.create_task(cache.run())

    def remember_written(self, node: str, spec: GpuNodeSpec) -> None:
        """Remember run queues that were just written, until the cache shows them."""
        cached = self._nodes.get("", node)
        self._written[node] = _Written(spec, cached.metadata.uid if cached else "", time.monotonic())

    def remember_unconfirmed(self, node: str, epoch: int) -> None:
        """Remember run queues whose write was not confirmed: they may be written now or later.

        The cache will show whether they were. The next run queues get another epoch, so that a late write is refused
        (the rule `EpochDecreased`) and does not replace them.
        """
        cached = self._nodes.get("", node)
        self._written[node] = _Written(GpuNodeSpec(epoch=epoch), cached.metadata.uid if cached else "", -math.inf)

    def cluster_state(self) -> ClusterState:
        """Return everything that the caches hold now."""
        nodes = tuple(self._with_written(node) for node in self._nodes.values())
        jobs = tuple(self._jobs.values())
        by_key = {JobKey(job.metadata.namespace, job.metadata.name): job for job in jobs}
        now, pods = clock.now(), tuple(self._pods.values())
        self._end_observed_at = {
            pod.uid: self._end_observed_at.get(pod.uid, now) for pod in pods if pod.ended_at is not None
        }
        trials = self._trials.values()
        there = {trial_key(trial) for trial in trials}
        holder_since = self._holder_times.update(nodes, now)
        self._deleted_pods = {key: pod for key, pod in self._deleted_pods.items() if key in there}
        return ClusterState(
            now=now,
            jobs=jobs,
            trials=tuple(trial for trial in trials if belongs_to_job(trial, by_key)),
            pods=pods,
            nodes=nodes,
            unresponsive=frozenset(node.metadata.name for node in nodes if self._is_unresponsive(node.metadata.name)),
            end_observed_at=self._end_observed_at,
            reservations=tuple(self._reservation_pods.values()),
            unplaced_pods=() if self._unplaced_pods is None else tuple(self._unplaced_pods.values()),
            deleted_pods=dict(self._deleted_pods),
            holder_since=holder_since,
            tenures=self._tenures.update(nodes, holder_since, self._job_of, now),
            queues=tuple(q for q in self._queues.values() if q.metadata.deletion_timestamp is None),
        )

    def _job_of(self, key: TrialKey) -> JobKey | None:
        trial = self._trials.get(key.namespace, key.name)
        return job_key(trial) if trial is not None and trial.metadata.uid == key.uid else None

    def _pod_changed(self, _: Key, before: PodState | None, after: PodState | None) -> None:
        """Keep the last state of a deleted pod: a pod may end and be deleted between two reconciles."""
        if before is None or (after is not None and after.uid == before.uid):
            return
        known = self._deleted_pods.get(before.trial_key)
        if known is None or known.attempt <= before.attempt:
            self._deleted_pods[before.trial_key] = with_deleted(known, before)

    def _with_written(self, node: GPUNode) -> GPUNode:
        """Return the node with the run queues that were written last, until the cache shows them."""
        written = self._written.get(node.metadata.name)
        if written is None:
            return node
        if written.uid != node.metadata.uid or node.spec.epoch >= written.spec.epoch:
            del self._written[node.metadata.name]
            return node
        fields: dict[str, Any] = {"epoch": written.spec.epoch}  # fields that a person set meanwhile are kept
        if time.monotonic() - written.at <= REMEMBER_SECONDS:
            fields["gpus"] = written.spec.gpus
        return node.model_copy(update={"spec": node.spec.model_copy(update=fields)})

    def _is_unresponsive(self, node: str) -> bool:
        """Return True if the agent's heartbeat is too old.

        A changed renewTime counts from when the operator observed it, because the clocks of nodes differ. While the
        operator itself hears nothing of the API server, no agent becomes silent.
        """
        reservation = self._heartbeats.get(self._settings.namespace, LEASE_PREFIX + node)
        if reservation is None:
            return True
        now = self._heartbeats.current_at()
        renewed = reservation.spec.renew_time
        before = self._last_heartbeats.get(node)
        if before is None or before[0] != renewed:
            # a heartbeat that was old when it was first observed must not count as fresh
            age = 0.0 if before is not None or renewed is None else max(0.0, clock.now() - renewed.timestamp())
            self._last_heartbeats[node] = (renewed, now - age)
        return now - self._last_heartbeats[node][1] > self._settings.agent_stale_seconds


def _job(payload: Mapping[str, Any]) -> HyperParamJob:
    parsed = parse_job(payload)
    if isinstance(parsed, Refusal):
        # kopf's handler reports that on the object itself; here the job is only left out of planning
        raise ValueError(f"{parsed.field}: {parsed.message}")
    return parsed

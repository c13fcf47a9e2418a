"""Keeps the usage of namespaces and GPUQueues between plans, and writes their statuses and metrics.

The statuses store the usage, so a new operator continues from them. What a queue used since the last write is lost
then: at most FIGURES_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import GPUQUEUES
from podium_core.domain.gpu_queue import QueueShare, QueueUsage, QueueView
from podium_core.domain.keys import JobKey
from podium_core.domain.snapshot import Snapshot
from podium_core.planning.queues.queue_ledger import QueueLedger, faded, with_usage
from podium_core.planning.queues.queue_rules import JobQueue, QueueRules, jobs_of_holders
from podium_core.schema.gpuqueue import GPUQueue, queue_view, stored_usage
from podium_operator.metrics import Metrics
from podium_operator.observe.cluster_state import ClusterState
from podium_operator.queues.queue_status import queue_status, same_state
from podium_operator.report.status_writer import MANAGER, PARALLEL_CALLS

FIGURES_SECONDS = 10.0  # between two writes of a status of which only figures have changed
MAX_UNSEEN_SECONDS = 60.0  # between two plans; a longer time is not counted, since the holders are not known
log = logging.getLogger(__name__)


class QueueController:
    """Usage, statuses and metrics of all GPUQueues, and the GPU-seconds of all namespaces."""

    def __init__(self, api: Api, interval: float, metrics: Metrics) -> None:
        self._api = api
        self._interval = interval
        self._metrics = metrics
        self._meter = GpuMeter(metrics)
        self._ledger = QueueLedger()
        self._written: dict[str, tuple[float, dict[str, Any]]] = {}
        self._slots = asyncio.Semaphore(PARALLEL_CALLS)

    def views(self, cluster: ClusterState) -> tuple[QueueView, ...]:
        """Return the planner's view of the queues, with their usage until now."""
        now = cluster.now
        stored = {queue.metadata.name: _stored(queue, now) for queue in cluster.queues}
        views = with_usage([queue_view(queue) for queue in cluster.queues], stored)
        known = seen(self._ledger, now).only({view.name for view in views}).with_stored(stored, now)
        return with_usage(views, known.usage_at(now))

    def record(self, cluster: ClusterState, snapshot: Snapshot, shares: Sequence[QueueShare]) -> None:
        """Remember what namespaces and queues have from now on."""
        self._meter.record(snapshot)
        stored = {queue.metadata.name: _stored(queue, cluster.now) for queue in cluster.queues}
        known = seen(self._ledger, cluster.now).only({share.queue for share in shares})
        known = known.with_stored(stored, cluster.now)
        self._ledger = known.record(cluster.now, shares)

    async def write(self, cluster: ClusterState, snapshot: Snapshot, shares: Sequence[QueueShare]) -> None:
        """Write the statuses that changed, and set the metrics."""
        rules = QueueRules.of(snapshot)
        usage = self._ledger.usage_at(cluster.now)
        self._metrics.queue.export(shares, usage)
        unfinished = Counter[str]()
        if rules is not None:
            unfinished.update(rules.queue_of[job.key] for job in snapshot.jobs if not job.state.finished)
        by_name = {share.queue: share for share in shares}
        calls = []
        for queue in cluster.queues:
            name = queue.metadata.name
            if name in by_name:
                status = queue_status(
                    queue, by_name[name], usage.get(name, QueueUsage()), unfinished[name], cluster.now
                )
                calls.append(self._apply(queue, status, cluster.now))
        await asyncio.gather(*calls)
        there = {queue.metadata.uid for queue in cluster.queues}
        self._written = {uid: entry for uid, entry in self._written.items() if uid in there}

    async def _apply(self, queue: GPUQueue, status: dict[str, Any], now: float) -> None:
        """Apply the status unless it can wait."""
        meta = queue.metadata
        moment, last = self._written.get(meta.uid, (float("-inf"), {}))
        if {**last, "updatedAt": ""} == {**status, "updatedAt": ""}:
            return
        if now - moment < (max(FIGURES_SECONDS, self._interval) if same_state(last, status) else self._interval):
            return
        about = {"name": meta.name, "resourceVersion": meta.resource_version}
        try:
            async with self._slots:
                await self._api.apply_status(GPUQUEUES, {"metadata": about, "status": status}, manager=MANAGER)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                log.warning("the status of GPUQueue %s was not written: %s", meta.name, error)
            return
        self._written[meta.uid] = (now, status)


def seen(ledger: QueueLedger, now: float) -> QueueLedger:
    """Return the ledger; after a longer time without a plan, without what the queues held in that time."""
    return replace(ledger, rates={}) if now - ledger.at > MAX_UNSEEN_SECONDS else ledger


class GpuMeter:
    """Counter of the GPU-seconds that trials hold GPUs, by namespace and queue. It grows with each plan."""

    def __init__(self, metrics: Metrics) -> None:
        self._counter = metrics.gpu_seconds
        self._at = 0.0
        self._held: Mapping[tuple[str, str], int] = {}

    def record(self, snapshot: Snapshot) -> None:
        """Count until now what was held at the last plan, and remember what is held now."""
        seconds = snapshot.now - self._at
        if 0.0 < seconds <= MAX_UNSEEN_SECONDS:
            for labels, gpus in self._held.items():
                self._counter.labels(*labels).inc(gpus * seconds)
        self._at, self._held = snapshot.now, held_gpus(snapshot)


def held_gpus(snapshot: Snapshot) -> Mapping[tuple[str, str], int]:
    """Return the number of held GPUs by namespace and queue; the queue is empty without GPUQueues."""
    rules = QueueRules.of(snapshot)
    queue_of: Mapping[JobKey, str] = {} if rules is None else rules.queue_of
    return Counter((job.namespace, queue_of.get(job, "")) for job in jobs_of_holders(snapshot, snapshot.gpus))


def job_queues(snapshot: Snapshot) -> Mapping[JobKey, JobQueue]:
    """Return the queue of each job; empty without queues."""
    rules = QueueRules.of(snapshot)
    if rules is None:
        return {}
    return {key: JobQueue(name, rules.obstacles.get(key)) for key, name in rules.queue_of.items()}


def _stored(queue: GPUQueue, now: float) -> QueueUsage:
    """Return the usage in the status of a queue, faded until now."""
    written = queue.status.updated_at
    return faded(stored_usage(queue), 0.0 if written is None else now - written.timestamp())

"""Retries of pods from the back-off queue, once another preemption would find victims. `main` runs the loop.

kube-scheduler treats such a pod as one that waits for resources. It retries the pod when a pod is deleted. A pod that
loses its nomination for a node counts as a pod deleted there (updatePodInSchedulingQueue, kube-scheduler 1.34 and
newer). Older versions ignore it, and the pod waits.

Therefore the extender sets and clears the pod's own nomination. This needs neither another pod nor the right to create
one. It wakes all unschedulable pods of this priority and below.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.component.logs import about
from podium_cluster.resources import PODS
from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import PodName
from podium_extender.requeue.wakeups import MANAGER, RETRY_ANNOTATION, change_event
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.preempt import PreemptVerb

MAX_TRIES = 3
log = logging.getLogger(__name__)


async def retry_preemptions(api: Api, node_cache: NodeCache, preempt_verb: PreemptVerb, metrics: Metrics) -> None:
    """Retry waiting pods after every change of the caches, and when a response may change by itself."""
    queue = preempt_verb.backoff_queue
    changed = change_event(queue, node_cache)
    queue.subscribe(changed.set)
    while True:
        retry_at = queue.retry_at() if node_cache.not_ready() is None else None
        timeout = None if retry_at is None else max(0.0, retry_at - node_cache.clock())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), timeout)
        changed.clear()
        if len(queue) == 0 or node_cache.not_ready() is not None:
            continue
        due = queue.pop_due(node_cache.views(), node_cache.clock(), preempt_verb.retry_outcome)
        if due is not None and not await _requeue(api, due[0].pod, due[1], metrics):
            queue.retry_later(due[0], node_cache.clock())


async def _requeue(api: Api, pod: PodName, node: str, metrics: Metrics) -> bool:
    """Have kube-scheduler retry the pod; return False if that failed and may succeed later."""
    with about(namespace=pod[0], pod=pod[1], node=node):
        return await _requeue_or_log(api, pod, node, metrics)


async def _requeue_or_log(api: Api, pod: PodName, node: str, metrics: Metrics) -> bool:
    try:
        for _ in range(MAX_TRIES):
            try:
                await toggle_nomination(api, pod, node)
            except ApiError as error:
                if not error.conflict:
                    raise
                continue  # the scheduler wrote a condition in the meantime
            metrics.wakeups.labels("woken").inc()
            return True
        log.info("pod %s/%s changed %d times during its retry; retrying later", *pod, MAX_TRIES)
        return False
    except ApiError as error:
        metrics.wakeups.labels("failed").inc()
        log.warning("pod %s/%s could not be retried: %s", *pod, error)
        return not error.transient


async def toggle_nomination(api: Api, pod: PodName, node: str) -> None:
    """Set and clear the pod's nomination for `node`.

    Each write names the version that was read. A nomination by the scheduler itself, for which victims are terminating,
    remains unchanged. A nomination that an earlier try set is cleared. The annotation names the node only between the
    two writes, because the scheduler often nominates the same node next.
    """
    namespace, name = pod
    current = await api.get(PODS, name, namespace)
    meta = current["metadata"]
    nominated = current.get("status", {}).get("nominatedNodeName", "")
    annotation = meta.get("annotations", {}).get(RETRY_ANNOTATION, "")
    if current.get("spec", {}).get("nodeName") or (nominated and not annotation.endswith(f" {nominated}")):
        return
    at = f"{clock.now():.3f}"
    if not nominated:
        current = await api.patch(
            PODS, name, namespace, _patch(current, f"{at} {node}", node), manager=MANAGER, subresource="status"
        )
    await api.patch(PODS, name, namespace, _patch(current, at, None), manager=MANAGER, subresource="status")


def _patch(pod: Mapping[str, Any], annotation: str, nominated: str | None) -> dict[str, Any]:
    version = pod["metadata"]["resourceVersion"]
    meta = {"resourceVersion": version, "annotations": {RETRY_ANNOTATION: annotation}}
    return {"metadata": meta, "status": {"nominatedNodeName": nominated}}

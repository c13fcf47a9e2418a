"""Has kube-scheduler look again at pods that it set aside after `preempt`, once another try would find room (`parked`).
Run by `main` beside the verbs.

To the scheduler such a pod waits for resources: it comes back when a pod is deleted, and a pod that was nominated for a
node and is not any more counts as one deleted there (updatePodInSchedulingQueue, kube-scheduler 1.34 and newer; before
that nothing happens, and the pod waits as ever). So the pod's own nomination is set and taken back: a placeholder that
takes no pod and no right to make any. It wakes all pods that the scheduler set aside of this priority and below.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

from podium_cluster.client import Api, ApiError
from podium_cluster.resources import PODS
from podium_extender.metrics import Metrics
from podium_extender.requeue.unschedulable_queue import PodName
from podium_extender.requeue.wakeups import MANAGER, RETRY_ANNOTATION, change_event
from podium_extender.state.node_cache import NodeCache
from podium_extender.verbs.preempt import PreemptVerb

TRIES = 3
log = logging.getLogger(__name__)


async def retry_preemptions(api: Api, node_cache: NodeCache, preempt_verb: PreemptVerb, metrics: Metrics) -> None:
    """After every change of the caches while a pod is set aside, and when an answer may change by itself."""
    backoff_queue = preempt_verb.backoff_queue
    changed = change_event(backoff_queue, node_cache)
    backoff_queue.subscribe(changed.set)
    while True:
        again = backoff_queue.retry_at() if node_cache.not_ready() is None else None
        limit = None if again is None else max(0.0, again - node_cache.clock())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), limit)
        changed.clear()
        if len(backoff_queue) == 0 or node_cache.not_ready() is not None:
            continue
        due = backoff_queue.due(node_cache.views(), node_cache.clock(), preempt_verb.retry_outcome)
        if due is not None and not await _nudge(api, due[0].pod, due[1], metrics):
            backoff_queue.retry_later(due[0], node_cache.clock())


async def _nudge(api: Api, pod: PodName, node: str, metrics: Metrics) -> bool:
    """False: another try may succeed."""
    try:
        for _ in range(TRIES):
            try:
                await toggle_nomination(api, pod, node)
            except ApiError as error:
                if not error.conflict:
                    raise
                continue  # the scheduler wrote a condition between
            metrics.wakeups.labels("woken").inc()
            return True
        log.info("pod %s/%s: it changes all the time; again later", *pod)
        return False
    except ApiError as error:
        metrics.wakeups.labels("failed").inc()
        log.warning("pod %s/%s could not be woken: %s", *pod, error)
        return not error.transient


async def toggle_nomination(api: Api, pod: PodName, node: str) -> None:
    """Each write is of the version that was read: a nomination of the scheduler's own, for which victims are leaving,
    is not touched. What an earlier try set is taken back. Until then the annotation names the node, and not after: the
    scheduler often nominates the very same next.
    """
    namespace, name = pod
    found = await api.get(PODS, name, namespace)
    meta = found["metadata"]
    nominated = found.get("status", {}).get("nominatedNodeName", "")
    told = meta.get("annotations", {}).get(RETRY_ANNOTATION, "")
    if found["spec"].get("nodeName") or (nominated and not told.endswith(f" {nominated}")):
        return
    at = f"{time.time():.3f}"
    if not nominated:
        found = await api.patch(
            PODS, name, namespace, _patch(found, f"{at} {node}", node), manager=MANAGER, subresource="status"
        )
    await api.patch(PODS, name, namespace, _patch(found, at, None), manager=MANAGER, subresource="status")


def _patch(found: Mapping[str, Any], told: str, nominated: str | None) -> dict[str, Any]:
    meta = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {RETRY_ANNOTATION: told}}
    return {"metadata": meta, "status": {"nominatedNodeName": nominated}}

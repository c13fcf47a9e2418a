"""Wake-ups of unschedulable pods that a node can run now. `main` runs the loop.

An annotation on the pod makes kube-scheduler retry this pod, and no other, within milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sized

from podium_cluster import clock
from podium_cluster.client import Api, ApiError
from podium_cluster.component.logs import about
from podium_cluster.resources import PODS
from podium_core.placement.node_parser import PlacedPod
from podium_core.placement.victims import Preemptor
from podium_extender.metrics import Metrics
from podium_extender.requeue.backoff_queue import BackoffPod, BackoffQueue
from podium_extender.requeue.unschedulable_queue import PodName, UnschedulableQueue
from podium_extender.state.node_cache import NodeCache

RETRY_ANNOTATION = "podium.dev/retry-scheduling"
MANAGER = "podium-extender"
log = logging.getLogger(__name__)


def follow_pods(
    node_cache: NodeCache, unschedulable: UnschedulableQueue, backoff_queue: BackoffQueue | None = None
) -> None:
    """Remove pods from the queues that were bound or deleted, and add those that wait at the start.

    An earlier extender may have refused a pod that waits at the start, by unknown nodes, or have found no victims for
    it. Trials are never added to the back-off queue, because they have no victims.
    """
    pods = node_cache.caches["pods"]

    def pod_changed(key: PodName, before: PlacedPod | None, after: PlacedPod | None) -> None:
        if after is None or not after.pending:
            unschedulable.remove(key)
            if backoff_queue is not None:
                backoff_queue.remove(key)
        elif after.need.gpus > 0 and not pods.synced:
            unschedulable.add(key, after.need, None, node_cache.clock())
            if backoff_queue is not None and after.trial is None:
                preemptor, now = Preemptor(after.need, after.priority), node_cache.clock()
                backoff_queue.add(BackoffPod(key, after.uid, preemptor, {}, now, now))

    pods.follow(pod_changed)


def change_event(queue: Sized, node_cache: NodeCache) -> asyncio.Event:
    """Return an event that every change of the caches sets while the queue is not empty."""
    changed = asyncio.Event()

    def on_change() -> None:
        if len(queue) > 0:  # the queue is empty most of the time, and each binding is a change
            changed.set()

    for cache in node_cache.caches.values():
        cache.subscribe(on_change)
    return changed


async def wake_pods(api: Api, node_cache: NodeCache, queue: UnschedulableQueue, metrics: Metrics) -> None:
    """Wake the due pods after every change of the caches, and when the token bucket allows more."""
    changed = change_event(queue, node_cache)
    while True:
        retry_at = queue.retry_at(node_cache.clock())
        timeout = None if retry_at is None else max(0.0, retry_at - node_cache.clock())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), timeout)
        changed.clear()
        if len(queue) > 0 and node_cache.not_ready() is None:
            due = queue.pop_due(node_cache.views(), node_cache.clock())
            results = await asyncio.gather(*(_wake(api, pod.pod, metrics) for pod in due))
            for pod, done in zip(due, results, strict=True):
                if not done:
                    queue.retry_later(pod, node_cache.clock())


async def _wake(api: Api, pod: PodName, metrics: Metrics) -> bool:
    """Write the annotation; return False if that failed and may succeed later.

    The write uses the pod's status, which kube-scheduler may write anyway. The right to patch pods themselves is the
    right to change the image of any pod of the cluster.
    """
    namespace, name = pod
    patch = {"metadata": {"annotations": {RETRY_ANNOTATION: f"{clock.now():.3f}"}}}
    try:
        await api.patch(PODS, name, namespace, patch, manager=MANAGER, subresource="status")
    except ApiError as error:
        metrics.wakeups.labels("failed").inc()
        with about(namespace=namespace, pod=name):
            log.warning("pod %s/%s could not be woken: %s", namespace, name, error)
        return not (error.transient or error.conflict)
    metrics.wakeups.labels("woken").inc()
    return True

"""`podium-extender`: the process that runs the watches and serves the verbs on loopback, with health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import uvicorn
from fastapi import FastAPI

from podium_cluster import clock
from podium_cluster.client import Api, connect
from podium_cluster.component import health
from podium_cluster.component.garbage_collection import tune_garbage_collector
from podium_cluster.component.startup import read_settings
from podium_cluster.resources import GPUNODES, LEASES, NODES, PODS, TRIALS, Selection
from podium_cluster.watch import WatchCache, wait_all_synced
from podium_core.placement.free_cpus import cpu_request_of, node_cpus_of, others_selector
from podium_core.placement.policies.registry import placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.requeue.preemption_retries import retry_preemptions
from podium_extender.requeue.unschedulable_queue import TokenBucket, UnschedulableQueue
from podium_extender.requeue.wakeups import follow_pods, wake_pods
from podium_extender.server.bounded_protocol import BoundedProtocol
from podium_extender.server.limits import ConcurrencyLimit
from podium_extender.settings import ExtenderSettings
from podium_extender.state.assumptions import AssumedPods
from podium_extender.state.free_cpus import FreeCpus
from podium_extender.state.node_cache import Heartbeats, NodeCache, Watches, parse_gpunode, parse_pod
from podium_extender.state.soft_preferences import SoftPreferences
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import NodeEvaluator
from podium_extender.verbs.events import EventRecorder
from podium_extender.verbs.handlers import Verbs
from podium_extender.verbs.preempt import PreemptVerb
from podium_extender.verbs.preemption_limits import PreemptionLimits

log = logging.getLogger(__name__)


def watch_cluster(api: Api, settings: ExtenderSettings, assumed: AssumedPods) -> NodeCache:
    """Create the caches that the responses are computed from; the caller runs them."""
    heartbeats = Heartbeats(clock.now)
    others = others_selector(settings.scheduler_name)
    own = WatchCache(api, Selection(PODS, fields=f"spec.schedulerName={settings.scheduler_name}"), parse_pod)
    nodes = WatchCache(api, Selection(NODES), node_cpus_of)
    other = WatchCache(api, Selection(PODS, fields=others), cpu_request_of) if settings.watch_all_pods else None
    watches = Watches(
        WatchCache(api, Selection(GPUNODES), parse_gpunode),
        own,
        WatchCache(api, Selection(LEASES, namespace=settings.namespace), heartbeats.parse),
        WatchCache(api, Selection(TRIALS), parse_trial),
    )
    return NodeCache(
        watches,
        namespace=settings.namespace,
        clock=clock.now,
        assumed=assumed,
        free_cpus=None if other is None else FreeCpus(nodes, other),
        preferences=SoftPreferences(nodes, [own] if other is None else [own, other]),
    )


async def serve(settings: ExtenderSettings) -> None:
    """Run until SIGTERM or SIGINT (uvicorn handles them); raise the error of a task that ends by itself."""
    metrics = Metrics()
    async with connect(settings) as api:
        assumed = AssumedPods(settings.assume_seconds, metrics.assumption_ended)
        node_cache = watch_cluster(api, settings, assumed)
        caches = {**node_cache.caches, **node_cache.optional_caches}
        metrics.watch(caches)
        metrics.assumed.set_function(lambda: len(assumed))
        budget = TokenBucket(settings.wakes_per_second, settings.wakes_at_once)
        unschedulable = UnschedulableQueue(settings.stale_seconds, budget)
        events = EventRecorder()
        limits = PreemptionLimits(settings.evictions_per_minute, settings.minimum_run_seconds)
        preempt_verb = PreemptVerb(node_cache, metrics, settings.stale_seconds, limits, events)
        evaluator = NodeEvaluator(placement_policy(settings.placement), settings.stale_seconds)
        verbs = Verbs(node_cache, metrics, evaluator, preempt_verb, unschedulable, settings.scored_nodes)
        app = create_app(verbs, metrics, ConcurrencyLimit(settings.max_requests), settings.body_limit)
        server = uvicorn.Server(_uvicorn_config(app, settings))
        follow_pods(node_cache, unschedulable, preempt_verb.backoff_queue)
        tasks = [asyncio.create_task(cache.run()) for cache in caches.values()]
        tasks.append(asyncio.create_task(wake_pods(api, node_cache, unschedulable, metrics)))
        tasks.append(asyncio.create_task(retry_preemptions(api, node_cache, preempt_verb, metrics)))
        tasks.append(asyncio.create_task(events.run(api)))
        for task in tasks:
            task.add_done_callback(lambda _: setattr(server, "should_exit", True))
        preparing = asyncio.create_task(prepare_when_synced(node_cache, node_cache.caches.values(), caches.values()))
        async with health.serve(
            settings.http_host,
            settings.http_port,
            alive=lambda: None,
            ready=node_cache.not_ready,
            registry=metrics.registry,
        ) as port:
            log.info("verbs on %s:%d, health on port %d", settings.extender_host, settings.extender_port, port)
            await server.serve()
        await _stop([*tasks, preparing])


def _uvicorn_config(app: FastAPI, settings: ExtenderSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        proxy_headers=False,
        host=settings.extender_host,
        port=settings.extender_port,
        log_config=None,
        access_log=False,
        server_header=False,
        # the scheduler keeps its connections open; closing an idle one would look like a failed call
        timeout_keep_alive=600,
        timeout_graceful_shutdown=5,
    )


async def prepare_when_synced(node_cache: NodeCache, *groups: Iterable[WatchCache[Any]]) -> None:
    """Create the views of all nodes before the first request, after each group of caches is synced.

    At 5,000 nodes this is the longer part of a response. The groups are awaited one after the other, because the last
    one is never synced if the right to watch is missing.
    """
    for caches in groups:
        await wait_all_synced(caches)
        node_cache.views()
        tune_garbage_collector()


async def _stop(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks, and raise the error of one that ended by itself."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the settings and run the extender."""
    settings = read_settings(
        ExtenderSettings,
        "podium-extender",
        "Podium's scheduler extender: filter, prioritize and preempt for kube-scheduler.",
        arguments,
    )
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main()

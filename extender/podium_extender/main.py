"""`podium-extender`: the process. Runs the watches, serves the verbs on loopback, health and metrics beside them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

import uvicorn

from podium_cluster import health
from podium_cluster.client import Api, connect
from podium_cluster.garbage_collection import settle_memory
from podium_cluster.resources import GPUNODES, LEASES, NODES, PODS, TRIALS
from podium_cluster.startup import read_settings
from podium_cluster.watch import WatchCache, wait_all_synced
from podium_core.placement.free_cpus import cpu_request_of, node_cpus_of, others_selector
from podium_core.placement.registry import placement_policy
from podium_extender.app import create_app
from podium_extender.metrics import Metrics
from podium_extender.requeue.preemption_retries import nudge_for_ever
from podium_extender.requeue.unschedulable_queue import Budget, WaitingRoom
from podium_extender.requeue.wakeups import follow_pods, wake_for_ever
from podium_extender.server.endpoint import Front
from podium_extender.server.fast_path import lane
from podium_extender.settings import ExtenderSettings
from podium_extender.state.assumptions import Assumed
from podium_extender.state.free_cpus import Room
from podium_extender.state.node_cache import Heartbeats, Telemetry, parse_gpunode, parse_pod
from podium_extender.state.soft_preferences import Preferences
from podium_extender.state.trials import parse_trial
from podium_extender.verbs.decisions import Judge
from podium_extender.verbs.events import Announcements
from podium_extender.verbs.preempt import Evictor
from podium_extender.verbs.preemption_limits import Limits

log = logging.getLogger(__name__)
PAGE = 500  # objects listed at a time, of those that a cluster may have very many of


def watch_cluster(api: Api, settings: ExtenderSettings, assumed: Assumed) -> Telemetry:
    """The caches that the answers come from; their `run` is up to the caller."""
    beats = Heartbeats(time.time)
    others = others_selector(settings.scheduler_name)
    own = WatchCache(api, PODS, parse_pod, fields=f"spec.schedulerName={settings.scheduler_name}")
    nodes = WatchCache(api, NODES, node_cpus_of, page=PAGE)
    other = WatchCache(api, PODS, cpu_request_of, fields=others, page=PAGE) if settings.watch_all_pods else None
    return Telemetry(
        WatchCache(api, GPUNODES, parse_gpunode, page=PAGE),
        own,
        WatchCache(api, LEASES, beats.parse, namespace=settings.namespace),
        WatchCache(api, TRIALS, parse_trial),
        namespace=settings.namespace,
        clock=time.time,
        assumed=assumed,
        room=None if other is None else Room(nodes, other),
        preferences=Preferences(nodes, [own] if other is None else [own, other]),
    )


async def serve(settings: ExtenderSettings) -> None:
    """Run until SIGTERM or SIGINT (uvicorn's own handlers); a watch that dies takes the process with it."""
    metrics = Metrics()
    async with connect(settings) as api:
        assumed = Assumed(settings.assume_seconds, metrics.assumption_ended)
        telemetry = watch_cluster(api, settings, assumed)
        judge = Judge(placement_policy(settings.placement), settings.stale_seconds)
        caches = {**telemetry.caches, **telemetry.more_caches}
        metrics.watch(caches)
        metrics.assumed.set_function(lambda: len(assumed))
        waiting = WaitingRoom(settings.stale_seconds, Budget(settings.wakes_per_second, settings.wakes_at_once))
        announced = Announcements()
        limits = Limits(settings.evictions_per_minute, settings.minimum_run_seconds)
        evictor = Evictor(telemetry, metrics, settings.stale_seconds, limits, announced)
        front = Front(
            telemetry,
            metrics,
            judge,
            body_limit=settings.body_limit,
            max_requests=settings.max_requests,
            evictor=evictor,
            waiting=waiting,
            scored=settings.scored_nodes,
        )
        config = uvicorn.Config(
            create_app(front),
            http=lane(front),
            ws="none",
            proxy_headers=False,
            host=settings.extender_host,
            port=settings.extender_port,
            log_config=None,
            access_log=False,
            server_header=False,
            # the scheduler keeps its connections; closing them under it would look like a failed call
            timeout_keep_alive=600,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)
        follow_pods(telemetry, waiting, evictor.parking)
        watches = [asyncio.create_task(cache.run()) for cache in caches.values()]
        watches.append(asyncio.create_task(wake_for_ever(api, telemetry, waiting, metrics)))
        watches.append(asyncio.create_task(nudge_for_ever(api, telemetry, evictor, metrics)))
        watches.append(asyncio.create_task(announced.write_for_ever(api)))
        for watch in watches:
            watch.add_done_callback(lambda _: setattr(server, "should_exit", True))
        settling = asyncio.create_task(when_warm(telemetry, telemetry.caches.values(), caches.values()))
        async with health.serve(
            settings.http_host,
            settings.http_port,
            alive=lambda: None,
            ready=telemetry.cold,
            registry=metrics.registry,
        ) as port:
            log.info("verbs on %s:%d, health on port %d", settings.extender_host, settings.extender_port, port)
            await server.serve()
        await _stop([*watches, settling])


async def when_warm(telemetry: Telemetry, *groups: Iterable[WatchCache[Any]]) -> None:
    """One after the other: the last may never be, where the right to watch is missing. What is then known of all nodes
    is put together before the first question: the longer part of an answer at 5,000 nodes.
    """
    for caches in groups:
        await wait_all_synced(caches)
        telemetry.views()
        settle_memory()


async def _stop(watches: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the watches; the error of one that ended by itself is raised."""
    for watch in watches:
        watch.cancel()
    for watch in watches:
        with contextlib.suppress(asyncio.CancelledError):
            await watch


def main(arguments: Sequence[str] | None = None) -> None:
    settings = read_settings(
        ExtenderSettings,
        "podium-extender",
        "Podium's scheduler extender: filter, prioritize and preempt for kube-scheduler.",
        arguments,
    )
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main()

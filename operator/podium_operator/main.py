"""`podium-operator`: the process. kopf accepts jobs, the reconciler does the rest."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import kopf

from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, connect
from podium_cluster.component import health
from podium_cluster.component.startup import read_settings
from podium_cluster.leader import REQUEST_SECONDS, RETRY_SECONDS, Election
from podium_operator.act.actuator import Actuator
from podium_operator.act.pod_manifest import PodRules
from podium_operator.act.rebalancing import Rebalancer
from podium_operator.cleanup.deleted_jobs import Cleanup
from podium_operator.jobs import handlers
from podium_operator.metrics import Metrics
from podium_operator.observe.final_log_read import FinalLogReader
from podium_operator.observe.watch_caches import WatchCaches
from podium_operator.queues.controller import QueueController
from podium_operator.reconciler import Actors, Reconciler
from podium_operator.report.status_writer import StatusWriter
from podium_operator.reservations.controller import ReservationController
from podium_operator.settings import OperatorSettings

STUCK_SECONDS = 120.0
log = logging.getLogger(__name__)


async def serve(settings: OperatorSettings) -> None:
    """Run until SIGTERM or SIGINT; if one part ends by itself, the process ends, too.

    One replica leads and does everything. The others wait, and serve only their health.
    """
    metrics = Metrics()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    quick = settings.model_copy(update={"request_timeout": min(settings.request_timeout, RETRY_SECONDS)})
    async with connect(settings) as api, connect(quick) as election_api:
        election = Election(election_api, "podium-operator", settings.namespace, settings.identity)
        caches, reconciler = _wire(api, settings, metrics)
        metrics.leader.set_function(lambda: float(election.leads()))

        def alive() -> str | None:
            idle = time.monotonic() - reconciler.last
            return f"no reconcile for {idle:.0f} s" if caches.not_ready() is None and idle > STUCK_SECONDS else None

        def ready() -> str | None:
            return None if election.standing_by else caches.not_ready()

        async with health.serve(
            settings.http_host, settings.http_port, alive=alive, ready=ready, registry=metrics.registry
        ) as port:
            log.info("health and metrics on port %d", port)
            if not await _leads(election, stop):
                return
            api.fence(election.leads, REQUEST_SECONDS)
            try:
                parts = {
                    "watch caches": caches.run(),
                    "reconciler": reconciler.run(),
                    "leader election": election.hold(),
                }
                await _lead(api, settings, stop, parts)
            finally:
                await election.release()


def _wire(api: Api, settings: OperatorSettings, metrics: Metrics) -> tuple[WatchCaches, Reconciler]:
    caches = WatchCaches(api, settings)
    rules = PodRules(
        settings.scheduler_name,
        settings.resource,
        settings.trial_priority_class,
        settings.image,
        settings.trial_runtime_class,
        settings.limit_gpu_memory,
    )
    actuator = Actuator(api, caches, rules, metrics)
    cleanup = Cleanup(api, caches.cluster_state, settings.image)
    actors = Actors(
        actuator,
        cleanup,
        ReservationController(api, settings, metrics),
        Rebalancer(api, settings),
        QueueController(api, settings.status_seconds, metrics),
    )
    status_writer = StatusWriter(api, settings.status_seconds, metrics)
    return caches, Reconciler(settings, caches, FinalLogReader(api), actors, status_writer, metrics)


async def _leads(election: Election, stop: asyncio.Event) -> bool:
    """Wait until this replica leads; return False if it has to stop before that."""
    acquire, stopped = asyncio.create_task(election.acquire()), asyncio.create_task(stop.wait())
    done, waiting = await asyncio.wait([acquire, stopped], return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    if acquire in done:
        acquire.result()
    return acquire in done and stopped not in done


async def _lead(
    api: Api, settings: OperatorSettings, stop: asyncio.Event, parts: Mapping[str, Coroutine[Any, Any, None]]
) -> None:
    """Run the parts and kopf until a signal."""
    reserved_gpus = settings.gpu_mode == "reservations"
    registry = handlers.register(api, removes_folders=settings.image is not None, reserved_gpus=reserved_gpus)
    tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
    kopf_task = asyncio.create_task(_kopf(registry, settings, stop), name="kopf")
    stopped = asyncio.create_task(stop.wait(), name="signal")
    done, _ = await asyncio.wait([*tasks, kopf_task, stopped], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    for task in (*tasks, stopped):
        task.cancel()
    await asyncio.gather(*tasks, kopf_task, stopped, return_exceptions=True)
    for ended in done:
        # kopf handles the signals itself and ends well on one: that ends the operator, too
        error = None if ended is stopped else ended.exception()
        if error is not None or ended in tasks:
            raise RuntimeError(f"{ended.get_name()} ended by itself") from error


async def _kopf(registry: kopf.OperatorRegistry, settings: OperatorSettings, stop: asyncio.Event) -> None:
    where: dict[str, Any] = {"clusterwide": True}
    if settings.watch_namespace:
        where = {"namespaces": [settings.watch_namespace]}
    # without an identity kopf asks the system for a user name, which uid 65532 of the image does not have
    where["identity"] = "podium-operator"
    backoff = Backoff(longest=60.0)
    while not stop.is_set():
        try:
            await kopf.operator(
                registry=registry, settings=handlers.settings(), standalone=True, stop_flag=stop, **where
            )
            return
        except Exception:
            # kopf ends when the API server refuses its requests for a minute; the searches that run do not need it
            pause = backoff.pause()
            log.exception("kopf ended; it starts again in %.0f s, and new jobs wait until then", pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the settings, check them, and serve until a signal."""
    settings = read_settings(
        OperatorSettings,
        "podium-operator",
        "Podium's operator: accepts searches, plans them and carries out the plan.",
        arguments,
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    if settings.context is not None:
        sys.exit(
            "podium-operator: PODIUM_CONTEXT is not supported: name a kubeconfig whose current-context is that context"
        )
    if settings.gpu_mode == "reservations" and settings.image is None:
        sys.exit("podium-operator: PODIUM_GPU_MODE=reservations needs PODIUM_IMAGE, the image of the reservation pods")
    if settings.kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(settings.kubeconfig)  # kopf logs in by itself
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main()

"""Puts the agent together and runs its tasks; a task that fails ends the process, and the kubelet starts it anew.

Ending changes nothing on the node: what is frozen stays frozen, gates stay shut, and the next agent goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from podium import __version__
from podium.placement.needs import EXCLUSIVE_RESOURCE
from podium.placement.readings import reading
from podium.schema.gpunode import GPUNode
from podium_agent import pods as trial_pods
from podium_agent.admission import Admission
from podium_agent.book import Book
from podium_agent.carrier import Carrier
from podium_agent.conductor import Conductor
from podium_agent.deviceplugin.leased import LeasedShares
from podium_agent.deviceplugin.plugin import DevicePlugin
from podium_agent.deviceplugin.servicer import Servicer
from podium_agent.deviceplugin.whole import WholeGpus
from podium_agent.exclusive import UrgentPod
from podium_agent.gate import Gates
from podium_agent.guests import Guests
from podium_agent.leased import Placeholder
from podium_agent.leases import LEASE_LABEL, Leases, parse_placeholder
from podium_agent.lock import NodeLock
from podium_agent.metrics import Metrics
from podium_agent.moving.departures import Departures
from podium_agent.moving.leave import Tools
from podium_agent.moving.refusal import MoveError
from podium_agent.moving.settings import MoveSettings
from podium_agent.observer import Observer
from podium_agent.parking import Parker
from podium_agent.passages import Passages
from podium_agent.pods import TrialPod
from podium_agent.reporter import MANAGER, Reporter
from podium_agent.reservations import Reservations, parse_pod
from podium_agent.settings import AgentSettings
from podium_agent.share import install
from podium_agent.suspension.opening import Opening
from podium_agent.suspension.processes import CudaProcesses
from podium_agent.telemetry import Telemetry
from podium_agent.writer import TrialWriter
from podium_cluster.client import Api, connect
from podium_cluster.health import serve
from podium_cluster.leases import beat
from podium_cluster.resources import GPUNODES, PODS
from podium_cluster.watch import WatchCache

log = logging.getLogger(__name__)
STUCK_SECONDS = 30.0


async def run(settings: AgentSettings) -> None:
    """Until SIGTERM or SIGINT."""
    work = asyncio.ensure_future(_work(settings))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("ending; what is suspended stays suspended until the next agent")


@dataclass
class Health:
    """What the probes ask; it can be told more once the agent does its work."""

    alive: Callable[[], str | None]
    ready: Callable[[], str | None]


async def _work(settings: AgentSettings) -> None:
    metrics, lock = Metrics(), NodeLock(settings.lock_file)
    health = Health(lambda: None, lambda: lock.trouble)
    async with (
        serve(
            settings.http_host,
            settings.http_port,
            alive=lambda: health.alive(),
            ready=lambda: health.ready(),
            registry=metrics.registry,
        ),
        lock.held(),
    ):
        install(settings.share_dir, settings.helper)
        await _serve_node(settings, metrics, health)


async def _serve_node(settings: AgentSettings, metrics: Metrics, health: Health) -> None:
    opening = Opening(settings)
    await opening.look()
    methods = opening.methods
    telemetry = Telemetry(settings.telemetry_seconds, settings.telemetry_timeout)
    node = settings.node_name
    async with connect(settings) as api, asyncio.TaskGroup() as tasks:
        pods: WatchCache[TrialPod] = WatchCache(
            api, PODS, trial_pods.parse, labels=trial_pods.TRIAL_LABEL, fields=f"spec.nodeName={node}"
        )
        everyone: WatchCache[UrgentPod] = WatchCache(api, PODS, parse_pod, fields=f"spec.nodeName={node}")
        nodes: WatchCache[GPUNode] = WatchCache(api, GPUNODES, GPUNode.model_validate, fields=f"metadata.name={node}")

        def open_book(pod: TrialPod) -> Book:
            book = Book(pod, node)
            tasks.create_task(TrialWriter(settings, api, metrics, book).run(), name=f"trial {pod.name}")
            return book

        reservations, guests = Reservations(settings, everyone), Guests(settings, everyone)
        placeholders: WatchCache[Placeholder] = WatchCache(
            api, PODS, parse_placeholder, labels=LEASE_LABEL, fields=f"spec.nodeName={node}"
        )
        leases = Leases(settings, placeholders, everyone) if settings.gpu_source == "leases" else None
        conductor = Conductor(
            settings,
            pods,
            nodes,
            metrics,
            open_book,
            lambda: reservations.taken,
            lambda: None if leases is None else leases.held,
        )
        conductor.subscribe(reservations.heed)
        reservations.changed = conductor.wake
        if leases is None:
            shares = Servicer(settings, telemetry, lambda: reservations.taken, guests.asker)
            whole = WholeGpus(settings, telemetry, conductor, reservations)
            plugins = [
                DevicePlugin(settings, telemetry, settings.resource, shares),
                DevicePlugin(settings, telemetry, EXCLUSIVE_RESOURCE, whole),
            ]
        else:  # who wants a GPU for himself asks for nvidia.com/gpu there
            shares = LeasedShares(settings, telemetry, leases, guests.asker)
            plugins = [DevicePlugin(settings, telemetry, settings.resource, shares)]
            leases.subscribe(conductor.wake)
            leases.subscribe(shares.wake)
            pods.subscribe(leases.look_soon)
            conductor.subscribe(leases.heed)
        gates = Gates(settings.proc, conductor.wake)
        passages = Passages(settings.passages_dir)
        observer = Observer(settings, gates, passages, methods, conductor.wake)
        admission = Admission(observer.records, methods)
        pause, book_of, wake = settings.retry_seconds, conductor.book_of, conductor.wake
        carrier = Carrier(observer, gates, passages, methods, admission, metrics, pause, book_of, wake)
        reporter = Reporter(settings, api, telemetry, conductor, metrics, methods, __version__, guests.all)
        guests.subscribe(reporter.wake)
        shares.gpus = lambda: [reading(gpu) for gpu in reporter.now().gpus]
        parker = Parker(api, metrics, pods.values)
        conductor.subscribe(parker.heed)

        departures = _departures(settings, api, opening, pods, observer, conductor) if settings.registry else None

        def alive() -> str | None:
            age = time.monotonic() - conductor.beat
            if conductor.turns and age > STUCK_SECONDS:
                return f"the conductor has not turned for {age:.0f} s"
            return None

        def ready() -> str | None:
            if not (pods.synced and nodes.synced):
                return "the API server has not been heard yet"
            if leases is not None and not leases.known.is_set():
                return "the kubelet has not said yet which GPUs are leased"
            return next((plugin.trouble for plugin in plugins if plugin.trouble is not None), None)

        health.alive, health.ready = alive, ready

        async def conduct() -> None:
            """Not before it is known which GPUs are leased: else what works on them would be suspended."""
            if leases is not None:
                await leases.known.wait()
            await conductor.run(observer, carrier, gates)

        async with gates.serve(settings.share_dir):
            group = (
                telemetry.run(),
                pods.run(),
                nodes.run(),
                everyone.run(),
                reservations.run(),
                guests.run(),
                *(plugin.run() for plugin in plugins),
                conduct(),
                *((placeholders.run(), leases.run()) if leases is not None else ()),
                reporter.run(),
                parker.run(),
                opening.run(),
                *((departures.run(),) if departures is not None else ()),
                beat(
                    api,
                    name=f"podium-agent-{node}",
                    namespace=settings.namespace,
                    holder=node,
                    seconds=settings.heartbeat_seconds,
                    manager=MANAGER,
                ),
            )
            running = [tasks.create_task(task) for task in group]
            log.info("agent %s on node %s", __version__, node)
            await asyncio.gather(*running)


def _departures(
    settings: AgentSettings,
    api: Api,
    opening: Opening,
    pods: WatchCache[TrialPod],
    observer: Observer,
    conductor: Conductor,
) -> Departures:
    def processes() -> CudaProcesses:
        if opening.processes is None:
            raise MoveError("DriverMissing", opening.why)
        return opening.processes

    tools = Tools(opening.freeze, opening.parked, processes)
    return Departures(MoveSettings(), api, tools, pods.values, observer.record, conductor.book_of)

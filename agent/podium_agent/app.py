"""Puts the agent together and runs its tasks; a task that fails ends the process, and the kubelet starts it anew.

Ending changes nothing on the node: what is frozen stays frozen, gates stay shut, and the next agent goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from podium import __version__
from podium_agent.deviceplugin.plugin import DevicePlugin
from podium_agent.deviceplugin.trial_folder import install
from podium_agent.metrics import Metrics
from podium_agent.observe.observer import Observer
from podium_agent.observe.other_pods import Guests
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.node_reporter import MANAGER, Reporter
from podium_agent.reservations.controller import Leases
from podium_agent.schedule.admissions import Passages
from podium_agent.schedule.cpu_downsizing import Parker
from podium_agent.schedule.exclusive_allocations import Reservations
from podium_agent.schedule.executor import Carrier
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.memory_admission import Admission
from podium_agent.schedule.node_reconciler import Conductor
from podium_agent.settings import AgentSettings
from podium_agent.single_instance import NodeLock
from podium_agent.suspension.factory import Opening
from podium_agent.wiring import Watches, make_conductor, make_departures, make_plugins
from podium_cluster.client import Api, connect
from podium_cluster.health import serve
from podium_cluster.heartbeat import beat
from podium_core.placement.node_parser import gpu_reading

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
    async with connect(settings) as api, asyncio.TaskGroup() as tasks:
        seen = Watches(api, settings.node_name)
        reservations, guests = Reservations(settings, seen.everyone), Guests(settings, seen.everyone)
        leases = Leases(settings, seen.placeholders, seen.everyone) if settings.gpu_mode == "reservations" else None
        conductor = make_conductor(settings, api, metrics, tasks, seen, reservations, leases)
        shares, plugins = make_plugins(settings, telemetry, seen, conductor, reservations, guests, leases)
        gates = Gates(settings.proc, conductor.wake)
        passages = Passages(settings.passages_dir)
        observer = Observer(settings, gates, passages, methods, conductor.wake)
        admission = Admission(observer.records, methods)
        pause, book_of, wake = settings.retry_seconds, conductor.book_of, conductor.wake
        carrier = Carrier(observer, gates, passages, methods, admission, metrics, pause, book_of, wake)
        reporter = Reporter(settings, api, telemetry, conductor, metrics, methods, __version__, guests.all)
        guests.subscribe(reporter.wake)
        shares.gpus = lambda: [gpu_reading(gpu) for gpu in reporter.now().gpus]
        parker = Parker(api, metrics, seen.trials.values)
        conductor.subscribe(parker.heed)
        departures = make_departures(settings, api, opening, seen.trials, observer, conductor)
        health.alive, health.ready = lambda: _stuck(conductor), lambda: _not_ready(seen, leases, plugins)

        async def conduct() -> None:
            """Not before it is known which GPUs are leased: else what works on them would be suspended."""
            if leases is not None:
                await leases.known.wait()
            await conductor.run(observer, carrier, gates)

        async with gates.serve(settings.share_dir):
            group = (
                telemetry.run(),
                seen.trials.run(),
                seen.nodes.run(),
                seen.everyone.run(),
                reservations.run(),
                guests.run(),
                *(plugin.run() for plugin in plugins),
                conduct(),
                *((seen.placeholders.run(), leases.run()) if leases is not None else ()),
                reporter.run(),
                parker.run(),
                opening.run(),
                *((departures.run(),) if departures is not None else ()),
                _beat(settings, api),
            )
            running = [tasks.create_task(task) for task in group]
            log.info("agent %s on node %s", __version__, settings.node_name)
            await asyncio.gather(*running)


def _stuck(conductor: Conductor) -> str | None:
    age = time.monotonic() - conductor.beat
    if conductor.turns and age > STUCK_SECONDS:
        return f"the conductor has not turned for {age:.0f} s"
    return None


def _not_ready(seen: Watches, leases: Leases | None, plugins: Iterable[DevicePlugin]) -> str | None:
    if not (seen.trials.synced and seen.nodes.synced):
        return "the API server has not been heard yet"
    if leases is not None and not leases.known.is_set():
        return "the kubelet has not said yet which GPUs are leased"
    return next((plugin.trouble for plugin in plugins if plugin.trouble is not None), None)


async def _beat(settings: AgentSettings, api: Api) -> None:
    await beat(
        api,
        name=f"podium-agent-{settings.node_name}",
        namespace=settings.namespace,
        holder=settings.node_name,
        seconds=settings.heartbeat_seconds,
        manager=MANAGER,
    )

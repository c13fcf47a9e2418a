"""Assembly of the agent and its tasks.

A task that fails ends the process, and the kubelet restarts it. The end of the agent changes nothing on the node:
frozen trials stay frozen and gates stay closed until the next agent continues.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from podium import __version__
from podium_agent.deviceplugin.plugin import DevicePlugin
from podium_agent.driver.libraries import DriverLibraries
from podium_agent.metrics import Metrics
from podium_agent.node_setup import NodeLock, fill_trial_folder
from podium_agent.observe.gpu_notes import GpuNotes
from podium_agent.observe.nvml import open_driver
from podium_agent.observe.observer import Observer
from podium_agent.observe.other_plugins import OtherPlugins
from podium_agent.observe.other_pods import OtherPods
from podium_agent.observe.sources.push import PushQueues
from podium_agent.observe.sources.push_server import PushServer
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.node_reporter import NodeReporter, StatusSources, send_heartbeats
from podium_agent.reservations.controller import GpuReservations
from podium_agent.reservations.dynamic_gpus import DynamicGpus
from podium_agent.schedule.admissions import Admissions
from podium_agent.schedule.cpu_downsizing import CpuDownsizer
from podium_agent.schedule.exclusive_allocations import ExclusiveAllocations
from podium_agent.schedule.executor import Executor, ExecutorHooks, TrialStart
from podium_agent.schedule.gate import Gates
from podium_agent.schedule.gate_folders import GateFolders
from podium_agent.schedule.memory_admission import MemoryAdmission
from podium_agent.schedule.node_reconciler import NodeReconciler
from podium_agent.settings import AgentSettings
from podium_agent.suspension.detection import MethodDetection
from podium_agent.wiring import (
    GpuUsers,
    NodeWatches,
    TrialWriters,
    make_migration_controller,
    make_node_reconciler,
    make_plugins,
)
from podium_cluster.client import connect
from podium_cluster.component.health import serve
from podium_core.placement.node_parser import gpu_reading

log = logging.getLogger(__name__)
STUCK_SECONDS = 30.0


async def run(settings: AgentSettings) -> None:
    """Run the agent until SIGTERM or SIGINT."""
    work = asyncio.ensure_future(_work(settings))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("stopping; suspended trials stay suspended until the next agent starts")


@dataclass
class Health:
    """Checks behind the liveness and readiness probes; they are replaced once the agent serves its node."""

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
        fill_trial_folder(settings.trial_dir, settings.helper)
        await _serve_node(settings, metrics, health)


async def _serve_node(settings: AgentSettings, metrics: Metrics, health: Health) -> None:
    libraries = DriverLibraries(settings.driver_files)
    detection, detected = MethodDetection(settings, libraries), asyncio.Event()
    methods = detection.methods
    notes = GpuNotes(settings.gpu_notes_dir, settings.proc, metrics.note_failed)
    telemetry = Telemetry(settings.telemetry_seconds, settings.telemetry_timeout, lambda: open_driver(libraries, notes))
    async with connect(settings) as api, asyncio.TaskGroup() as tasks:
        watches = NodeWatches(api, settings.node_name)
        exclusive = ExclusiveAllocations(settings, watches.all_pods, failed=metrics.note_failed)
        other_pods = OtherPods(settings, watches.all_pods)
        reservations = (
            GpuReservations(settings, watches.reservation_pods, watches.all_pods, DynamicGpus(api, settings.node_name))
            if settings.gpu_mode == "reservations"
            else None
        )
        other_plugins = _other_plugins(settings, telemetry)
        users = GpuUsers(exclusive, other_pods, reservations, other_plugins)
        queues = PushQueues()
        writers = TrialWriters(settings, api, metrics, tasks, queues)
        node_reconciler = make_node_reconciler(settings, metrics, writers, watches, users)
        slots, plugins = make_plugins(settings, telemetry, watches, node_reconciler, users)
        gates = Gates(settings.proc, node_reconciler.wake)
        gate_folders = GateFolders(settings, api, watches.trials, watches.all_pods, gates.listen)
        slots.fill_gates = gate_folders.fill
        admissions = Admissions(settings.admissions_dir, metrics.note_failed)
        observer = Observer(settings, gates, admissions, methods, node_reconciler.wake)
        start = TrialStart(gates, admissions, MemoryAdmission(observer.records, methods))
        hooks = ExecutorHooks(node_reconciler.trial_record_of, node_reconciler.wake)
        executor = Executor(observer, methods, start, metrics, settings.retry_seconds, hooks)
        sources = StatusSources(
            telemetry,
            node_reconciler,
            methods,
            other_pods.all,
            lambda: None if other_plugins is None else other_plugins.condition,
            lambda: libraries.found,
        )
        reporter = NodeReporter(settings, api, metrics, sources, __version__)
        other_pods.subscribe(reporter.wake)
        if other_plugins is not None:
            other_plugins.subscribe(reporter.wake)
        slots.gpus = lambda: [gpu_reading(gpu) for gpu in reporter.now().gpus]
        cpu_downsizer = CpuDownsizer(api, metrics, watches.trials.values)
        node_reconciler.subscribe(cpu_downsizer.on_view)
        migration_controller = make_migration_controller(
            settings, api, detection, watches.trials, observer, node_reconciler
        )
        health.alive, health.ready = lambda: _stuck(node_reconciler), lambda: _not_ready(watches, reservations, plugins)

        async def detect() -> None:
            """Query the driver beside the device plugins: a kubelet that has restarted, too, does not wait for them."""
            await detection.detect()
            detected.set()
            await detection.run()

        async def once_detected(task: Callable[[], Awaitable[None]]) -> None:
            await detected.wait()
            await task()

        async def conduct() -> None:
            """Start only when the reserved GPUs are known: before that, trials on them would be suspended."""
            await detected.wait()
            if reservations is not None:
                await reservations.known.wait()
            await node_reconciler.run(observer, executor, gates)

        push_server = PushServer(settings.proc, queues)
        async with gates.serve(settings.trial_dir), push_server.serve(settings.trial_dir):
            group = (
                telemetry.run(),
                watches.trials.run(),
                watches.nodes.run(),
                watches.all_pods.run(),
                exclusive.run(),
                other_pods.run(),
                *((other_plugins.run(),) if other_plugins is not None else ()),
                *(plugin.run() for plugin in plugins),
                gate_folders.run(),
                conduct(),
                *((watches.reservation_pods.run(), reservations.run()) if reservations is not None else ()),
                once_detected(reporter.run),
                cpu_downsizer.run(),
                detect(),
                *((once_detected(migration_controller.run),) if migration_controller is not None else ()),
                send_heartbeats(
                    api,
                    node=settings.node_name,
                    namespace=settings.namespace,
                    seconds=settings.heartbeat_seconds,
                ),
            )
            running = [tasks.create_task(task) for task in group]
            log.info("agent %s on node %s", __version__, settings.node_name)
            await asyncio.gather(*running)


def _other_plugins(settings: AgentSettings, telemetry: Telemetry) -> OtherPlugins | None:
    """Return the part that follows other device plugins; None in the mode `reservations`, which needs one."""
    if settings.gpu_mode == "reservations":
        return None
    return OtherPlugins(settings.pod_resources_socket, lambda: {gpu.uuid for gpu in telemetry.reading.gpus})


def _stuck(node_reconciler: NodeReconciler) -> str | None:
    age = time.monotonic() - node_reconciler.last_cycle
    if node_reconciler.running and age > STUCK_SECONDS:
        return f"the node reconciler has not run for {age:.0f} s"
    return None


def _not_ready(
    watches: NodeWatches, reservations: GpuReservations | None, plugins: Iterable[DevicePlugin]
) -> str | None:
    if not (watches.trials.synced and watches.nodes.synced):
        return "the API server has not answered yet"
    if reservations is not None and not reservations.known.is_set():
        return "the kubelet has not reported yet which GPUs are reserved"
    return next((plugin.trouble for plugin in plugins if plugin.trouble is not None), None)

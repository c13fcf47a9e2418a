"""The parts of the agent that are made of several others: what it watches, who decides, what the kubelet is told.

Used by `app`, which makes the rest and runs them all.
"""

from __future__ import annotations

import asyncio

from podium_agent.deviceplugin.exclusive import WholeGpus
from podium_agent.deviceplugin.plugin import DevicePlugin
from podium_agent.deviceplugin.reserved import LeasedShares
from podium_agent.deviceplugin.servicer import Servicer
from podium_agent.metrics import Metrics
from podium_agent.migration.checkpointing import Tools
from podium_agent.migration.departures import Departures
from podium_agent.migration.refusal import MoveError
from podium_agent.migration.settings import MoveSettings
from podium_agent.observe import pods as trial_pods
from podium_agent.observe.observer import Observer
from podium_agent.observe.other_pods import Guests
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.trial_record import Book
from podium_agent.report.trial_writer import TrialWriter
from podium_agent.reservations.controller import LEASE_LABEL, Leases, parse_placeholder
from podium_agent.reservations.reserved_gpus import Placeholder
from podium_agent.schedule.exclusive_allocations import Reservations, parse_pod
from podium_agent.schedule.exclusive_gpus import UrgentPod
from podium_agent.schedule.node_reconciler import Conductor
from podium_agent.settings import AgentSettings
from podium_agent.suspension.factory import Opening
from podium_agent.suspension.processes import CudaProcesses
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS
from podium_cluster.watch import WatchCache
from podium_core.placement.needs import EXCLUSIVE_RESOURCE
from podium_core.schema.gpunode import GPUNode


class Watches:
    """What the API server tells of this node: its trials, all its pods, its GPUNode, and who holds GPUs for Podium."""

    def __init__(self, api: Api, node: str) -> None:
        here = f"spec.nodeName={node}"
        self.trials: WatchCache[TrialPod] = WatchCache(
            api, PODS, trial_pods.parse, labels=trial_pods.TRIAL_LABEL, fields=here
        )
        self.everyone: WatchCache[UrgentPod] = WatchCache(api, PODS, parse_pod, fields=here)
        self.nodes: WatchCache[GPUNode] = WatchCache(
            api, GPUNODES, GPUNode.model_validate, fields=f"metadata.name={node}"
        )
        self.placeholders: WatchCache[Placeholder] = WatchCache(
            api, PODS, parse_placeholder, labels=LEASE_LABEL, fields=here
        )


def make_conductor(
    settings: AgentSettings,
    api: Api,
    metrics: Metrics,
    tasks: asyncio.TaskGroup,
    seen: Watches,
    reservations: Reservations,
    leases: Leases | None,
) -> Conductor:
    """Each book that it opens has a writer, a task of its own."""

    def open_book(pod: TrialPod) -> Book:
        book = Book(pod, settings.node_name)
        tasks.create_task(TrialWriter(settings, api, metrics, book).run(), name=f"trial {pod.name}")
        return book

    made = Conductor(
        settings,
        seen.trials,
        seen.nodes,
        metrics,
        open_book,
        lambda: reservations.taken,
        lambda: None if leases is None else leases.held,
    )
    made.subscribe(reservations.heed)
    reservations.changed = made.wake
    return made


def make_plugins(
    settings: AgentSettings,
    telemetry: Telemetry,
    seen: Watches,
    conductor: Conductor,
    reservations: Reservations,
    guests: Guests,
    leases: Leases | None,
) -> tuple[Servicer, list[DevicePlugin]]:
    """Who gives shares to trials, and all that is announced to the kubelet."""
    if leases is None:
        shares = Servicer(settings, telemetry, lambda: reservations.taken, guests.asker)
        whole = WholeGpus(settings, telemetry, conductor, reservations)
        return shares, [
            DevicePlugin(settings, telemetry, settings.resource, shares),
            DevicePlugin(settings, telemetry, EXCLUSIVE_RESOURCE, whole),
        ]
    # who wants a GPU for himself asks for nvidia.com/gpu there
    shares = LeasedShares(settings, telemetry, leases, guests.asker)
    leases.subscribe(conductor.wake)
    leases.subscribe(shares.wake)
    seen.trials.subscribe(leases.look_soon)
    conductor.subscribe(leases.heed)
    return shares, [DevicePlugin(settings, telemetry, settings.resource, shares)]


def make_departures(
    settings: AgentSettings,
    api: Api,
    opening: Opening,
    pods: WatchCache[TrialPod],
    observer: Observer,
    conductor: Conductor,
) -> Departures | None:
    if not settings.registry:
        return None

    def processes() -> CudaProcesses:
        if opening.processes is None:
            raise MoveError("DriverMissing", opening.why)
        return opening.processes

    tools = Tools(opening.freeze, opening.parked, processes)
    return Departures(MoveSettings(), api, tools, pods.values, observer.record, conductor.book_of)

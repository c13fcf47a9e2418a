"""Parts of the agent that combine several others: watches, node reconciler, device plugins and live migration.

`app` uses them; it makes the other parts and runs all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from podium_agent.deviceplugin.exclusive import ExclusiveGpuService
from podium_agent.deviceplugin.plugin import DevicePlugin
from podium_agent.deviceplugin.servicer import ReservedSlotService, SlotService
from podium_agent.driver.method_detection import MethodDetection
from podium_agent.metrics import Metrics
from podium_agent.migration.container_checkpoint import MigrationTools
from podium_agent.migration.controller import MigrationController
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.settings import MigrationSettings
from podium_agent.observe import pods as trial_pods
from podium_agent.observe.observer import Observer
from podium_agent.observe.other_plugins import OtherPlugins
from podium_agent.observe.other_pods import OtherPods
from podium_agent.observe.pods import TrialPod
from podium_agent.observe.sources.push import PushQueues
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.pod_condition_writer import WorkerWriter
from podium_agent.report.trial_record import TrialRecord
from podium_agent.report.trial_writer import TrialWriter
from podium_agent.reservations.controller import RESERVATION_LABEL, GpuReservations, parse_reservation_pod
from podium_agent.reservations.reserved_gpus import ReservationPod
from podium_agent.schedule.exclusive_allocations import ExclusiveAllocations, parse_pod
from podium_agent.schedule.exclusive_gpus import NodePod
from podium_agent.schedule.node_reconciler import GpuClaims, NodeReconciler
from podium_agent.settings import AgentSettings
from podium_cluster.client import Api
from podium_cluster.resources import GPUNODES, PODS, Selection
from podium_cluster.watch import WatchCache
from podium_core.placement.needs import EXCLUSIVE_RESOURCE
from podium_core.schema.gpunode import GPUNode
from podium_suspension.processes import CudaProcesses


class NodeWatches:
    """Watches of this node's trials, all of its pods, its GPUNode and its reservation pods."""

    def __init__(self, api: Api, node: str) -> None:
        here = f"spec.nodeName={node}"
        self.trials: WatchCache[TrialPod] = WatchCache(
            api, Selection(PODS, labels=trial_pods.TRIAL_LABEL, fields=here), trial_pods.parse
        )
        self.all_pods: WatchCache[NodePod] = WatchCache(api, Selection(PODS, fields=here), parse_pod)
        self.nodes: WatchCache[GPUNode] = WatchCache(
            api, Selection(GPUNODES, fields=f"metadata.name={node}"), GPUNode.model_validate
        )
        self.reservation_pods: WatchCache[ReservationPod] = WatchCache(
            api, Selection(PODS, labels=RESERVATION_LABEL, fields=here), parse_reservation_pod
        )


@dataclass(frozen=True, slots=True)
class GpuUsers:
    """The parts that know other uses of GPUs.

    `reservations` is None where Podium owns all GPUs, `other_plugins` where other device plugins may offer them.
    """

    exclusive: ExclusiveAllocations
    other_pods: OtherPods
    reservations: GpuReservations | None
    other_plugins: OtherPlugins | None


@dataclass(frozen=True, slots=True)
class TrialWriters:
    """Writers of trial records, as tasks of one group.

    Of a trial of several workers, only the record of rank 0 is written to the trial's status.
    """

    settings: AgentSettings
    api: Api
    metrics: Metrics
    tasks: asyncio.TaskGroup
    queues: PushQueues

    def open(self, pod: TrialPod) -> TrialRecord:
        """Open the record of a pod and start its writer."""
        trial_record = TrialRecord(pod, self.settings.node_name)
        writer: TrialWriter | WorkerWriter
        if pod.worker.rank == 0:
            writer = TrialWriter(self.settings, self.api, self.metrics, trial_record, self.queues)
        else:
            writer = WorkerWriter(self.api, self.metrics, trial_record, self.settings.log_seconds)
        self.tasks.create_task(writer.run(), name=f"trial {pod.name}")
        return trial_record


def make_node_reconciler(
    settings: AgentSettings, metrics: Metrics, writers: TrialWriters, watches: NodeWatches, users: GpuUsers
) -> NodeReconciler:
    """Make the node reconciler; each trial record that it opens gets a writer, a task of its own."""
    exclusive, reservations = users.exclusive, users.reservations
    made = NodeReconciler(
        settings,
        watches.trials,
        watches.nodes,
        metrics,
        writers.open,
        GpuClaims(lambda: exclusive.exclusive_pods, lambda: None if reservations is None else reservations.held),
    )
    made.subscribe(exclusive.on_view)
    exclusive.changed = made.wake
    return made


def make_plugins(
    settings: AgentSettings,
    telemetry: Telemetry,
    watches: NodeWatches,
    node_reconciler: NodeReconciler,
    users: GpuUsers,
) -> tuple[SlotService, list[DevicePlugin]]:
    """Make the servicer of trial slots, and the device plugins that are registered with the kubelet."""
    exclusive, other_pods, reservations = users.exclusive, users.other_pods, users.reservations
    if reservations is None:
        slots = SlotService(settings, telemetry, lambda: exclusive.exclusive_pods, other_pods.find_pod_need)
        whole = ExclusiveGpuService(settings, telemetry, node_reconciler, exclusive)
        if users.other_plugins is not None:
            slots.beside(users.other_plugins)
            whole.beside(users.other_plugins)
        return slots, [
            DevicePlugin(settings, telemetry, settings.resource, slots),
            DevicePlugin(settings, telemetry, EXCLUSIVE_RESOURCE, whole),
        ]
    # a pod that needs a whole GPU requests nvidia.com/gpu there
    slots = ReservedSlotService(settings, telemetry, reservations, other_pods.find_pod_need)
    reservations.subscribe(node_reconciler.wake)
    reservations.subscribe(slots.wake)
    watches.trials.subscribe(reservations.refresh_soon)
    node_reconciler.subscribe(reservations.on_view)
    return slots, [DevicePlugin(settings, telemetry, settings.resource, slots)]


def make_migration_controller(
    settings: AgentSettings,
    api: Api,
    detection: MethodDetection,
    pods: WatchCache[TrialPod],
    observer: Observer,
    node_reconciler: NodeReconciler,
) -> MigrationController | None:
    """Make the part that checkpoints containers for live migration, or None without a registry."""
    if not settings.registry:
        return None

    def processes() -> CudaProcesses:
        if detection.processes is None:
            raise MigrationError("DriverMissing", detection.reason)
        return detection.processes

    tools = MigrationTools(detection.freeze, detection.notes, processes)
    return MigrationController(
        MigrationSettings(), api, tools, pods.values, observer.record, node_reconciler.trial_record_of
    )

"""What the agent writes about its node: GPUNode.status, and the Lease that is the agent's heartbeat.

The writer of the status writes decisive changes at once, telemetry when it has changed enough or is half a minute old.
It writes only the newest state; without the API server it tries again with a growing pause. By the heartbeat other
components recognise old telemetry. Each of the two is one task of the agent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podium_agent.metrics import Metrics
from podium_agent.observe.other_pods import LocalOtherPod
from podium_agent.observe.telemetry import Telemetry
from podium_agent.report.node_status import NodeFacts, build, decisive, moved, to_json
from podium_agent.schedule.node_reconciler import NodeReconciler, View
from podium_agent.settings import AgentSettings
from podium_cluster import clock
from podium_cluster.backoff import Backoff
from podium_cluster.client import Api, ApiError, Manifest
from podium_cluster.events import EventText, emit
from podium_cluster.leases import create_lease
from podium_cluster.resources import GPUNODES, LEASES, NODES
from podium_core.attempts.local_trial import LocalTrial
from podium_core.placement.node_parser import LEASE_PREFIX
from podium_core.schema.base import Condition
from podium_core.schema.gpunode import GpuNodeStatus
from podium_suspension.methods import SuspensionMethods

log = logging.getLogger(__name__)
MANAGER = "podium-agent"
TELEMETRY_PAUSE = 2.0  # between two patches with only telemetry
GATHER_SECONDS = 0.01  # changes at the same time are written together
LONGEST_PAUSE = 30.0
FIRST_RETRY = 2.0  # of a heartbeat; shortened by up to a half: at most one request a second


@dataclass(frozen=True, slots=True)
class StatusSources:
    """The parts of the agent that know what is reported."""

    telemetry: Telemetry
    node_reconciler: NodeReconciler
    methods: SuspensionMethods
    other_pods: Callable[[], Sequence[LocalOtherPod]] = tuple
    usable: Callable[[], Condition | None] = lambda: None
    driver_library: Callable[[], str] = str


class NodeReporter:
    """Task that writes this node's GPUNode.status."""

    def __init__(
        self,
        settings: AgentSettings,
        api: Api,
        metrics: Metrics,
        sources: StatusSources,
        version: str,
    ) -> None:
        self._settings = settings
        self._api = api
        self._metrics = metrics
        self._sources = sources
        self._version = version
        self._event = asyncio.Event()
        self._epochs: dict[str, int] = {}
        self._written: GpuNodeStatus | None = None
        self._last = 0.0
        sources.telemetry.subscribe(self._event.set)
        sources.node_reconciler.subscribe(self._on_view)

    def wake(self) -> None:
        """Write soon: something other than the trials has changed."""
        self._event.set()

    def _on_view(self, view: View) -> None:
        """Write soon if something decisive changed in this view."""
        for gpu in self._sources.telemetry.reading.gpus:
            if gpu.uuid not in view.unsettled:
                self._epochs[gpu.uuid] = view.run_queues.epoch
        if self._written is None or decisive(self.now()) != decisive(self._written):
            self._event.set()

    def _epoch_of(self, uuid: str) -> int:
        return self._epochs.get(uuid, 0)

    def now(self) -> GpuNodeStatus:
        """Return the status at this moment."""
        sources = self._sources
        facts = NodeFacts(
            sources.telemetry.reading,
            self._settings.slots_per_gpu,
            sources.methods.names,
            self._version,
            sources.driver_library(),
            sources.other_pods(),
            sources.usable(),
        )
        return build(facts, sources.node_reconciler.view, self._epoch_of, self._held_since, clock.now())

    def _held_since(self, trial: LocalTrial) -> float:
        trial_record = self._sources.node_reconciler.trial_record_of(trial.pod.uid)
        since = trial_record.held_since() if trial_record is not None else None
        return trial.since if since is None else since

    async def run(self) -> None:
        """Write the status until cancelled, once the trials were observed and the driver was asked.

        The status of the previous agent tells this one where the trials are, so it must not be overwritten before. The
        driver takes seconds to answer, and a status without GPUs would have no trials on them.
        """
        await self._sources.node_reconciler.observed.wait()
        await self._sources.telemetry.asked.wait()
        backoff = Backoff(longest=LONGEST_PAUSE)
        while True:
            await self._event.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._event.clear()
            status = self.now()
            self._gauge(status)
            if not self._due(status):
                continue
            try:
                await self._write(status)
                backoff.reset()
            except ApiError as error:
                pause = backoff.pause(error.retry_after)
                self._metrics.failures.labels("node-status", error.reason).inc()
                log.warning("GPUNode status not written, trying again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                self._event.set()

    def _due(self, status: GpuNodeStatus) -> bool:
        if self._written is None or decisive(status) != decisive(self._written):
            return True
        age = time.monotonic() - self._last
        return age >= self._settings.report_seconds or (age >= TELEMETRY_PAUSE and moved(self._written, status))

    async def _write(self, status: GpuNodeStatus) -> None:
        manifest: Manifest = {"metadata": {"name": self._settings.node_name}, "status": to_json(status)}
        try:
            stored = await self._api.apply_status(GPUNODES, manifest, manager=MANAGER)
        except ApiError as error:
            if not error.not_found:
                raise
            await self._create()
            stored = await self._api.apply_status(GPUNODES, manifest, manager=MANAGER)
        before, self._written, self._last = self._written, status, time.monotonic()
        await self._warn(before, status, stored)

    async def _warn(self, before: GpuNodeStatus | None, after: GpuNodeStatus, stored: Manifest) -> None:
        """Record an Event when a condition has become false, once."""
        known = {} if before is None else {one.type: one.status for one in before.conditions}
        for one in after.conditions:
            if one.status == "False" and known.get(one.type) != "False":
                text = EventText(one.reason, one.message, "Warning")
                await emit(self._api, GPUNODES, stored["metadata"], text, component=MANAGER)

    async def _create(self) -> None:
        """Create this node's GPUNode, owned by the Node so that it is deleted with it."""
        name = self._settings.node_name
        node = await self._api.get(NODES, name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        await self._api.apply(GPUNODES, {"metadata": {"name": name, "ownerReferences": [owner]}}, manager=MANAGER)
        log.info("created GPUNode %s", name)

    def _gauge(self, status: GpuNodeStatus) -> None:
        counts: dict[str, int] = {}
        for trial in self._sources.node_reconciler.view.trials:
            counts[trial.state] = counts.get(trial.state, 0) + 1
        self._metrics.trials.clear()
        for state, count in counts.items():
            self._metrics.trials.labels(state).set(count)
        self._metrics.gpus.set(status.gpus)


async def send_heartbeats(api: Api, *, node: str, namespace: str, seconds: int) -> None:
    """Renew the Lease of the node's agent every `seconds` until cancelled.

    It expires after four times that. A renewal that fails is repeated sooner: an agent that is cut off for a moment
    must not seem to be gone.
    """
    name, backoff = LEASE_PREFIX + node, Backoff(first=FIRST_RETRY, longest=max(FIRST_RETRY, seconds / 2))
    uid = ""  # of the Lease; a deleted one is created again, with its owner
    while True:
        pause: float = seconds
        spec = {"holderIdentity": node, "leaseDurationSeconds": seconds * 4, "renewTime": clock.micro_time()}
        try:
            if not uid:
                await _create(api, name, namespace, spec)
            about = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
            stored = await api.apply(LEASES, {"metadata": about, "spec": spec}, manager=MANAGER)
            uid = stored["metadata"].get("uid", "")
            backoff.reset()
        except ApiError as error:
            if error.conflict:
                uid = ""
            pause = min(pause, backoff.pause(error.retry_after))
            log.warning("heartbeat %s/%s not renewed, trying again in %.1f s: %s", namespace, name, pause, error)
        await asyncio.sleep(pause)


async def _create(api: Api, name: str, namespace: str, spec: Manifest) -> None:
    """Create the Lease of the node's agent if it does not exist. Raises ApiError."""
    try:
        await create_lease(api, name, namespace, spec, manager=MANAGER)
    except ApiError as error:
        if not error.conflict:
            raise

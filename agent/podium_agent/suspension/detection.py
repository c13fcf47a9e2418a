"""Detect which suspension methods this node supports, at the agent's start and while the driver is missing.

A method that is not available is logged with its reason.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from podium_agent.observe.cgroups import cgroup_names
from podium_agent.settings import AgentSettings
from podium_agent.suspension.capability import (
    cuda_checkpoint_unsupported,
    gpu_map_unsupported,
    multi_gpu_unsupported,
    read_facts,
)
from podium_agent.suspension.cuda import CudaDriver, CudaMissingError
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.driver_calls import DriverTimeoutError, call_with_timeout
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.gpu_state_notes import GpuStateNotes
from podium_agent.suspension.methods import SuspensionMethods
from podium_agent.suspension.processes import CudaProcesses

log = logging.getLogger(__name__)
OPEN_SECONDS = 30.0  # cuInit on a node with many GPUs takes seconds
MISSING = "DriverMissing"


@dataclass(frozen=True, slots=True)
class Detection:
    """Result of one query: the driver, or the `reason` why `cuda-checkpoint` is unavailable.

    `multi_gpu_refusal` is the reason why trials with several GPUs cannot use it, `gpu_map_refusal` the reason why a
    process can be restored on its own GPUs only.
    """

    driver: CudaDriver | None = None
    reason: str = ""
    multi_gpu_refusal: str | None = None
    gpu_map_refusal: str | None = None


def probe(settings: AgentSettings) -> Detection:
    """Query the driver once; blocking."""
    facts = read_facts(settings.proc)
    reason = cuda_checkpoint_unsupported(facts)
    if reason is not None:
        return Detection(reason=reason)
    try:
        return Detection(
            CudaDriver(),
            multi_gpu_refusal=multi_gpu_unsupported(facts.driver),
            gpu_map_refusal=gpu_map_unsupported(facts.driver),
        )
    except CudaMissingError as error:
        return Detection(reason=f"{MISSING}: {error}")


class MethodDetection:
    """Detector that keeps `methods` up to date; its task `run` ends as soon as the driver is available."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.freeze = Freeze(settings.freeze_timeout)
        self.notes = GpuStateNotes(settings.trial_dir.parent / "gpu-state")
        self.notes.remove_stale(cgroup_names(settings.proc))
        self.processes: CudaProcesses | None = None
        reservations, migrates = settings.gpu_mode == "reservations", bool(settings.registry)
        self.methods = SuspensionMethods(self.freeze, notes=self.notes, reservations=reservations, migrates=migrates)
        self.reason = f"{MISSING}: the driver has not been queried yet"

    async def detect(self) -> None:
        """Query the driver once and add `cuda-checkpoint` if it is supported."""
        before = self.reason
        try:
            detection = await call_with_timeout(OPEN_SECONDS, lambda: probe(self._settings))
        except (DriverTimeoutError, OSError) as error:
            detection = Detection(
                reason=f"DriverUnresponsive: {error}; the agent queries the driver again when it restarts"
            )
        self.reason = detection.reason
        if detection.driver is None:
            if self.reason != before:
                log.info("method cuda-checkpoint is off: %s", self.reason)
            return
        settings = self._settings
        self.processes = CudaProcesses(detection.driver, settings.cuda_lock_seconds, settings.cuda_copy_seconds)
        self.methods.adopt(CudaCheckpoint(self.processes, self.freeze, self.notes), detection.multi_gpu_refusal)
        log.info(
            "method cuda-checkpoint is on%s",
            f", for trials with one GPU ({detection.multi_gpu_refusal})" if detection.multi_gpu_refusal else "",
        )
        storage = "supported but not used" if detection.driver.has_custom_storage else "not supported"
        log.info("restore on other GPUs of this node: %s; not used", detection.gpu_map_refusal or "supported")
        log.info("custom storage of the driver (CUDA 13.4): %s", storage)

    async def run(self) -> None:
        """Query the driver periodically while it is missing."""
        while self.reason.startswith(MISSING):
            await asyncio.sleep(self._settings.driver_seconds)
            await self.detect()

"""Detect which suspension methods this node supports, at the agent's start and while the driver does not answer.

A method that is not available is logged with its reason.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from podium_agent.driver.libraries import DriverLibraries, LibrariesMissingError
from podium_agent.observe.cgroup_paths import cgroup_names
from podium_agent.settings import AgentSettings
from podium_suspension.base import outcome_of
from podium_suspension.capability import (
    cuda_checkpoint_unsupported,
    gpu_map_unsupported,
    multi_gpu_unsupported,
    read_facts,
)
from podium_suspension.cuda import CudaDriver, CudaMissingError
from podium_suspension.cuda_checkpoint import CudaCheckpoint
from podium_suspension.driver_calls import DriverTimeoutError, NoThreadError, call_with_timeout
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuStateNotes
from podium_suspension.methods import SuspensionMethods
from podium_suspension.processes import CudaProcesses

log = logging.getLogger(__name__)
OPEN_SECONDS = 30.0  # cuInit on a node with many GPUs takes seconds
MISSING = "DriverMissing"
UNRESPONSIVE = "DriverUnresponsive"


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


def probe(settings: AgentSettings, libraries: DriverLibraries) -> Detection:
    """Query the driver once; blocking."""
    try:
        libraries.prepare()
    except LibrariesMissingError as error:
        return Detection(reason=f"{MISSING}: {error}")
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

    def __init__(self, settings: AgentSettings, libraries: DriverLibraries | None = None) -> None:
        self._settings = settings
        self._libraries = libraries or DriverLibraries(settings.driver_files)
        self.freeze = Freeze(settings.freeze_timeout)
        self.notes = GpuStateNotes(settings.trial_dir.parent / "gpu-state")
        self.notes.remove_stale(cgroup_names(settings.proc))
        self.processes: CudaProcesses | None = None
        reservations, migrates = settings.gpu_mode == "reservations", bool(settings.registry)
        self.methods = SuspensionMethods(self.freeze, notes=self.notes, reservations=reservations, migrates=migrates)
        self.reason = f"{MISSING}: the driver has not been queried yet"
        self._asks = True
        self._hangs = False  # also after its time limit: a driver that hangs has one thread at most

    async def detect(self) -> None:
        """Query the driver once and add `cuda-checkpoint` if it is supported."""
        before = self.reason
        try:
            detection = await self._probe()
            self._asks = detection.reason.startswith(MISSING)
        except DriverTimeoutError as error:
            detection = Detection(reason=f"{UNRESPONSIVE}: {error}; the agent queries the driver again")
        except OSError as error:  # no thread, or no free descriptor for a file of /proc
            outcome = outcome_of(error)
            detection = Detection(reason=f"{outcome.code}: {outcome.message}; the agent queries the driver again")
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

    async def _probe(self) -> Detection:
        if self._hangs:
            raise DriverTimeoutError("it has not answered the last query")
        self._hangs = True
        try:
            return await call_with_timeout(OPEN_SECONDS, self._probe_in_thread)
        except NoThreadError:
            self._hangs = False
            raise

    def _probe_in_thread(self) -> Detection:
        try:
            return probe(self._settings, self._libraries)
        finally:
            self._hangs = False

    async def run(self) -> None:
        """Query the driver periodically until it has answered whether it supports the method."""
        while self._asks:
            await asyncio.sleep(self._settings.driver_seconds)
            await self.detect()

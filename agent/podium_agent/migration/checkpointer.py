"""Make an image of one container: check it, checkpoint it, stop it, push the image; undo all if a step fails.

The order guarantees two things. If a step fails, the container returns to its original state, running or frozen. No
archive remains after the call. The new container repeats what the old one did between the checkpoint and the stop.
The caller deletes the stopped container once the new one runs, or resumes it (`Freeze.resume`) if that fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from podium_agent.migration import archive, image
from podium_agent.migration.eligibility import ContainerFacts, NodeRuntime, ineligible
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.gpu_state import CheckpointedGpuState
from podium_agent.migration.kubelet import ContainerRef, Kubelet
from podium_agent.migration.registry import Registry
from podium_agent.observe.cgroups import Freezer
from podium_core.schema.checkpoint_image import repository_of
from podium_suspension.base import SuspensionState
from podium_suspension.freeze import Freeze

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointImage:
    """An image in the registry and the cost of making it.

    `reference`: the image, by digest.
    `bytes`: size of the archive.
    `checkpoint`: seconds from the request to the kubelet until the archive is written; a part of it paused.
    `stop`: seconds until the container is frozen.
    `push`: seconds until the image is in the registry.
    `processes`: number of processes with a CUDA context, which the driver has checkpointed.
    """

    reference: str
    bytes: int
    checkpoint: float
    stop: float
    push: float
    processes: int = 0


class Checkpointer:
    """Makes images of containers.

    `folder`: the kubelet's checkpoints as this process sees them (/var/lib/kubelet/checkpoints on the node).
    `seconds`: limit of the checkpoint and of the push, each.
    `gpu_state`: of a container whose GPU memory the driver has moved to host memory.
    """

    def __init__(
        self,
        kubelet: Kubelet,
        registry: Registry,
        freeze: Freeze,
        folder: Path,
        seconds: float,
        gpu_state: CheckpointedGpuState | None = None,
    ) -> None:
        self._kubelet, self._registry, self._freeze = kubelet, registry, freeze
        self._folder, self._seconds, self._gpu_state = folder, seconds, gpu_state

    async def checkpoint(
        self,
        container: ContainerRef,
        freezer: Freezer,
        container_facts: ContainerFacts,
        source: NodeRuntime,
        target: NodeRuntime | None,
        before_push: Callable[[str], None] = lambda _: None,
    ) -> CheckpointImage:
        """Make and push the image of a container, and leave the container frozen.

        `before_push` is called with the image's reference before the push; it may block.
        Raises MigrationError, or OSError if the kernel does not report the container's state; the container is then in
        its original state.
        """
        refused = ineligible(container_facts, source, target)
        if refused is not None:
            raise refused
        before = self._freeze.suspension_state((freezer,))
        if before in (SuspensionState.GONE, SuspensionState.PARTLY_SUSPENDED):
            raise MigrationError("ContainerNotRunning", f"{container} does not run, or changes its state; try again")
        try:
            with self._gpu_state or nullcontext():
                return await self._checkpoint(container, freezer, before_push)
        except BaseException:
            undo = self._freeze.suspend if before is SuspensionState.SUSPENDED else self._freeze.resume
            undone = await undo((freezer,))
            if not undone.ok:
                log.error("cannot restore the original state of %s: %s: %s", container, undone.code, undone.message)
            raise
        finally:
            await asyncio.to_thread(archive.remove_archives, self._folder, container)

    async def _checkpoint(
        self, container: ContainerRef, freezer: Freezer, before_push: Callable[[str], None]
    ) -> CheckpointImage:
        begin = time.monotonic()
        await self._set_frozen(
            freezer, frozen=False
        )  # the runtime pauses the container itself, which fails for a frozen one
        processes = await self._confirm_off_gpus(freezer)
        written = await self._kubelet.checkpoint(container, self._seconds)
        checkpointed = time.monotonic()
        await self._confirm_off_gpus(freezer)  # verify that no GPU was given to it in the meantime
        await self._set_frozen(freezer, frozen=True)
        stopped = time.monotonic()
        contents = await asyncio.to_thread(archive.read_archive, self._folder / written.name)
        made = image.build_image(contents, container.name)
        repository = repository_of(container.namespace, container.pod)
        await asyncio.to_thread(before_push, self._registry.reference(repository, made))
        reference = await self._registry.push(repository, made, contents, self._seconds)
        pushed = time.monotonic()
        took = checkpointed - begin, stopped - checkpointed, pushed - stopped
        return CheckpointImage(reference, contents.bytes, *took, processes)

    async def _confirm_off_gpus(self, freezer: Freezer) -> int:
        return 0 if self._gpu_state is None else await self._gpu_state.confirm(freezer)

    async def _set_frozen(self, freezer: Freezer, *, frozen: bool) -> None:
        done = await (self._freeze.suspend if frozen else self._freeze.resume)((freezer,))
        if not done.ok:
            raise MigrationError(done.code, done.message)

"""One container leaves this node: judged, checkpointed, stopped, made an image, pushed; and undone if a step fails.

Called by `python -m podium_agent.migration`, and by whoever moves trials. The order keeps two promises. Nothing is
lost:
whatever fails, the container is left as it was found, at work or frozen. Nothing stays: no archive outlives the call.
What the container does between the checkpoint and the stop is done again by the one that goes on from it; the caller
ends the stopped one only after the other works, or brings it back (`Freeze.resume`) if that fails.
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
from podium_agent.migration.eligibility import Place, Subject, why_not
from podium_agent.migration.gpu_state import OffGpus
from podium_agent.migration.kubelet import Container, Kubelet
from podium_agent.migration.refusal import MoveError
from podium_agent.migration.registry import Registry
from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.base import Standing
from podium_agent.suspension.freeze import Freeze

log = logging.getLogger(__name__)
REPOSITORY = "podium-checkpoints"


@dataclass(frozen=True, slots=True)
class Departed:
    """`reference`: the image, by digest. Seconds by phase: `checkpoint` from asking the kubelet until the archive is
    written (paused for the dump, at work in the rest); `stop` until it is frozen; `push` until the image is in the
    registry. `bytes`: of the archive. `processes`: of it that hold CUDA, checkpointed by the driver."""

    reference: str
    bytes: int
    checkpoint: float
    stop: float
    push: float
    processes: int = 0


class Mover:
    """`folder`: the kubelet's checkpoints as this process sees them (on the node: /var/lib/kubelet/checkpoints).

    `seconds` bounds the checkpoint, and the push, each. `off_gpus`: of a container that
    the driver is said to have moved off its GPUs. `noted`: is told the image before it is in the registry (blocking).
    """

    def __init__(
        self,
        kubelet: Kubelet,
        registry: Registry,
        freeze: Freeze,
        folder: Path,
        seconds: float,
        off_gpus: OffGpus | None = None,
        noted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._kubelet, self._registry, self._freeze = kubelet, registry, freeze
        self._folder, self._seconds, self._gpus, self._noted = folder, seconds, off_gpus, noted

    async def depart(
        self, container: Container, freezer: Freezer, subject: Subject, source: Place, target: Place | None
    ) -> Departed:
        """Raises MoveError, OSError (the kernel does not say how the container stands); it stands as before then."""
        refused = why_not(subject, source, target)
        if refused is not None:
            raise refused
        before = self._freeze.standing((freezer,))
        if before in (Standing.GONE, Standing.PARTLY_SUSPENDED):
            raise MoveError("ContainerNotRunning", f"{container} does not run here, or is on its way: ask again")
        try:
            with self._gpus or nullcontext():
                return await self._leave(container, freezer)
        except BaseException:
            undone = await (self._freeze.suspend if before is Standing.PARKED else self._freeze.resume)((freezer,))
            if not undone.ok:
                log.error("%s is left otherwise than it was found: %s: %s", container, undone.code, undone.message)
            raise
        finally:
            await asyncio.to_thread(archive.sweep, self._folder, container)

    async def _leave(self, container: Container, freezer: Freezer) -> Departed:
        begun = time.monotonic()
        await self._stand(freezer, frozen=False)  # the runtime pauses it itself, and cannot pause a frozen one
        processes = await self._off_gpus(freezer)
        written = await self._kubelet.checkpoint(container, self._seconds)
        checkpointed = time.monotonic()
        await self._off_gpus(freezer)  # nobody has given it a GPU meanwhile
        await self._stand(freezer, frozen=True)
        stopped = time.monotonic()
        found = await asyncio.to_thread(archive.read, self._folder / written.name)
        made = image.of(found, container.name)
        repository = f"{REPOSITORY}/{container.namespace}/{container.pod}"
        await asyncio.to_thread(self._noted, self._registry.reference(repository, made))
        reference = await self._registry.push(repository, made, found, self._seconds)
        pushed = time.monotonic()
        took = checkpointed - begun, stopped - checkpointed, pushed - stopped
        return Departed(reference, found.bytes, *took, processes)

    async def _off_gpus(self, freezer: Freezer) -> int:
        return 0 if self._gpus is None else await self._gpus.confirm(freezer)

    async def _stand(self, freezer: Freezer, *, frozen: bool) -> None:
        done = await (self._freeze.suspend if frozen else self._freeze.resume)((freezer,))
        if not done.ok:
            raise MoveError(done.code, done.message)

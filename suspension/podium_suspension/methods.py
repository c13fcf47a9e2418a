"""The suspension methods of one node, and the choice among them: the first that a job names and the node supports.

The observer and the executor use it. `suspension_state` and `resume` always call one method, which understands the
state that every other method leaves behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.schema.checkpointing import CUDA_CHECKPOINT
from podium_suspension.base import SuspensionMethod, SuspensionOutcome, SuspensionState
from podium_suspension.freeze import Freeze
from podium_suspension.gpu_state_notes import GpuState, GpuStateNotes
from podium_suspension.target import Target


class SuspensionMethods:
    """The methods that this node supports: `freeze` always, `cuda` where the driver supports it.

    `multi_gpu_refusal` is the reason why trials with several GPUs cannot use `cuda`. `notes` describe the containers
    that are checkpointed on this node, also by an earlier agent. With `reservations` another owner may use the GPU
    while a trial is suspended. GPU memory must not remain there, so `freeze` alone suspends nothing.
    """

    def __init__(
        self,
        freeze: Freeze,
        cuda: SuspensionMethod | None = None,
        multi_gpu_refusal: str | None = None,
        notes: GpuStateNotes | None = None,
        *,
        reservations: bool = False,
        migrates: bool = False,
    ) -> None:
        self._by_name: dict[str, SuspensionMethod] = {} if reservations else {freeze.name: freeze}
        self._most_capable: SuspensionMethod = freeze
        self._multi_gpu_refusal: str | None = None
        self._migrates = migrates
        self._notes = notes
        if cuda is not None:
            self.adopt(cuda, multi_gpu_refusal)

    def adopt(self, cuda: SuspensionMethod, multi_gpu_refusal: str | None) -> None:
        """Add `cuda-checkpoint` to the methods; the driver may become available after the agent started."""
        self._by_name[CUDA_CHECKPOINT] = self._most_capable = cuda
        self._multi_gpu_refusal = multi_gpu_refusal

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that the node reports.

        With live migration they include that method, which suspends nothing on this node.
        """
        return (*self._by_name, CONTAINER_CHECKPOINT) if self._migrates else tuple(self._by_name)

    def choose(self, wanted: Sequence[str], gpus: int, failed: Collection[str] = ()) -> str:
        """Return the first of the job's methods that suits a trial with `gpus` GPUs; empty if none does.

        Methods that have failed for this trial come after all others.
        """
        usable = [
            name
            for name in wanted
            if name in self._by_name and not (name == CUDA_CHECKPOINT and gpus > 1 and self._multi_gpu_refusal)
        ]
        return next((name for name in usable if name not in failed), usable[0] if usable else "")

    async def suspend(self, name: str, targets: tuple[Target, ...]) -> SuspensionOutcome:
        """Suspend the containers by the method of that name."""
        return await self._by_name[name].suspend(targets)

    async def resume(self, targets: tuple[Target, ...]) -> SuspensionOutcome:
        """Resume the containers, whichever method suspended them."""
        if CUDA_CHECKPOINT not in self._by_name and self._notes is not None:
            for target in targets:
                if self._notes.has(target.name):  # thawed, it would block at its next CUDA call
                    message = (
                        "the driver that holds the trial's GPU memory is not available; the agent retries until it is"
                    )
                    return SuspensionOutcome(False, 0.0, "DriverMissing", message)
        return await self._most_capable.resume(targets)

    def held_bytes(self, targets: tuple[Target, ...]) -> Mapping[str, int]:
        """Return the bytes by GPU that a resume brings back; empty for a trial that is not checkpointed."""
        total: dict[str, int] = {}
        if self._notes is None:
            return total
        for target in targets:
            for uuid, count in self._notes.held_bytes(target.name).items():
                total[uuid] = total.get(uuid, 0) + count
        return total

    def is_checkpointed(self, targets: tuple[Target, ...]) -> bool:
        """Return whether the trial's GPU memory is off its GPUs, so that a resume needs free GPU memory."""
        return self._notes is not None and any(self._notes.has(target.name) for target in targets)

    def add_migrated(self, target: Target, gpu_state: GpuState, gpus: tuple[str, ...]) -> None:
        """Record a container that came checkpointed from another node.

        Its state is PARTLY_SUSPENDED until it is resumed. Raises OSError.
        """
        if self._notes is not None:
            self._notes.add_migrated(target.name, gpu_state, gpus)

    def suspension_state(self, targets: tuple[Target, ...]) -> SuspensionState:
        """Return the state of the containers, whichever method suspended them."""
        return self._most_capable.suspension_state(targets)

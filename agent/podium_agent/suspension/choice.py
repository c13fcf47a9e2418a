"""The suspension methods of one node, and which of them a trial gets: the first that its job names and the node has.

Used by observer and carrier. Whatever was used to suspend, `standing` and `resume` are asked of one method, which
understands what every other leaves behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from podium_agent.observe.cgroups import Freezer
from podium_agent.suspension.base import Outcome, Standing, SuspensionMethod
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.parked_memory import Arrival, Parked
from podium_core.domain.migration import CONTAINER_CHECKPOINT


class Methods:
    """`freeze` is on every node, `cuda` where the driver can. `several`: why trials with several GPUs do not get it.

    `parked`: what is checkpointed here, also by an agent before this one. `leases`: the GPU may be another's while a
    trial is suspended, so its memory must not stay there: nothing is suspended by `freeze` alone.
    """

    def __init__(
        self,
        freeze: Freeze,
        cuda: CudaCheckpoint | None = None,
        several: str | None = None,
        parked: Parked | None = None,
        *,
        leases: bool = False,
        carries: bool = False,
    ) -> None:
        self._by_name: dict[str, SuspensionMethod] = {} if leases else {freeze.name: freeze}
        self._last: SuspensionMethod = freeze
        self._several: str | None = None
        self._carries = carries
        self._parked = parked
        if cuda is not None:
            self.adopt(cuda, several)

    def adopt(self, cuda: CudaCheckpoint, several: str | None) -> None:
        """From now on the driver can; it may come after the agent."""
        self._by_name[cuda.name] = self._last = cuda
        self._several = several

    @property
    def names(self) -> tuple[str, ...]:
        """As the node reports them: also that live trials are carried to other nodes, which suspends none here."""
        return (*self._by_name, CONTAINER_CHECKPOINT) if self._carries else tuple(self._by_name)

    def best(self, wanted: Sequence[str], gpus: int, failed: Collection[str] = ()) -> str:
        """The first in the job's own order that can be had for a trial with so many GPUs; empty: none.

        One that has failed this trial comes after all that have not.
        """
        can = [
            name
            for name in wanted
            if name in self._by_name and not (name == CudaCheckpoint.name and gpus > 1 and self._several)
        ]
        return next((name for name in can if name not in failed), can[0] if can else "")

    async def suspend(self, name: str, targets: tuple[Freezer, ...]) -> Outcome:
        return await self._by_name[name].suspend(targets)

    async def resume(self, targets: tuple[Freezer, ...]) -> Outcome:
        if CudaCheckpoint.name not in self._by_name and self._parked is not None:
            for target in targets:
                if self._parked.has(target.path.name):  # thawed, it would wait at its next CUDA call for ever
                    message = "its GPU memory was moved by the driver, which is not there; it is looked for"
                    return Outcome(False, 0.0, "DriverMissing", message)
        return await self._last.resume(targets)

    def parked(self, targets: tuple[Freezer, ...]) -> Mapping[str, int]:
        """Bytes by GPU that a resumption brings back; empty for a trial that is not checkpointed."""
        total: dict[str, int] = {}
        if self._parked is None:
            return total
        for target in targets:
            for uuid, count in self._parked.read(target.path.name).items():
                total[uuid] = total.get(uuid, 0) + count
        return total

    def moved_off(self, targets: tuple[Freezer, ...]) -> bool:
        """Whether a resumption takes GPU memory that it does not have now."""
        return self._parked is not None and any(self._parked.has(target.path.name) for target in targets)

    def arrives(self, target: Freezer, arrival: Arrival, gpus: tuple[str, ...]) -> None:
        """A container was found that came checkpointed from another node: it is torn until it is resumed. OSError."""
        if self._parked is not None:
            self._parked.arrives(target.path.name, arrival, gpus)

    def standing(self, targets: tuple[Freezer, ...]) -> Standing:
        return self._last.standing(targets)

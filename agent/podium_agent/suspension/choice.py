"""The suspension methods of one node, and which of them a trial gets: the first that its job names and the node has.

Used by observer and carrier. Whatever was used to suspend, `standing` and `resume` are asked of one method, which
understands what every other leaves behind.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from podium_agent.cgroups import Freezer
from podium_agent.settings import AgentSettings
from podium_agent.suspension.base import Outcome, Standing, SuspensionMethod
from podium_agent.suspension.calls import GivenUpError, give_up_after
from podium_agent.suspension.capability import read_facts, why_not, why_not_several
from podium_agent.suspension.cuda import CudaDriver, CudaMissingError
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.parked import Parked
from podium_agent.suspension.processes import CudaProcesses

log = logging.getLogger(__name__)
OPEN_SECONDS = 60.0  # cuInit on a node with many GPUs takes seconds


class Methods:
    """`freeze` is on every node. `cuda` is None where `why_not_cuda` says so; `several` says why trials with several
    GPUs do not get it.
    """

    def __init__(
        self,
        freeze: Freeze,
        cuda: CudaCheckpoint | None = None,
        why_not_cuda: str | None = None,
        several: str | None = None,
    ) -> None:
        self._by_name: dict[str, SuspensionMethod] = {freeze.name: freeze}
        self._last: SuspensionMethod = freeze
        if cuda is not None:
            self._by_name[cuda.name] = self._last = cuda
        self.why_not_cuda = why_not_cuda
        self._several = several

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

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
        return await self._last.resume(targets)

    def standing(self, targets: tuple[Freezer, ...]) -> Standing:
        return self._last.standing(targets)


async def open_methods(settings: AgentSettings) -> Methods:
    """Asks the driver once, at the start of the agent; what it cannot do is logged with its reason."""
    freeze = Freeze(settings.freeze_timeout)

    def probe() -> tuple[CudaDriver | None, str | None, str | None]:
        facts = read_facts(settings.proc)
        why = why_not(facts)
        if why is not None:
            return None, why, None
        try:
            return CudaDriver(), None, why_not_several(facts.driver)
        except CudaMissingError as error:
            return None, f"DriverMissing: {error}", None

    try:
        driver, why, several = await give_up_after(OPEN_SECONDS, probe)
    except (GivenUpError, OSError) as error:
        driver, why, several = None, f"DriverHung: {error}", None
    if driver is None:
        log.info("method cuda-checkpoint is off: %s", why)
        return Methods(freeze, why_not_cuda=why)
    processes = CudaProcesses(driver, settings.cuda_lock_seconds, settings.cuda_copy_seconds)
    cuda = CudaCheckpoint(processes, freeze, Parked(settings.share_dir.parent / "parked"))
    if several is not None:
        log.info("method cuda-checkpoint is off for trials with several GPUs: %s", several)
    return Methods(freeze, cuda, several=several)

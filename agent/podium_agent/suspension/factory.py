"""Finds out which suspension methods this node has: at the agent's start, and while there is no driver yet.

Used by app. What is off is logged with its reason.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from podium_agent.observe.cgroups import cgroup_names
from podium_agent.settings import AgentSettings
from podium_agent.suspension.capability import read_facts, why_not, why_not_mapped, why_not_several
from podium_agent.suspension.choice import Methods
from podium_agent.suspension.cuda import CudaDriver, CudaMissingError
from podium_agent.suspension.cuda_checkpoint import CudaCheckpoint
from podium_agent.suspension.driver_calls import GivenUpError, give_up_after
from podium_agent.suspension.freeze import Freeze
from podium_agent.suspension.parked_memory import Parked
from podium_agent.suspension.processes import CudaProcesses

log = logging.getLogger(__name__)
OPEN_SECONDS = 30.0  # cuInit on a node with many GPUs takes seconds
MISSING = "DriverMissing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The driver, or why there is none to be used; `several`: why not for trials with several GPUs; `mapped`: why a
    process comes back on its own GPUs only."""

    driver: CudaDriver | None = None
    why: str = ""
    several: str | None = None
    mapped: str | None = None


def probe(settings: AgentSettings) -> Finding:
    """Blocking."""
    facts = read_facts(settings.proc)
    why = why_not(facts)
    if why is not None:
        return Finding(why=why)
    try:
        return Finding(CudaDriver(), several=why_not_several(facts.driver), mapped=why_not_mapped(facts.driver))
    except CudaMissingError as error:
        return Finding(why=f"{MISSING}: {error}")


class Opening:
    """`methods` has what was found so far; `run` is a task of the agent that ends when there is nothing to wait for."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.freeze = Freeze(settings.freeze_timeout)
        self.parked = Parked(settings.share_dir.parent / "parked")
        self.parked.tidy(cgroup_names(settings.proc))
        self.processes: CudaProcesses | None = None
        leases, carries = settings.gpu_mode == "reservations", bool(settings.registry)
        self.methods = Methods(self.freeze, parked=self.parked, leases=leases, carries=carries)
        self.why = f"{MISSING}: the driver has not been asked yet"

    async def look(self) -> None:
        """Ask the driver once."""
        before = self.why
        try:
            found = await give_up_after(OPEN_SECONDS, lambda: probe(self._settings))
        except (GivenUpError, OSError) as error:
            found = Finding(why=f"DriverUnresponsive: {error}; the agent asks again when it is started anew")
        self.why = found.why
        if found.driver is None:
            if self.why != before:
                log.info("method cuda-checkpoint is off: %s", self.why)
            return
        settings = self._settings
        self.processes = CudaProcesses(found.driver, settings.cuda_lock_seconds, settings.cuda_copy_seconds)
        self.methods.adopt(CudaCheckpoint(self.processes, self.freeze, self.parked), found.several)
        log.info("method cuda-checkpoint is on%s", f", with one GPU a trial ({found.several})" if found.several else "")
        storage = "there, and not used" if found.driver.has_custom_storage else "not there"
        log.info("other GPUs of the node by a map: %s; nothing orders that", found.mapped or "the driver can")
        log.info("custom storage of the driver (CUDA 13.4) is %s", storage)

    async def run(self) -> None:
        """While the driver is missing, look for it again."""
        while self.why.startswith(MISSING):
            await asyncio.sleep(self._settings.driver_seconds)
            await self.look()

"""A GPU as the planner sees it: slots, memory, run queue and availability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from podium_core.domain.keys import TrialKey
from podium_core.domain.tenure import Tenure


@dataclass(frozen=True, slots=True)
class RunQueueView:
    """The run queue of a GPU as last written, and whether its agent follows it."""

    trials: tuple[TrialKey, ...] = ()
    in_effect: bool = False  # the agent has carried out this run queue
    no_preemption: bool = False  # the agent knows this run queue, which takes the GPU from no trial that held it before
    on_hold: frozenset[TrialKey] = frozenset()  # trials of several workers that must not start or resume

    @property
    def startable(self) -> tuple[TrialKey, ...]:
        """Return the trials that may start or resume, in order."""
        return tuple([key for key in self.trials if key not in self.on_hold]) if self.on_hold else self.trials


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory of a GPU in bytes."""

    total: int = 0  # 0 = not known
    reserved: int = 0  # declared by all on it; of the trials that are moved off it only the largest counts
    movable: int = 0  # declared by that largest one


@dataclass(frozen=True, slots=True)
class Availability:
    """Restrictions on the use of a GPU."""

    draining: bool = False  # its node is drained
    # exclusive pod that has or will have the whole GPU; empty: its name is not known yet
    exclusive_pod: str | None = None
    # namespace whose trials may use the reserved GPU; empty: not reserved; None: dedicated to Podium
    reserved_for: str | None = None


_EMPTY_QUEUE = RunQueueView()
_UNKNOWN_MEMORY = GpuMemory()
_AVAILABLE = Availability()


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU as the planner sees it."""

    node: str
    uuid: str
    health: Literal["Healthy", "Unhealthy", "Unknown"]
    slots: int  # slots for trials, without those that other pods occupy
    free_slots: int = 0
    product: str = ""
    holder: TrialKey | None = None
    holder_since: float | None = None
    tenure: Tenure | None = None  # of the holder's job; None: not known
    trials: tuple[TrialKey, ...] = ()  # trials with a slot on this GPU, in any state
    run_queue: RunQueueView = _EMPTY_QUEUE
    memory: GpuMemory = _UNKNOWN_MEMORY
    availability: Availability = _AVAILABLE
    supports_migration: bool = False  # the agent of its node can migrate running trials in both directions

    @property
    def memory_total(self) -> int:
        """Return the total memory in bytes; 0 if it is not known."""
        return self.memory.total

    @property
    def reservation_ended(self) -> bool:
        """Return whether the reservation of the GPU has ended: trials with a slot on it must not run."""
        return self.availability.reserved_for == ""

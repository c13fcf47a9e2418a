"""Ledger of a node's GPU memory: how much each trial holds, how much is promised, and which trial may come. Pure.

Memory admission calls it, under its lock, before a trial that `cuda-checkpoint` suspends goes onto its GPUs: at its
gate, and at each restore. A trial on a GPU may grow to what it declared, so that much is promised to it. A trial whose
memory was moved out has no claim there. Any other pod counts by the memory that is not free.

Without other pods the promises never exceed the GPU, so a trial gets all memory up to what it declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from podium_suspension.base import RESTORE_SCRATCH


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one trial on each of its GPUs (uuids).

    `held`: as NVML reports; `off_gpu`: what a restore brings back. `here`: the trial is on its GPUs, running or frozen.
    `leaves`: its memory is moved out when its time slice ends.
    """

    name: str
    gpus: tuple[str, ...]
    declared: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    off_gpu: Mapping[str, int] = field(default_factory=dict)
    here: bool = False
    leaves: bool = False

    def promise(self, uuid: str) -> int:
        """Return the bytes that it may come to hold on a GPU.

        A restore briefly takes some more than it brings back.
        """
        if uuid not in self.gpus:
            return 0
        back = self.off_gpu.get(uuid, 0)
        return max(self.declared, back + RESTORE_SCRATCH if back else 0, self.held.get(uuid, 0))

    def to_come(self, uuid: str) -> int:
        """Return the bytes that are promised to it and still count as free."""
        return self.promise(uuid) - self.held.get(uuid, 0)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A GPU without enough memory.

    Bytes: `needed` by the claim, `free` as NVML reports, of which `promised` to the trials on the GPU.
    """

    uuid: str
    needed: int
    free: int
    promised: int

    def __str__(self) -> str:
        text = f"GPU {self.uuid} has {self.free} bytes free"
        if self.promised:
            text += f", {self.promised} of them promised to trials on it"
        return f"{text}; {self.needed} are needed"


def shortfall(claim: Footprint, others: Iterable[Footprint], free: Mapping[str, int]) -> Shortfall | None:
    """Return the first GPU without enough memory for this trial beside the trials there, or None.

    A GPU that `free` does not name is lost and has no memory. O(GPUs * trials).
    """
    here = [other for other in others if other.here]
    for uuid in sorted(claim.gpus):
        promised = sum(other.to_come(uuid) for other in here if uuid in other.gpus)
        memory_shortage = Shortfall(uuid, claim.to_come(uuid), free.get(uuid, 0), promised)
        if memory_shortage.needed > 0 and memory_shortage.needed + promised > memory_shortage.free:
            return memory_shortage
    return None


def shortfall_alone(claim: Footprint, others: Iterable[Footprint], free: Mapping[str, int]) -> Shortfall | None:
    """Return the shortfall that would remain once all movable memory were moved.

    While there is one, suspensions cannot help.
    """
    others = tuple(others)
    gone = [other for other in others if other.here and other.leaves]
    stay = [other for other in others if not (other.here and other.leaves)]
    after = {uuid: count + sum(other.held.get(uuid, 0) for other in gone) for uuid, count in free.items()}
    return shortfall(claim, stay, after)

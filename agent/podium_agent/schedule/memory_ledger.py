"""The memory ledger of a node's GPUs: who holds how much, to whom how much is promised, and who may come. Pure.

Called by admission, under its lock, before a trial that is taken off by `cuda-checkpoint` goes onto its GPUs: at its
gate, and at each restore. A trial that is on a GPU may grow to what it declared, so that much is promised to it; one
whose memory was moved out has no claim there. A stranger (whatever is no trial of ours) counts by what is not free.

With no stranger the promises of those that are here never exceed the GPU: a trial within what it declared gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from podium_agent.suspension.base import RESTORE_SCRATCH


@dataclass(frozen=True, slots=True)
class Footprint:
    """One trial's bytes on each of its GPUs (uuids). `held`: as NVML says; `parked`: what a restore brings back.

    `here`: it is on its GPUs, at work or frozen. `leaves`: and its memory is moved out when its turn is over.
    """

    name: str
    gpus: tuple[str, ...]
    declared: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    parked: Mapping[str, int] = field(default_factory=dict)
    here: bool = False
    leaves: bool = False

    def promise(self, uuid: str) -> int:
        """What it may come to hold there, for a moment only: a restore takes some more than it brings."""
        if uuid not in self.gpus:
            return 0
        back = self.parked.get(uuid, 0)
        return max(self.declared, back + RESTORE_SCRATCH if back else 0, self.held.get(uuid, 0))

    def to_come(self, uuid: str) -> int:
        """What is promised to it and still counts as free."""
        return self.promise(uuid) - self.held.get(uuid, 0)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A GPU without room. Bytes: `needed` by the claim, `free` by NVML, of which `promised` to those that are here."""

    uuid: str
    needed: int
    free: int
    promised: int

    def __str__(self) -> str:
        text = f"GPU {self.uuid} has {self.free} bytes free"
        if self.promised:
            text += f", {self.promised} of them promised to trials that are there"
        return f"{text}; {self.needed} are needed"


def shortfall(claim: Footprint, others: Iterable[Footprint], free: Mapping[str, int]) -> Shortfall | None:
    """The first GPU without room for this trial beside those that are here; None: it may come. A GPU that `free` does
    not name (it is lost) has no room. O(GPUs * trials).
    """
    here = [other for other in others if other.here]
    for uuid in sorted(claim.gpus):
        promised = sum(other.to_come(uuid) for other in here if uuid in other.gpus)
        short = Shortfall(uuid, claim.to_come(uuid), free.get(uuid, 0), promised)
        if short.needed > 0 and short.needed + promised > short.free:
            return short
    return None


def shortfall_alone(claim: Footprint, others: Iterable[Footprint], free: Mapping[str, int]) -> Shortfall | None:
    """The same, were all gone that leave when their turn is over: while there is one, suspending them is no use."""
    others = tuple(others)
    gone = [other for other in others if other.here and other.leaves]
    stay = [other for other in others if not (other.here and other.leaves)]
    after = {uuid: count + sum(other.held.get(uuid, 0) for other in gone) for uuid, count in free.items()}
    return shortfall(claim, stay, after)

"""A deep network as a directed acyclic graph of stages: the unit that SGPRS schedules is the stage.

Built by `resnet18` (the paper's network), by the CPU runtime from its real networks, and by tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from podium_realtime.model.refusal import RealtimeError, require_positive


@dataclass(frozen=True, slots=True)
class Stage:
    """One piece of a network that runs without interruption.

    work: its share of the whole network's arithmetic, 0..1; launches: its share of the host's time for launching;
    after: indices of the stages whose output it reads.
    """

    name: str
    work: float
    launches: float
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Network:
    """Stages in topological order. Shares need not sum to 1: a network twice as heavy as the reference sums to 2."""

    name: str
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise RealtimeError("NoStages", f"network {self.name}: stages", "is empty; give at least one stage")
        for number, stage in enumerate(self.stages):
            where = f"network {self.name}: stage {stage.name}"
            require_positive(stage.work, f"{where}: work", "of the reference network")
            require_positive(stage.launches, f"{where}: launches", "of the reference network")
            for before in stage.after:
                if not 0 <= before < number:
                    told = f"stage {before} does not come before stage {number}; list the stages in topological order"
                    raise RealtimeError("NotAcyclic", f"{where}: after", told)

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """For each stage the stages that read its output."""
        return tuple(
            tuple(n for n, stage in enumerate(self.stages) if number in stage.after)
            for number in range(len(self.stages))
        )

    @cached_property
    def roots(self) -> tuple[int, ...]:
        return tuple(number for number, stage in enumerate(self.stages) if not stage.after)

    @property
    def work(self) -> float:
        return sum(stage.work for stage in self.stages)

    @property
    def launches(self) -> float:
        return sum(stage.launches for stage in self.stages)

    def fused(self) -> Network:
        """The same network as one stage: how schedulers without stages see it."""
        return Network(self.name, (Stage("whole", self.work, self.launches),))


def chain(name: str, parts: Sequence[tuple[str, float, float]]) -> Network:
    """Stages one after another, from (name, work, launches)."""
    stages = tuple(
        Stage(part, work, launches, () if number == 0 else (number - 1,))
        for number, (part, work, launches) in enumerate(parts)
    )
    return Network(name, stages)


# ResNet-18 at 3x224x224: millions of multiply-accumulates and number of kernels of each stage. The split of the network
# is that of the SGPRS repository (stem, layer1-4, head); the counts follow from the architecture.
_RESNET18 = (
    ("stem", 118.0, 4),
    ("layer1", 462.4, 14),
    ("layer2", 411.0, 16),
    ("layer3", 411.0, 16),
    ("layer4", 411.0, 16),
    ("head", 0.5, 3),
)


def resnet18() -> Network:
    """The reference network: its shares of work and of launches sum to 1."""
    macs = sum(part[1] for part in _RESNET18)
    kernels = sum(part[2] for part in _RESNET18)
    return chain("resnet18", [(name, work / macs, count / kernels) for name, work, count in _RESNET18])

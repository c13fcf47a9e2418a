"""Deep networks as directed acyclic graphs of stages. A stage is the unit that SGPRS schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from podium_realtime.model.errors import RealtimeError, require_positive


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a network that runs without preemption.

    `work`: arithmetic relative to the whole reference network (ResNet-18, batch 1).
    `launches`: host time for kernel launches, relative to the whole reference network.
    `after`: indices of the stages whose output this stage reads.
    """

    name: str
    work: float
    launches: float
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class InferenceNetwork:
    """A network as a tuple of stages in topological order.

    The stages of the reference network sum to 1; those of a network twice as heavy sum to 2.
    """

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
                    problem = (
                        f"stage {before} does not come before stage {number}; list the stages in topological order"
                    )
                    raise RealtimeError("NotAcyclic", f"{where}: after", problem)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each stage, the stages that read its output."""
        return tuple(
            tuple(n for n, stage in enumerate(self.stages) if number in stage.after)
            for number in range(len(self.stages))
        )

    @cached_property
    def stages_after(self) -> tuple[int, ...]:
        """For each stage, the number of stages on the longest path behind it (0 for a last stage)."""
        counts = [0] * len(self.stages)
        for number in range(len(counts) - 1, -1, -1):
            counts[number] = max((1 + counts[successor] for successor in self.successors[number]), default=0)
        return tuple(counts)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Stages without predecessors."""
        return tuple(number for number, stage in enumerate(self.stages) if not stage.after)

    @property
    def work(self) -> float:
        """Arithmetic of all stages, relative to the reference network."""
        return sum(stage.work for stage in self.stages)

    @property
    def launches(self) -> float:
        """Launch time of all stages, relative to the reference network."""
        return sum(stage.launches for stage in self.stages)

    def fused(self) -> InferenceNetwork:
        """Return the same network as one stage, for policies that do not schedule stages."""
        return InferenceNetwork(self.name, (Stage("whole", self.work, self.launches),))


def chain(name: str, parts: Sequence[tuple[str, float, float]]) -> InferenceNetwork:
    """Return a network whose stages run one after another, from (name, work, launches)."""
    stages = tuple(
        Stage(part, work, launches, () if number == 0 else (number - 1,))
        for number, (part, work, launches) in enumerate(parts)
    )
    return InferenceNetwork(name, stages)


# ResNet-18 at 3x224x224: millions of multiply-accumulates and number of kernels of each stage. The stages are those of
# the SGPRS repository (stem, layer1-4, head); the counts follow from the architecture.
_RESNET18 = (
    ("stem", 118.0, 4),
    ("layer1", 462.4, 14),
    ("layer2", 411.0, 16),
    ("layer3", 411.0, 16),
    ("layer4", 411.0, 16),
    ("head", 0.5, 3),
)


def resnet18() -> InferenceNetwork:
    """Return the reference network; work and launches of its stages sum to 1."""
    macs = sum(part[1] for part in _RESNET18)
    kernels = sum(part[2] for part in _RESNET18)
    return chain("resnet18", [(name, work / macs, count / kernels) for name, work, count in _RESNET18])

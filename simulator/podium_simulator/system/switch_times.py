"""What a switch takes by the way in which a trial leaves its GPU, before any of its own was measured. Pure; called by
`podium plan` and `podium simulate --system`. The planner itself goes by what each trial's own switches took.

The rates are those of benchmarks/results/bench-gpu-nvidia-h100-80gb-hbm3.md, for 2 to 70 GB within a sixth. The first
time out of a process took twice as long there: not modelled. What it takes to carry a live trial to another node is
what the planner itself reckons with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.planning.rebalancing import migration_seconds
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_simulator.system.scenario import Method, Timing

# what keeps a trial where it is, and whether its memory stays on the GPU
KEEPS_MEMORY: Mapping[str, bool] = MappingProxyType({"freeze": True, "cuda-checkpoint": False})
MOVES_MEMORY = "cuda-checkpoint"  # of these the one that lets a trial be carried
NAMES = (*KEEPS_MEMORY, CONTAINER_CHECKPOINT, APP_CHECKPOINT)
OUT, BACK = 2.0e9, 4.9e9  # bytes a second
LEAST = 0.39  # seconds of one way of a trial that holds next to nothing


def method(name: str, memory: int | None, suspend: float | None, resume: float | None, usual: float) -> Method:
    """`memory`: bytes of a trial on all of its GPUs; `suspend`, `resume`: seconds that were given, which win; `usual`:
    seconds where nothing is moved, or nobody said how much. Of SAVES_ITSELF `suspend` is the save; a new pod's start is
    in the timing (`timed`). By CARRIES a trial is suspended as by MOVES_MEMORY, and may be carried.
    """
    if name == CONTAINER_CHECKPOINT:
        return replace(carrying(method(MOVES_MEMORY, memory, suspend, resume, usual), memory or 0), name=name)
    if name == APP_CHECKPOINT:
        save = Timing().save if suspend is None else suspend
        return Method(name, save, stays=False, basis="a save, then a new pod up to its first step")
    keeps = KEEPS_MEMORY[name]
    if keeps or memory is None:
        return Method(
            name, usual if suspend is None else suspend, usual if resume is None else resume, keeps_memory=keeps
        )
    return Method(
        name,
        _takes(memory, OUT) if suspend is None else suspend,
        _takes(memory, BACK) if resume is None else resume,
        keeps_memory=keeps,
        basis=_basis(memory, suspend is None, resume is None),
    )


def carrying(method: Method, memory: int) -> Method:
    """The same on nodes that carry trials to one another alive."""
    return replace(method, carries=True, carry=migration_seconds(memory))


def keeps_memory(name: str) -> bool:
    """Of a suspended trial, on its GPU; of one that is never suspended, as long as it is there."""
    return KEEPS_MEMORY.get(name, name != CONTAINER_CHECKPOINT)


def untold(name: str, memory: int | None, suspend: float | None, resume: float | None) -> bool:
    """Whether nothing says what a switch takes: memory is moved, nobody said how much, nor both ways' seconds. Of one
    that is carried its memory alone says it.
    """
    return (
        not keeps_memory(name)
        and memory is None
        and (name == CONTAINER_CHECKPOINT or suspend is None or resume is None)
    )


def timed(method: Method, timing: Timing) -> tuple[Method, Timing]:
    """The two in keeping with each other, where a trial that leaves its GPU saves."""
    if method.stays:
        return method, timing
    return replace(method, resume=timing.place + timing.gate + timing.load), replace(timing, save=method.suspend)


def _takes(memory: int, rate: float) -> float:
    return max(LEAST, round(memory / rate, 2))


def _basis(memory: int, out: bool, back: bool) -> str:
    """`out`, `back`: whether that way goes by the rates."""
    ways = [("out", OUT, "--suspend"), ("in", BACK, "--resume")]
    measured = [way for way, by_rate in zip(ways, (out, back), strict=True) if by_rate]
    if not measured:
        return ""
    rates = " and ".join(f"{rate / 1e9:g} GB/s {name}" for name, rate, _ in measured)
    options = ", ".join(option for _, _, option in measured)
    say = "say" if len(measured) > 1 else "says"
    return f"{memory / 1e9:.1f} GB at {rates}, {LEAST:g} s at least, as measured on one H100; {options} {say} otherwise"

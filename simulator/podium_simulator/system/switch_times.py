"""Duration of a switch for each suspension method, before any of a trial's own was measured. Pure.

`podium plan` and `podium simulate --system` call it. The planner itself uses what each trial's own switches took. The
rates are those of benchmarks/results/bench-gpu-nvidia-h100-80gb-hbm3.md, for 2 to 70 GB within a sixth. The first
suspension of a process took twice as long there; this is not modelled. The duration of a live migration is the
planner's own estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from podium_core.domain.migration import CONTAINER_CHECKPOINT
from podium_core.planning.rebalancing import migration_seconds
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_simulator.system.scenario import Method, Timing

# methods that suspend a trial in place, and whether its memory stays on the GPU
KEEPS_MEMORY: Mapping[str, bool] = MappingProxyType({"freeze": True, "cuda-checkpoint": False})
MOVES_MEMORY = "cuda-checkpoint"  # the method that live migration is based on
NAMES = (*KEEPS_MEMORY, CONTAINER_CHECKPOINT, APP_CHECKPOINT)
OUT, BACK = 2.0e9, 4.9e9  # bytes per second
LEAST = 0.39  # smallest seconds of one direction


def method(name: str, memory: int | None, suspend: float | None, resume: float | None, usual: float) -> Method:
    """Return the method with its durations.

    `memory`: bytes of a trial on all of its GPUs. `suspend`, `resume`: given seconds, which take precedence. `usual`:
    seconds where nothing is moved, or the memory is unknown. For APP_CHECKPOINT, `suspend` is the checkpoint; the start
    of a new pod is in the timing (`consistent`). With CONTAINER_CHECKPOINT a trial is suspended as with MOVES_MEMORY,
    and may migrate.
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
    """Return the method on nodes that migrate trials live."""
    return replace(method, carries=True, carry=migration_seconds(memory))


def keeps_memory(name: str) -> bool:
    """Return whether a trial's memory stays on its GPU while another trial runs there."""
    return KEEPS_MEMORY.get(name, name != CONTAINER_CHECKPOINT)


def untold(name: str, memory: int | None, suspend: float | None, resume: float | None) -> bool:
    """Return whether nothing determines the duration of a switch.

    That is where memory is moved, and neither its size nor both durations are known. For live migration only the memory
    determines it.
    """
    return (
        not keeps_memory(name)
        and memory is None
        and (name == CONTAINER_CHECKPOINT or suspend is None or resume is None)
    )


def timed(method: Method, timing: Timing) -> tuple[Method, Timing]:
    """Return method and timing in agreement with each other, where a trial checkpoints to release its GPU."""
    if method.stays:
        return method, timing
    return replace(method, resume=timing.place + timing.gate + timing.load), replace(timing, save=method.suspend)


def _takes(memory: int, rate: float) -> float:
    return max(LEAST, round(memory / rate, 2))


def _basis(memory: int, out: bool, back: bool) -> str:
    """Return the text about the rates. `out`, `back`: whether that direction uses them."""
    ways = [("out", OUT, "--suspend"), ("in", BACK, "--resume")]
    measured = [way for way, by_rate in zip(ways, (out, back), strict=True) if by_rate]
    if not measured:
        return ""
    rates = " and ".join(f"{rate / 1e9:g} GB/s {name}" for name, rate, _ in measured)
    options = ", ".join(option for _, _, option in measured)
    say = "say" if len(measured) > 1 else "says"
    return f"{memory / 1e9:.1f} GB at {rates}, {LEAST:g} s at least, as measured on one H100; {options} {say} otherwise"

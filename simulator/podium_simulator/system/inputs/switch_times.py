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
from podium_core.planning.slots.rebalancing import migration_seconds
from podium_core.schema.checkpointing import APP_CHECKPOINT
from podium_simulator.system.inputs.scenario import Method, Timing

# methods that suspend a trial in place, and whether its memory stays on the GPU
KEEPS_MEMORY: Mapping[str, bool] = MappingProxyType({"freeze": True, "cuda-checkpoint": False})
MOVES_MEMORY = "cuda-checkpoint"  # the method that live migration is based on
METHODS = (*KEEPS_MEMORY, CONTAINER_CHECKPOINT, APP_CHECKPOINT)
SUSPEND_RATE, RESUME_RATE = 2.0e9, 4.9e9  # bytes per second
MIN_SECONDS = 0.39  # smallest seconds of one direction


def switch_method(name: str, memory: int | None, suspend: float | None, resume: float | None, usual: float) -> Method:
    """Return the method with its durations.

    `memory`: bytes of a trial on all of its GPUs. `suspend`, `resume`: given seconds, which take precedence. `usual`:
    seconds where nothing is moved, or the memory is unknown. For APP_CHECKPOINT, `suspend` is the checkpoint; the start
    of a new pod is in the timing (`consistent`). With CONTAINER_CHECKPOINT a trial is suspended as with MOVES_MEMORY,
    and may migrate.
    """
    if name == CONTAINER_CHECKPOINT:
        return replace(
            with_migration(switch_method(MOVES_MEMORY, memory, suspend, resume, usual), memory or 0), name=name
        )
    if name == APP_CHECKPOINT:
        save = Timing().save if suspend is None else suspend
        return Method(name, save, suspends=False, basis="a checkpoint, then a new pod up to its first step")
    keeps = KEEPS_MEMORY[name]
    if keeps or memory is None:
        return Method(
            name, usual if suspend is None else suspend, usual if resume is None else resume, keeps_memory=keeps
        )
    return Method(
        name,
        _seconds(memory, SUSPEND_RATE) if suspend is None else suspend,
        _seconds(memory, RESUME_RATE) if resume is None else resume,
        keeps_memory=keeps,
        basis=_basis(memory, suspend is None, resume is None),
    )


def with_migration(method: Method, memory: int) -> Method:
    """Return the method on nodes that migrate trials live."""
    return replace(method, migrates=True, migration_seconds=migration_seconds(memory))


def keeps_memory(name: str) -> bool:
    """Return whether a trial's memory stays on its GPU while another trial runs there."""
    return KEEPS_MEMORY.get(name, name != CONTAINER_CHECKPOINT)


def is_undetermined(name: str, memory: int | None, suspend: float | None, resume: float | None) -> bool:
    """Return whether the duration of a switch is unknown.

    It is known if memory remains on the GPU, or if the size of the memory is given. Both durations together are enough
    as well, except for live migration.
    """
    return (
        not keeps_memory(name)
        and memory is None
        and (name == CONTAINER_CHECKPOINT or suspend is None or resume is None)
    )


def consistent(method: Method, timing: Timing) -> tuple[Method, Timing]:
    """Return method and timing in agreement with each other, where a trial checkpoints to release its GPU."""
    if method.suspends:
        return method, timing
    return replace(method, resume=timing.place + timing.gate + timing.load), replace(timing, save=method.suspend)


def _seconds(memory: int, rate: float) -> float:
    return max(MIN_SECONDS, round(memory / rate, 2))


def _basis(memory: int, out: bool, back: bool) -> str:
    """Return the text about the rates. `out`, `back`: whether that direction uses them."""
    directions = [("out", SUSPEND_RATE, "--suspend"), ("in", RESUME_RATE, "--resume")]
    measured = [direction for direction, by_rate in zip(directions, (out, back), strict=True) if by_rate]
    if not measured:
        return ""
    rates = " and ".join(f"{rate / 1e9:g} GB/s {name}" for name, rate, _ in measured)
    options = ", ".join(option for _, _, option in measured)
    text = f"{memory / 1e9:.1f} GB at {rates}, {MIN_SECONDS:g} s at least, as measured on one H100"
    return f"{text}; override with {options}"

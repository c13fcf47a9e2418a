"""What is to be scheduled: tasks with their seconds on a CPU and on a GPU, and how many of each there are.

Every method takes an `Instance`; `tasks_csv` and tests build them. Machines are numbered 0..m-1 (CPUs), then m..m+k-1
(GPUs). An infinite time means that the task cannot run on that side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SHORTEST, LONGEST = 1e-9, 1e9  # seconds: beyond these, sums of times lose the digits that a certificate needs
MOST = 10_000  # machines: beyond these the methods, which look at each of them, take minutes


class MakespanError(ValueError):
    """A "no" of this room: a CamelCase code and a sentence with field, value and cure."""

    code = "InvalidInstance"


class NoTasksError(MakespanError):
    code = "NoTasks"


class NoMachinesError(MakespanError):
    code = "NoMachines"


class TooManyMachinesError(MakespanError):
    code = "TooManyMachines"


class InvalidTimeError(MakespanError):
    code = "InvalidTime"


class NoFittingMachineError(MakespanError):
    code = "NoFittingMachine"


class InvalidNameError(MakespanError):
    code = "InvalidName"


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """`cpu`, `gpu`: seconds of each task on either side, shape (n,), inf where it cannot run; `cpus`, `gpus`: machines.

    A side without machines makes all its times infinite, so no method needs to ask. Raises MakespanError.
    """

    names: tuple[str, ...]
    cpu: Floats
    gpu: Floats
    cpus: int
    gpus: int

    @classmethod
    def of(
        cls, cpu: Iterable[float], gpu: Iterable[float], cpus: int, gpus: int, names: Sequence[str] = ()
    ) -> Instance:
        """From any sequences of seconds; tasks without names are called t0, t1, ..."""
        first, second = (np.array(list(times), dtype=np.float64) for times in (cpu, gpu))
        if first.shape != second.shape:
            raise InvalidTimeError(f"cpu has {first.size} times, gpu has {second.size}: give each task one of either")
        return cls(tuple(names) or tuple(f"t{i}" for i in range(first.size)), first, second, cpus, gpus)

    def __post_init__(self) -> None:
        check_machines(self.cpus, self.gpus)
        if not self.cpu.size:
            raise NoTasksError("tasks: there are none; give at least one")
        if len(self.names) != self.cpu.size or len(set(self.names)) != len(self.names):
            raise InvalidNameError("name: names must be as many as tasks, and no two alike")
        for name, on_cpu, on_gpu in zip(self.names, self.cpu.tolist(), self.gpu.tolist(), strict=True):
            check_task(name, on_cpu, on_gpu, self.cpus, self.gpus)
        for side, machines in (("cpu", self.cpus), ("gpu", self.gpus)):
            times = np.where(machines > 0, getattr(self, side), np.inf)
            times.setflags(write=False)
            object.__setattr__(self, side, times)

    @property
    def n(self) -> int:
        return int(self.cpu.size)

    @property
    def machines(self) -> int:
        return self.cpus + self.gpus

    def machine_name(self, machine: int) -> str:
        return f"cpu-{machine}" if machine < self.cpus else f"gpu-{machine - self.cpus}"

    def table(self) -> Floats:
        """Seconds of every task on every machine, shape (n, m + k)."""
        return np.concatenate(
            [np.repeat(self.cpu[:, None], self.cpus, axis=1), np.repeat(self.gpu[:, None], self.gpus, axis=1)], axis=1
        )

    def seconds_on(self, machine_of: Ints) -> Floats:
        """Seconds of each task where `machine_of` puts it, shape (n,)."""
        return np.where(machine_of < self.cpus, self.cpu, self.gpu)

    def loads(self, machine_of: Ints) -> Floats:
        """Seconds of work of each machine, shape (m + k,)."""
        return np.bincount(machine_of, self.seconds_on(machine_of), self.machines).astype(np.float64, copy=False)

    def acceleration(self) -> Floats:
        """Seconds on a CPU over seconds on a GPU: inf for GPU-only tasks, 0 for CPU-only ones; shape (n,)."""
        return self.cpu / self.gpu

    def taken(self, order: Ints) -> Instance:
        """The same tasks in another order."""
        return Instance(
            tuple(self.names[i] for i in order.tolist()), self.cpu[order], self.gpu[order], self.cpus, self.gpus
        )


def check_task(name: str, cpu: float, gpu: float, cpus: int, gpus: int) -> None:
    """Raises MakespanError naming the task and the field."""
    for field, seconds in (("cpu", cpu), ("gpu", gpu)):
        if math.isnan(seconds) or (math.isfinite(seconds) and not SHORTEST <= seconds <= LONGEST) or seconds < 0:
            text = f"task {name}: {field}: {seconds:g} s is no time of a task"
            raise InvalidTimeError(
                f"{text}; give {SHORTEST:g} to {LONGEST:g} seconds, or leave it empty if it cannot run there"
            )
    if not (math.isfinite(cpu) and cpus) and not (math.isfinite(gpu) and gpus):
        text = (
            f"task {name}: cpu, gpu: it fits nowhere (cpu {cpu:g} s with {cpus} CPUs, gpu {gpu:g} s with {gpus} GPUs)"
        )
        raise NoFittingMachineError(f"{text}; give it a time on a side that has machines, or take it out")


def check_machines(cpus: int, gpus: int) -> None:
    """Raises NoMachinesError, TooManyMachinesError."""
    for field, given in (("cpus", cpus), ("gpus", gpus)):
        if given < 0:
            raise NoMachinesError(f"{field}: {given} machines are not possible; give 0 or more")
        if given > MOST:
            text = f"{field}: {given} machines are more than can be looked through; give {MOST} or fewer"
            raise TooManyMachinesError(f"{text} (more than there are tasks change nothing)")
    if cpus + gpus == 0:
        raise NoMachinesError("cpus, gpus: there is no machine; give at least one of either")

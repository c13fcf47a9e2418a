"""The input of makespan scheduling: tasks with CPU and GPU times, and the numbers of machines.

Machines are numbered 0..m-1 (CPUs), then m..m+k-1 (GPUs). An infinite time means that the task cannot run on that side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from podium_core.domain.phrases import one_line
from podium_optimisers.arrays import Floats, Ints

MIN_SECONDS, MAX_SECONDS = 1e-9, 1e9  # outside this range, sums of times lose the digits that a certificate needs
MAX_MACHINES = 10_000  # above this the methods take minutes


class MakespanError(ValueError):
    """Invalid input or an invalid schedule: `code` is a CamelCase identifier.

    The message names the field, the value and the cure.
    """

    code = "InvalidInstance"

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class NoTasksError(MakespanError):
    """The instance has no tasks."""

    code = "NoTasks"


class NoMachinesError(MakespanError):
    """The instance has no machines, or a negative number of them."""

    code = "NoMachines"


class TooManyMachinesError(MakespanError):
    """A side has more machines than the methods can handle."""

    code = "TooManyMachines"


class InvalidTimeError(MakespanError):
    """A time is not a valid duration of a task."""

    code = "InvalidTime"


class NoFittingMachineError(MakespanError):
    """A task cannot run on any machine."""

    code = "NoFittingMachine"


class InvalidNameError(MakespanError):
    """Task names are missing, too long or not unique."""

    code = "InvalidName"


@dataclass(frozen=True, slots=True, eq=False)
class MakespanInstance:
    """An instance: `cpu` and `gpu` are the seconds of each task on either side, shape (n,).

    A time is inf if the task cannot run on that side. `cpus` and `gpus` are the numbers of machines. All times of a
    side without machines become inf, so the methods need no special case. Raises MakespanError.
    """

    names: tuple[str, ...]
    cpu: Floats
    gpu: Floats
    cpus: int
    gpus: int

    @classmethod
    def of(
        cls, cpu: Iterable[float], gpu: Iterable[float], cpus: int, gpus: int, names: Sequence[str] = ()
    ) -> MakespanInstance:
        """Return an instance from any sequences of seconds. Tasks without names are called t0, t1, ..."""
        first, second = (np.array(list(times), dtype=np.float64) for times in (cpu, gpu))
        if first.shape != second.shape:
            raise InvalidTimeError(
                f"cpu has {first.size} times and gpu has {second.size}; give each task one time on each side"
            )
        return cls(tuple(names) or tuple(f"t{i}" for i in range(first.size)), first, second, cpus, gpus)

    def __post_init__(self) -> None:
        check_machines(self.cpus, self.gpus)
        if not self.cpu.size:
            raise NoTasksError("tasks: the list is empty; give at least one task")
        if len(self.names) != self.cpu.size or len(set(self.names)) != len(self.names):
            raise InvalidNameError("name: give one name for each task, and no name twice")
        for name, on_cpu, on_gpu in zip(self.names, self.cpu.tolist(), self.gpu.tolist(), strict=True):
            check_task(name, on_cpu, on_gpu, self.cpus, self.gpus)
        for side, machines in (("cpu", self.cpus), ("gpu", self.gpus)):
            times = np.where(machines > 0, getattr(self, side), np.inf)
            times.setflags(write=False)
            object.__setattr__(self, side, times)

    @property
    def n(self) -> int:
        """Return the number of tasks."""
        return int(self.cpu.size)

    @property
    def machines(self) -> int:
        """Return the number of machines."""
        return self.cpus + self.gpus

    def machine_name(self, machine: int) -> str:
        """Return the name of a machine, such as cpu-0 or gpu-1."""
        return f"cpu-{machine}" if machine < self.cpus else f"gpu-{machine - self.cpus}"

    def time_matrix(self) -> Floats:
        """Return the seconds of every task on every machine, shape (n, m + k)."""
        return np.concatenate(
            [np.repeat(self.cpu[:, None], self.cpus, axis=1), np.repeat(self.gpu[:, None], self.gpus, axis=1)], axis=1
        )

    def seconds_on(self, machine_of: Ints) -> Floats:
        """Return the seconds of each task on its assigned machine, shape (n,)."""
        return np.where(machine_of < self.cpus, self.cpu, self.gpu)

    def loads(self, machine_of: Ints) -> Floats:
        """Return the seconds of work of each machine, shape (m + k,)."""
        return np.bincount(machine_of, self.seconds_on(machine_of), self.machines).astype(np.float64, copy=False)

    def acceleration(self) -> Floats:
        """Return CPU time / GPU time of each task, shape (n,).

        It is inf for GPU-only tasks and 0 for CPU-only ones.
        """
        return self.cpu / self.gpu

    def reordered(self, order: Ints) -> MakespanInstance:
        """Return an instance with the same tasks in another order."""
        return MakespanInstance(
            tuple(self.names[i] for i in order.tolist()), self.cpu[order], self.gpu[order], self.cpus, self.gpus
        )


def check_task(name: str, cpu: float, gpu: float, cpus: int, gpus: int) -> None:
    """Raise MakespanError that names the task and the field if the task is invalid."""
    for field, seconds in (("cpu", cpu), ("gpu", gpu)):
        if math.isnan(seconds) or (math.isfinite(seconds) and not MIN_SECONDS <= seconds <= MAX_SECONDS) or seconds < 0:
            text = f"task {name}: {field}: {seconds:g} s is out of range"
            cure = f"give {MIN_SECONDS:g} to {MAX_SECONDS:g} seconds, or leave it empty if the task cannot run there"
            raise InvalidTimeError(f"{text}; {cure}")
    if not (math.isfinite(cpu) and cpus) and not (math.isfinite(gpu) and gpus):
        text = (
            f"task {name}: cpu, gpu: no machine can run it (cpu {cpu:g} s with {cpus} CPUs, "
            f"gpu {gpu:g} s with {gpus} GPUs)"
        )
        raise NoFittingMachineError(f"{text}; give a time on a side that has machines, or remove the task")


def check_machines(cpus: int, gpus: int) -> None:
    """Raise NoMachinesError or TooManyMachinesError if the numbers of machines are invalid."""
    for field, given in (("cpus", cpus), ("gpus", gpus)):
        if given < 0:
            raise NoMachinesError(f"{field}: {given} machines are impossible; give 0 or more")
        if given > MAX_MACHINES:
            text = f"{field}: {given} machines exceed the limit; give {MAX_MACHINES} or fewer"
            raise TooManyMachinesError(f"{text} (more machines than tasks change nothing)")
    if cpus + gpus == 0:
        raise NoMachinesError("cpus, gpus: there are no machines; give at least one")

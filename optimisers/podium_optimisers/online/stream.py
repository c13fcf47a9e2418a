"""The input of online rules: tasks with CPU time, GPU time and release time, and the machines."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.validation import InputError, require_count, require_number


@dataclass(frozen=True, slots=True)
class Task:
    """A task: seconds on a CPU, seconds on a GPU (inf: it cannot run there) and its release time."""

    name: str
    cpu: float
    gpu: float
    release: float = 0.0


@dataclass(frozen=True, slots=True)
class Stream:
    """Tasks in the order in which they become known. Machines 0..cpus-1 are CPUs; the GPUs follow."""

    tasks: tuple[Task, ...]
    cpus: int
    gpus: int

    @staticmethod
    def of(tasks: Iterable[Task], cpus: int, gpus: int) -> Stream:
        """Validate the tasks and sort them by release; equal releases keep their order."""
        require_count(cpus, "cpus", at_least=0)
        require_count(gpus, "gpus", at_least=0)
        if cpus + gpus == 0:
            raise InputError("NoMachines", "cpus, gpus", "there are no machines; give one or more")
        given = tuple(tasks)
        names = {task.name for task in given}
        for task in given:
            if task.name not in names:
                raise InputError(
                    "NameReserved", "name", "two tasks have this name; give each task its own name", task.name
                )
            names.discard(task.name)
            _check(task, cpus, gpus)
        return Stream(tuple(sorted(given, key=lambda task: task.release)), cpus, gpus)

    @property
    def cpu(self) -> Floats:
        """Return the seconds of each task on a CPU (n,)."""
        return np.array([task.cpu for task in self.tasks], dtype=np.float64)

    @property
    def gpu(self) -> Floats:
        """Return the seconds of each task on a GPU (n,)."""
        return np.array([task.gpu for task in self.tasks], dtype=np.float64)

    @property
    def release(self) -> Floats:
        """Return the release time of each task (n,)."""
        return np.array([task.release for task in self.tasks], dtype=np.float64)

    @property
    def sqrt_side_ratio(self) -> float:
        """Return s = sqrt(machines of the larger side / of the smaller), which the ratios depend on."""
        few, many = sorted((self.cpus, self.gpus))
        return math.sqrt(many / few) if few else 1.0


def _check(task: Task, cpus: int, gpus: int) -> None:
    """Raise InputError for an invalid time or a task that no machine can run."""
    for field, seconds in (("cpu", task.cpu), ("gpu", task.gpu)):
        if seconds != math.inf:
            require_number(seconds, field, item=task.name, above=0.0)
    require_number(task.release, "release", item=task.name, at_least=0.0)
    if not (cpus and math.isfinite(task.cpu)) and not (gpus and math.isfinite(task.gpu)):
        text = (
            f"no machine can run the task ({task.cpu:g} s on {cpus} CPUs, {task.gpu:g} s on {gpus} GPUs); "
            "give a finite time on a side that has machines"
        )
        raise InputError("NoFittingMachine", "cpu, gpu", text, task.name)

"""What arrives: tasks with a time on a CPU, on a GPU and a release time, and the machines. Input of every rule."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.queueing.checks import InputError, require, require_count

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Task:
    """Seconds on a CPU, seconds on a GPU (infinite: it cannot run there), and when it becomes known."""

    name: str
    cpu: float
    gpu: float
    release: float = 0.0


@dataclass(frozen=True, slots=True)
class Stream:
    """`tasks` in the order in which they become known; machines 0..cpus-1 are CPUs, the `gpus` after them GPUs."""

    tasks: tuple[Task, ...]
    cpus: int
    gpus: int

    @staticmethod
    def of(tasks: Iterable[Task], cpus: int, gpus: int) -> Stream:
        """Checked and sorted by release (tasks of one instant stay in the order given)."""
        require_count(cpus, "cpus", least=0)
        require_count(gpus, "gpus", least=0)
        if cpus + gpus == 0:
            raise InputError("NoMachines", "cpus, gpus", "there is no machine; give one or more")
        given = tuple(tasks)
        names = {task.name for task in given}
        for task in given:
            if task.name not in names:
                raise InputError("NameReserved", "name", "is the name of two tasks; give each its own", task.name)
            names.discard(task.name)
            _check(task, cpus, gpus)
        return Stream(tuple(sorted(given, key=lambda task: task.release)), cpus, gpus)

    @property
    def cpu(self) -> Floats:
        return np.array([task.cpu for task in self.tasks], dtype=np.float64)

    @property
    def gpu(self) -> Floats:
        return np.array([task.gpu for task in self.tasks], dtype=np.float64)

    @property
    def release(self) -> Floats:
        return np.array([task.release for task in self.tasks], dtype=np.float64)

    @property
    def spread(self) -> float:
        """sqrt(machines of the larger side / of the smaller): what the ratios of ER-LS and QA grow with."""
        few, many = sorted((self.cpus, self.gpus))
        return math.sqrt(many / few) if few else 1.0


def _check(task: Task, cpus: int, gpus: int) -> None:
    for field, seconds in (("cpu", task.cpu), ("gpu", task.gpu)):
        if seconds != math.inf:
            require(seconds, field, task=task.name, above=0.0)
    require(task.release, "release", task=task.name, least=0.0)
    if not (cpus and math.isfinite(task.cpu)) and not (gpus and math.isfinite(task.gpu)):
        text = (
            f"{task.cpu:g} s on {cpus} CPUs or {task.gpu:g} on {gpus} GPUs fit nowhere; give times where machines are"
        )
        raise InputError("NoFittingMachine", "cpu, gpu", text, task.name)

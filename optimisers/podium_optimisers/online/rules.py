"""Online rules for m CPUs and k GPUs: each task gets its machine, for good, when it becomes known.

Each rule has a proven competitive ratio to the optimum that knows all arrivals, for independent tasks with release
times. Proofs and sources are in docs/explanation/optimisers/online.md. With s = sqrt(machines of the larger side / of
the smaller):

  graham  the machine that is idle first                2 x largest speed-up of a side over the other (no bound in m, k)
  list    the machine where it ends first (greedy, EFT) m + k         Aspnes, Azar, Fiat, Plotkin, Waarts (JACM 1997)
  er_ls   the smaller side if the task ends there       4 s           Amaris, Lucarelli, Mommessin, Trystram (2017)
          within its time on the larger; else as qa
  qa      the GPUs if cpu / gpu >= sqrt(m / k)          2 s + 1       Canon, Marchal, Simon, Vivien (2018)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from podium_optimisers.online.schedule import OnlineSchedule
from podium_optimisers.online.stream import Stream, Task


@dataclass(frozen=True, slots=True)
class MachineAvailability:
    """The state that a rule sees when a task arrives: machine counts and the first idle time of each side."""

    cpus: int
    gpus: int
    idle_cpu: float
    idle_gpu: float

    def ends(self, task: Task) -> tuple[float, float]:
        """Return when the task would end on a CPU and on a GPU if it were assigned now."""
        return max(task.release, self.idle_cpu) + task.cpu, max(task.release, self.idle_gpu) + task.gpu


TakesGpu = Callable[[Task, MachineAvailability], bool]


@dataclass(frozen=True, slots=True)
class OnlineRule:
    """An online rule. `competitive_ratio` returns the proven ratio, which no stream can exceed."""

    name: str
    takes_gpu: TakesGpu
    competitive_ratio: Callable[[Stream], float]


def graham(task: Task, view: MachineAvailability) -> bool:
    """Return whether a GPU is idle first; equal starts go to the faster side."""
    start_cpu, start_gpu = max(task.release, view.idle_cpu), max(task.release, view.idle_gpu)
    return start_gpu < start_cpu or (start_gpu == start_cpu and task.gpu <= task.cpu)


def earliest_finish(task: Task, view: MachineAvailability) -> bool:
    """Return whether the task ends first on a GPU; equal ends go to the faster side."""
    on_cpu, on_gpu = view.ends(task)
    return on_gpu < on_cpu or (on_gpu == on_cpu and task.gpu <= task.cpu)


def quick_allocation(task: Task, view: MachineAvailability) -> bool:
    """Return whether the task's own ratio exceeds the threshold; the load does not matter."""
    return task.cpu / task.gpu >= math.sqrt(view.cpus / view.gpus)


def er_ls(task: Task, view: MachineAvailability) -> bool:
    """Return whether the task takes a GPU: the smaller side if it ends in time, else by its ratio."""
    on_cpu, on_gpu = view.ends(task)
    if view.cpus >= view.gpus and task.cpu >= on_gpu:
        return True
    if view.cpus < view.gpus and task.gpu >= on_cpu:
        return False
    return task.cpu / task.gpu > math.sqrt(view.cpus / view.gpus)


def _graham_ratio(stream: Stream) -> float:
    """Return the competitive ratio of `graham`, which depends on the tasks' speed-ups."""
    if not (stream.cpus and stream.gpus):
        return 2.0
    return 2.0 * max((max(t.cpu / t.gpu, t.gpu / t.cpu) for t in stream.tasks), default=1.0)


RULES: Mapping[str, OnlineRule] = {
    rule.name: rule
    for rule in (
        OnlineRule("graham", graham, _graham_ratio),
        OnlineRule("list", earliest_finish, lambda stream: float(stream.cpus + stream.gpus)),
        OnlineRule("er_ls", er_ls, lambda stream: 4.0 * stream.sqrt_side_ratio),
        OnlineRule("qa", quick_allocation, lambda stream: 2.0 * stream.sqrt_side_ratio + 1.0),
    )
}


def run_rule(stream: Stream, rule: OnlineRule) -> OnlineSchedule:
    """Assign the tasks one by one.

    On its side a task gets the machine that is idle first. O(n log machines).
    """
    idle_cpus = [(0.0, machine) for machine in range(stream.cpus)]
    idle_gpus = [(0.0, stream.cpus + machine) for machine in range(stream.gpus)]
    count = len(stream.tasks)
    machines, starts, ends = np.empty(count, np.int64), np.empty(count), np.empty(count)
    for number, task in enumerate(stream.tasks):
        side = idle_gpus if _side(task, idle_cpus, idle_gpus, rule) else idle_cpus
        idle, machine = side[0]
        machines[number] = machine
        starts[number] = max(task.release, idle)
        ends[number] = starts[number] + (task.gpu if side is idle_gpus else task.cpu)
        heapq.heapreplace(side, (float(ends[number]), machine))
    return OnlineSchedule(stream, machines, starts, ends)


def _side(task: Task, cpus: list[tuple[float, int]], gpus: list[tuple[float, int]], rule: OnlineRule) -> bool:
    """Return True for GPU. The rule decides only where there is a choice."""
    if not cpus or math.isinf(task.cpu):
        return True
    if not gpus or math.isinf(task.gpu):
        return False
    return rule.takes_gpu(task, MachineAvailability(len(cpus), len(gpus), cpus[0][0], gpus[0][0]))

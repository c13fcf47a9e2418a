"""Online rules for (m, k) machines: each task is placed for good when it becomes known. Called by benchmark and tests.

Each rule has its proven ratio to the optimum that knows all arrivals, for independent tasks with release times; proofs
and sources are in docs/optimisers-online.md. With s = sqrt(machines of the larger side / of the smaller):

  graham  whichever machine is idle first               2 x largest speed-up of a side over the other (no bound in m, k)
  list    where it ends first (greedy, EFT)             m + k         Aspnes, Azar, Fiat, Plotkin, Waarts (JACM 1997)
  er_ls   the scarce side if that ends by the other's   4 s           Amaris, Lucarelli, Mommessin, Trystram (2017)
          time alone; else as qa
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
class View:
    """What a rule sees when a task arrives: counts of machines and when the first of each side is idle (seconds)."""

    cpus: int
    gpus: int
    idle_cpu: float
    idle_gpu: float

    def ends(self, task: Task) -> tuple[float, float]:
        """When the task would end on a CPU and on a GPU, if it went there now."""
        return max(task.release, self.idle_cpu) + task.cpu, max(task.release, self.idle_gpu) + task.gpu


TakesGpu = Callable[[Task, View], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    takes_gpu: TakesGpu
    proven: Callable[[Stream], float]  # the ratio that no stream can exceed


def graham(task: Task, view: View) -> bool:
    start_cpu, start_gpu = max(task.release, view.idle_cpu), max(task.release, view.idle_gpu)
    return start_gpu < start_cpu or (start_gpu == start_cpu and task.gpu <= task.cpu)


def earliest_finish(task: Task, view: View) -> bool:
    on_cpu, on_gpu = view.ends(task)
    return on_gpu < on_cpu or (on_gpu == on_cpu and task.gpu <= task.cpu)


def quick_allocation(task: Task, view: View) -> bool:
    """Asks only the task's own ratio, no load at all."""
    return task.cpu / task.gpu >= math.sqrt(view.cpus / view.gpus)


def er_ls(task: Task, view: View) -> bool:
    on_cpu, on_gpu = view.ends(task)
    if view.cpus >= view.gpus and task.cpu >= on_gpu:
        return True
    if view.cpus < view.gpus and task.gpu >= on_cpu:
        return False
    return task.cpu / task.gpu > math.sqrt(view.cpus / view.gpus)


def _graham_ratio(stream: Stream) -> float:
    if not (stream.cpus and stream.gpus):
        return 2.0
    return 2.0 * max((max(t.cpu / t.gpu, t.gpu / t.cpu) for t in stream.tasks), default=1.0)


RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("graham", graham, _graham_ratio),
        Rule("list", earliest_finish, lambda stream: float(stream.cpus + stream.gpus)),
        Rule("er_ls", er_ls, lambda stream: 4.0 * stream.spread),
        Rule("qa", quick_allocation, lambda stream: 2.0 * stream.spread + 1.0),
    )
}


def run(stream: Stream, rule: Rule) -> OnlineSchedule:
    """Deals the tasks out one by one; on its side a task goes to the machine that is idle first. O(n log machines)."""
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


def _side(task: Task, cpus: list[tuple[float, int]], gpus: list[tuple[float, int]], rule: Rule) -> bool:
    """True: GPU. A rule is only asked where there is a choice."""
    if not cpus or math.isinf(task.cpu):
        return True
    if not gpus or math.isinf(task.gpu):
        return False
    return rule.takes_gpu(task, View(len(cpus), len(gpus), cpus[0][0], gpus[0][0]))

"""Adaptive reallocation: assign all waiting tasks again whenever a task arrives or a machine changes.

Running tasks are not moved. Waiting tasks have no machine yet, so moving them costs nothing. If all machines are
available throughout, the makespan is at most 4 (1 + 1e-6) times the certified bound, whatever the number of CPUs per
GPU (proof: docs/explanation/optimisers/online.md). A task on a machine that fails loses its work and starts again
elsewhere.

Two switches allow comparisons. With `reallocate=False` a task keeps the side (CPUs or GPUs) that `qa` chose on its
arrival. With `longest_first=False` each side runs its tasks in order of arrival; the ratio holds for any order.

Sides are chosen by DualHP, a dual approximation of ratio 2 (Bleuse, Kedad-Sidhoum, Monna, Mounie, Trystram 2015). Guess
a length L. Tasks longer than L on one side take the other side. The GPUs then take the tasks that gain most until each
has L seconds of work, and the CPUs take the rest. If the CPUs get more than L seconds each, no schedule of length L
exists. Otherwise each side ends by 2 L in any order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.arrays import Floats
from podium_optimisers.online.rules import RULES, MachineAvailability
from podium_optimisers.online.schedule import OnlineSchedule
from podium_optimisers.online.stream import Stream
from podium_optimisers.validation import InputError, require_number

PRECISION = 1e-6  # of the guess, relative
Sides = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MachineChange:
    """At `time` (seconds) the `machine` fails (`up` is false) or returns. All machines are available at 0."""

    time: float
    machine: int
    up: bool


@dataclass(frozen=True, slots=True)
class AdaptiveResult:
    """The result of an adaptive run.

    `moves`: how often a waiting task changed sides. `restarts` and `lost_work`: the runs and the seconds of work lost
    with machines.
    """

    schedule: OnlineSchedule
    moves: int
    restarts: int
    lost_work: float


def run_adaptive(
    stream: Stream,
    changes: Iterable[MachineChange] = (),
    *,
    reallocate: bool = True,
    longest_first: bool = True,
) -> AdaptiveResult:
    """Run a stream with reallocation. O(n) new plans of O(waiting log waiting) each.

    Raises InputError for an invalid change, or if a task never runs because its machines do not return.
    """
    ordered = sorted(changes, key=lambda change: change.time)
    for change in ordered:
        require_number(change.time, "time", item=f"machine {change.machine}", at_least=0.0)
        if not 0 <= change.machine < stream.cpus + stream.gpus:
            text = f"{change.machine} does not exist; give 0 to {stream.cpus + stream.gpus - 1}"
            raise InputError("UnknownMachine", "machine", text, f"machine {change.machine}")
    state = _AdaptiveState(stream, longest_first)
    arrivals, number = list(range(len(stream.tasks))), 0
    while True:
        arrival = stream.tasks[arrivals[0]].release if arrivals else math.inf
        changing = ordered[number].time if number < len(ordered) else math.inf
        now = min(state.next_end(), arrival, changing)
        if math.isinf(now):
            break
        state.end_tasks(now)
        replan = False
        while number < len(ordered) and ordered[number].time <= now:
            state.change(ordered[number], now)
            number, replan = number + 1, True
        while arrivals and stream.tasks[arrivals[0]].release <= now:
            state.arrive(arrivals.pop(0))
            replan = True
        if replan and reallocate:
            state.reallocate()
        state.start_tasks(now)
    if state.waiting:
        task = stream.tasks[state.waiting[0]]
        text = "the task never runs because its machines fail and do not return; add a later change with up=True"
        raise InputError("TaskNeverRuns", "machine", text, task.name)
    schedule = OnlineSchedule(stream, state.machine_of, state.starts, state.ends)
    return AdaptiveResult(schedule, state.moves, state.restarts, state.lost_work)


class _AdaptiveState:
    """The state of the machines and tasks at one moment. The event loop passes the current time."""

    def __init__(self, stream: Stream, longest_first: bool) -> None:
        self.stream, self.longest_first = stream, longest_first
        self.cpu, self.gpu = stream.cpu, stream.gpu
        count = len(stream.tasks)
        self.machine_of = np.full(count, -1, dtype=np.int64)
        self.starts, self.ends = np.zeros(count), np.zeros(count)
        self.on_gpu = np.zeros(count, dtype=np.bool_)  # the side of each waiting task
        self.waiting: list[int] = []
        self.running: dict[int, int] = {}  # machine: task
        self.up = [True] * (stream.cpus + stream.gpus)
        self.ending: list[tuple[float, int, int]] = []  # (end, machine, task); entries of lost runs are dropped
        self.moves, self.restarts, self.lost_work = 0, 0, 0.0

    def next_end(self) -> float:
        """Return when the next running task ends, or inf."""
        while self.ending:
            end, machine, task = self.ending[0]
            if self.running.get(machine) == task and self.ends[task] == end:
                return end
            heapq.heappop(self.ending)
        return math.inf

    def end_tasks(self, now: float) -> None:
        """Remove the tasks that end by `now`."""
        while self.next_end() <= now:
            _, machine, _ = heapq.heappop(self.ending)
            del self.running[machine]

    def change(self, change: MachineChange, now: float) -> None:
        """Apply a machine change. A task on a machine that fails waits again, ahead of the others."""
        self.up[change.machine] = change.up
        if change.up or change.machine not in self.running:
            return
        task = self.running.pop(change.machine)
        self.restarts += 1
        self.lost_work += now - float(self.starts[task])
        self.waiting.insert(0, task)

    def arrive(self, task: int) -> None:
        """Queue a task on the side that `qa` chooses."""
        stream, arrived = self.stream, self.stream.tasks[task]
        if not stream.cpus or math.isinf(arrived.cpu):
            side = True
        elif not stream.gpus or math.isinf(arrived.gpu):
            side = False
        else:
            side = RULES["qa"].takes_gpu(arrived, MachineAvailability(stream.cpus, stream.gpus, 0.0, 0.0))
        self.on_gpu[task] = side
        self.waiting.append(task)

    def reallocate(self) -> None:
        """Choose the sides of all waiting tasks again."""
        waiting_tasks = np.array(self.waiting, dtype=np.int64)
        cpus, gpus = sum(self.up[: self.stream.cpus]), sum(self.up[self.stream.cpus :])
        if not waiting_tasks.size or not cpus + gpus:
            return
        # a side without machines may get some later, so tasks that can run only there wait
        sides = dual_hp_sides(self.cpu[waiting_tasks], self.gpu[waiting_tasks], cpus, gpus)
        self.moves += int((sides != self.on_gpu[waiting_tasks]).sum())
        self.on_gpu[waiting_tasks] = sides

    def start_tasks(self, now: float) -> None:
        """Start waiting tasks on idle machines of their sides."""
        for gpu in (False, True):
            seconds = self.gpu if gpu else self.cpu
            machines = range(self.stream.cpus, len(self.up)) if gpu else range(self.stream.cpus)
            idle = [machine for machine in machines if self.up[machine] and machine not in self.running]
            own_tasks = [task for task in self.waiting if bool(self.on_gpu[task]) is gpu]
            if self.longest_first:
                own_tasks.sort(key=lambda task: (-seconds[task], task))
            for machine, task in zip(idle, own_tasks, strict=False):
                self.waiting.remove(task)
                self.running[machine] = task
                self.machine_of[task], self.starts[task] = machine, now
                self.ends[task] = now + seconds[task]
                heapq.heappush(self.ending, (float(self.ends[task]), machine, task))


def dual_hp_sides(cpu: Floats, gpu: Floats, cpus: int, gpus: int) -> Sides:
    """Return the side of each task by DualHP, True for GPU, shape (n,). O(n log n) for each guess.

    A side without machines gets only the tasks that can run nowhere else.
    """
    if not cpus or not gpus:
        return np.isinf(cpu) if not gpus else np.isfinite(gpu)
    order = np.argsort(-(cpu / gpu), kind="stable")
    best = np.minimum(cpu, gpu)
    impossible, possible = 0.0, float(best.sum())
    chosen = _sides(cpu, gpu, cpus, gpus, order, possible)
    if chosen is None:
        raise AssertionError("the sum of the shortest times is always a feasible length")
    while possible - impossible > PRECISION * possible:
        guess = (impossible + possible) / 2.0
        result = _sides(cpu, gpu, cpus, gpus, order, guess)
        if result is None:
            impossible = guess
        else:
            possible, chosen = guess, result
    return chosen


def _sides(cpu: Floats, gpu: Floats, cpus: int, gpus: int, order: NDArray[np.int64], guess: float) -> Sides | None:
    """Return sides for a schedule of at most 2 `guess`, or None: no schedule is as short as `guess`."""
    guess_up = guess * (1.0 + 1e-12)
    must_gpu, must_cpu = cpu > guess_up, gpu > guess_up
    if (must_gpu & must_cpu).any() or gpu[must_gpu].sum() > gpus * guess_up:
        return None
    free = order[~(must_gpu | must_cpu)[order]]
    before = gpu[must_gpu].sum() + np.cumsum(gpu[free]) - gpu[free]
    sides = must_gpu.copy()
    sides[free[before < gpus * guess_up]] = True  # the last task may end after the guess
    return sides if cpu[~sides].sum() <= cpus * guess_up else None

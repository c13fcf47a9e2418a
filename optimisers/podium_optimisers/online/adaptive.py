"""Adaptive reallocation: whenever a task arrives or a machine goes or comes, all that still wait are dealt out anew.

Called by the benchmark. Running tasks stay; what waits has no machine yet, so moving it costs nothing. With all
machines there throughout, the makespan is at most 4 (1 + 1e-6) times the certified bound, however many CPUs there are
per GPU (proof: docs/optimisers-online.md). A machine that goes takes its task's work with it: it starts again
elsewhere. To compare with: `reallocate=False`, a task keeps the side that `qa` gave it on arrival;
`longest_first=False`, each side takes its tasks in order of arrival (the ratio holds in any order).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.online.balance import balanced
from podium_optimisers.online.rules import RULES, View
from podium_optimisers.online.schedule import OnlineSchedule
from podium_optimisers.online.stream import Stream
from podium_optimisers.queueing.checks import InputError, require


@dataclass(frozen=True, slots=True)
class MachineChange:
    """At `time` (seconds) `machine` goes (`up` false) or comes back. All machines are there at 0."""

    time: float
    machine: int
    up: bool


@dataclass(frozen=True, slots=True)
class Adapted:
    """`moves`: how often a waiting task changed sides; `restarts` and `wasted` (seconds): lost with machines."""

    schedule: OnlineSchedule
    moves: int
    restarts: int
    wasted: float


def run_adaptive(
    stream: Stream,
    changes: Iterable[MachineChange] = (),
    *,
    reallocate: bool = True,
    longest_first: bool = True,
) -> Adapted:
    """O(n) re-plans of O(waiting log waiting) each."""
    ordered = sorted(changes, key=lambda change: change.time)
    for change in ordered:
        require(change.time, "time", task=f"machine {change.machine}", least=0.0)
        if not 0 <= change.machine < stream.cpus + stream.gpus:
            text = f"{change.machine} is none of the {stream.cpus + stream.gpus} machines; count from 0"
            raise InputError("UnknownMachine", "machine", text, f"machine {change.machine}")
    state = _State(stream, longest_first)
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
        text = "never runs: the machines for it are gone and do not come back; add a later change that is up"
        raise InputError("TaskNeverRuns", "machine", text, task.name)
    schedule = OnlineSchedule(stream, state.machine_of, state.starts, state.ends)
    return Adapted(schedule, state.moves, state.restarts, state.wasted)


class _State:
    """The cluster at one moment; every method takes `now` from the loop above."""

    def __init__(self, stream: Stream, longest_first: bool) -> None:
        self.stream, self.longest_first = stream, longest_first
        self.cpu, self.gpu = stream.cpu, stream.gpu
        count = len(stream.tasks)
        self.machine_of = np.full(count, -1, dtype=np.int64)
        self.starts, self.ends = np.zeros(count), np.zeros(count)
        self.on_gpu = np.zeros(count, dtype=np.bool_)  # the side of who waits
        self.waiting: list[int] = []
        self.running: dict[int, int] = {}  # machine: task
        self.up = [True] * (stream.cpus + stream.gpus)
        self.ending: list[tuple[float, int, int]] = []  # (end, machine, task); entries of lost runs are skipped
        self.moves, self.restarts, self.wasted = 0, 0, 0.0

    def next_end(self) -> float:
        while self.ending:
            end, machine, task = self.ending[0]
            if self.running.get(machine) == task and self.ends[task] == end:
                return end
            heapq.heappop(self.ending)
        return math.inf

    def end_tasks(self, now: float) -> None:
        while self.next_end() <= now:
            _, machine, _ = heapq.heappop(self.ending)
            del self.running[machine]

    def change(self, change: MachineChange, now: float) -> None:
        self.up[change.machine] = change.up
        if change.up or change.machine not in self.running:
            return
        task = self.running.pop(change.machine)
        self.restarts += 1
        self.wasted += now - float(self.starts[task])
        self.waiting.insert(0, task)

    def arrive(self, task: int) -> None:
        stream, given = self.stream, self.stream.tasks[task]
        if not stream.cpus or math.isinf(given.cpu):
            side = True
        elif not stream.gpus or math.isinf(given.gpu):
            side = False
        else:
            side = RULES["qa"].takes_gpu(given, View(stream.cpus, stream.gpus, 0.0, 0.0))
        self.on_gpu[task] = side
        self.waiting.append(task)

    def reallocate(self) -> None:
        here = np.array(self.waiting, dtype=np.int64)
        cpus, gpus = sum(self.up[: self.stream.cpus]), sum(self.up[self.stream.cpus :])
        if not here.size or not cpus + gpus:
            return
        # a side that has no machines at all now may have some later: its own tasks wait for them
        sides = balanced(self.cpu[here], self.gpu[here], cpus, gpus)
        self.moves += int((sides != self.on_gpu[here]).sum())
        self.on_gpu[here] = sides

    def start_tasks(self, now: float) -> None:
        for gpu in (False, True):
            seconds = self.gpu if gpu else self.cpu
            machines = range(self.stream.cpus, len(self.up)) if gpu else range(self.stream.cpus)
            idle = [machine for machine in machines if self.up[machine] and machine not in self.running]
            mine = [task for task in self.waiting if bool(self.on_gpu[task]) is gpu]
            if self.longest_first:
                mine.sort(key=lambda task: (-seconds[task], task))
            for machine, task in zip(idle, mine, strict=False):
                self.waiting.remove(task)
                self.running[machine] = task
                self.machine_of[task], self.starts[task] = machine, now
                self.ends[task] = now + seconds[task]
                heapq.heappush(self.ending, (float(self.ends[task]), machine, task))

"""The schedule of an online rule and its distance from the certified bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.arrays import Floats
from podium_optimisers.online.bound import lower_bound
from podium_optimisers.online.stream import Stream

TOLERANCE = 1e-9  # relative


@dataclass(frozen=True, slots=True)
class OnlineSchedule:
    """The machine, start and end of each task (n,), in the order of `stream.tasks`; times in seconds.

    Where a machine failed under a task, the schedule holds the task's last run.
    """

    stream: Stream
    machine: NDArray[np.int64]
    starts: Floats
    ends: Floats
    lower_bound: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower_bound", lower_bound(self.stream))

    @property
    def on_gpu(self) -> NDArray[np.bool_]:
        """Return which tasks run on a GPU (n,)."""
        return self.machine >= self.stream.cpus

    @property
    def makespan(self) -> float:
        """Return the end of the last task in seconds."""
        return float(self.ends.max(initial=0.0))

    @property
    def ratio(self) -> float:
        """Return makespan / certified bound, which is at least the true ratio on this stream."""
        return self.makespan / self.lower_bound if self.stream.tasks else 1.0


def violations(schedule: OnlineSchedule) -> Iterator[str]:
    """Yield a sentence for each violated constraint; none if the schedule is feasible.

    The check uses only the definition of a schedule and none of the code that built it.
    """
    stream = schedule.stream
    for number, task in enumerate(stream.tasks):
        machine, start, end = int(schedule.machine[number]), schedule.starts[number], schedule.ends[number]
        if not 0 <= machine < stream.cpus + stream.gpus:
            yield f"{task.name}: machine {machine} does not exist"
        if start < task.release:
            yield f"{task.name}: starts at {start:g}, released at {task.release:g}"
        needed = task.gpu if machine >= stream.cpus else task.cpu
        if not abs(end - start - needed) <= TOLERANCE * max(end, 1.0):
            yield f"{task.name}: runs {end - start:g} s on machine {machine}, needs {needed:g} s"
    for machine in range(stream.cpus + stream.gpus):
        mine = np.flatnonzero(schedule.machine == machine)
        mine = mine[np.argsort(schedule.starts[mine], kind="stable")]
        for before, after in pairwise(mine):
            if schedule.ends[before] > schedule.starts[after] + TOLERANCE * schedule.ends[before]:
                yield f"{stream.tasks[before].name} and {stream.tasks[after].name} overlap on machine {machine}"

"""Periodic tasks: each runs one network once a period and has a relative deadline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from podium_realtime.model.errors import RealtimeError, require_between, require_positive
from podium_realtime.model.network import InferenceNetwork


class Priority(IntEnum):
    """The two classes of tasks in DARIS.

    High-priority jobs are always admitted, low-priority jobs only if they fit.
    """

    HIGH = 0
    LOW = 1


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task with constrained deadline (at most the period). All times are in seconds.

    `deadline`: relative to the release of each job.
    `offset`: time of the first release.
    """

    name: str
    network: InferenceNetwork
    period: float
    deadline: float
    priority: Priority = Priority.LOW
    offset: float = 0.0

    def __post_init__(self) -> None:
        where = f"task {self.name or '?'}"
        if not self.name:
            raise RealtimeError("Required", f"{where}: name", "is empty; give each task a name")
        require_positive(self.period, f"{where}: period", "s")
        require_positive(self.deadline, f"{where}: deadline", "s")
        require_between(self.offset, 0.0, 3600.0, f"{where}: offset")
        if self.deadline > self.period:
            problem = f"must be at most the period of {self.period:g} s (got {self.deadline:g} s)"
            raise RealtimeError("DeadlineAfterPeriod", f"{where}: deadline", problem)

    @property
    def rate(self) -> float:
        """Frames a second."""
        return 1.0 / self.period


def require_distinct(tasks: Sequence[PeriodicTask]) -> None:
    """Raise RealtimeError if two tasks share a name, because results are reported by name."""
    for name, times in Counter(task.name for task in tasks).items():
        if times > 1:
            problem = f"is used {times} times; give each task its own name"
            raise RealtimeError("DuplicateName", f"task {name}: name", problem)


def identical_tasks(
    count: int, network: InferenceNetwork, fps: float, high: int = 0, spread: bool = True
) -> tuple[PeriodicTask, ...]:
    """Return the task set of the papers: `count` tasks of one network at one rate, with deadline = period.

    `high`: number of high-priority tasks; they come first.
    `spread`: distribute the first releases evenly over the period; otherwise all tasks are released at once.
    """
    require_positive(fps, "fps", "frames a second")
    period = 1.0 / fps
    return tuple(
        PeriodicTask(
            f"{network.name}-{number:02d}",
            network,
            period,
            period,
            Priority.HIGH if number < high else Priority.LOW,
            offset=period * number / count if spread else 0.0,
        )
        for number in range(count)
    )

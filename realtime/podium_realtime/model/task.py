"""A periodic task: one network, inferred once a period, each time before its deadline. Read by every scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from podium_realtime.model.network import Network
from podium_realtime.model.refusal import RealtimeError, require_between, require_positive


class Priority(IntEnum):
    """DARIS' two classes of tasks: high ones are never refused, low ones only if they fit."""

    HIGH = 0
    LOW = 1


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """Times in seconds. `deadline` is relative to the release and at most the period (constrained deadlines)."""

    name: str
    network: Network
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
            told = f"{self.deadline:g} s is after the next release ({self.period:g} s); give at most the period"
            raise RealtimeError("DeadlineAfterPeriod", f"{where}: deadline", told)

    @property
    def rate(self) -> float:
        """Frames a second."""
        return 1.0 / self.period


def require_distinct(tasks: Sequence[PeriodicTask]) -> None:
    """Raises RealtimeError where two tasks share a name: results are reported by name."""
    for name, times in Counter(task.name for task in tasks).items():
        if times > 1:
            raise RealtimeError("DuplicateName", f"task {name}: name", f"is used {times} times; names must differ")


def identical(count: int, network: Network, fps: float, high: int = 0, spread: bool = True) -> tuple[PeriodicTask, ...]:
    """The paper's load: `count` tasks of one network at one rate with deadline = period, of which `high` are of high
    priority. Releases are spread evenly over the period unless `spread` is False (then all come at once).
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

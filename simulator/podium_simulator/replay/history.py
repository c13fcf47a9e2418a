"""Facts of a replay, from which the metrics are computed. `engine` writes them, `metrics` reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluation that a trial reached at this time. `value`: larger is better, -inf where not finite."""

    time: float
    trial: int
    value: float


@dataclass(frozen=True, slots=True)
class History:
    """Record of a replay.

    Times are seconds since the start of the search; GPU-seconds include switches.
    """

    reached: tuple[Evaluation, ...]  # by time
    completed: Mapping[int, float]  # trial -> time of its own end
    waits: Mapping[int, float]  # trial -> its longest wait for a GPU; without trials that the policy ended
    busy: tuple[tuple[float, float], ...]  # (start, end) of each period of a trial on a GPU and of each suspension
    # (start, end) of each suspension and resumption; each is part of a busy period
    switches: tuple[tuple[float, float], ...]
    repeated_seconds: float  # training of trials that the policy ended and that had to start again
    plan_seconds: float  # GPU-seconds until the policy's own plan was over
    decisions: int

    @property
    def gpu_seconds(self) -> float:
        return math.fsum(end - start for start, end in self.busy)

    @property
    def switch_seconds(self) -> float:
        return self.switch_seconds_until(math.inf)

    def gpu_seconds_until(self, time: float) -> float:
        return _until(self.busy, time)

    def switch_seconds_until(self, time: float) -> float:
        return _until(self.switches, time)


def _until(spans: Iterable[tuple[float, float]], time: float) -> float:
    return math.fsum(max(0.0, min(end, time) - start) for start, end in spans)

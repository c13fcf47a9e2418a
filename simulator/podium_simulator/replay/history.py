"""What happened in a replay: the facts that metrics are made of. Written by `replay`, read by `metrics`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reached:
    """A trial had trained to an evaluation at this time; `value`: larger is better, -inf where not finite."""

    time: float
    trial: int
    value: float


@dataclass(frozen=True, slots=True)
class History:
    """Times are seconds since the start of the search; GPU seconds include the switches."""

    reached: tuple[Reached, ...]  # by time
    completed: Mapping[int, float]  # trial -> when it ended by itself
    waits: Mapping[int, float]  # trial -> its longest wait for a GPU; those that a policy ended are not there
    busy: tuple[tuple[float, float], ...]  # from, to: every stay of a trial on a GPU and every suspension
    switches: tuple[tuple[float, float], ...]  # from, to: every suspension and resumption, each a part of a busy stay
    again_seconds: float  # training of trials that the policy ended and that had to begin again
    plan_seconds: float  # GPU seconds until the policy's own plan was over
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

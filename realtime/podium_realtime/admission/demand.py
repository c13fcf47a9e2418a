"""Schedulability test: processor demand of EDF with non-preemptive stages in one context.

Jobs run in EDF order of their deadlines, one stage at a time, and a running stage is not preempted. All deadlines are
met if for every t > 0:  sum_i floor((t - D_i) / T_i + 1) C_i  +  B(t)  <=  t,  where B(t) is the longest stage of the
tasks with D > t (such a stage may have started just before the busy interval). Source: S. Baruah, "The
limited-preemption uniprocessor scheduling of sporadic task systems", ECRTS 2005. Deadlines are constrained (D <= T).

The test is sufficient, not necessary: an accepted task set meets all deadlines for any offsets. A rejected one might
have met them as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_TEST_POINTS = 20_000  # instants at which the demand is computed; beyond (utilisation near 1) a density test decides


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """A task in one context. All times are in seconds.

    `execution_time`: worst-case time of the whole network.
    `longest_stage`: worst-case time of its longest stage.
    """

    period: float
    deadline: float
    execution_time: float
    longest_stage: float


@dataclass(frozen=True, slots=True)
class SchedulabilityResult:
    """Result of the schedulability test.

    `demand`: seconds of work (with blocking) that are due within `interval` seconds. The interval is the one in which
        the demand comes closest to the interval's length, or exceeds it first.
    """

    schedulable: bool
    code: str
    utilisation: float
    demand: float
    interval: float


def processor_demand_test(demands: Sequence[TaskDemand]) -> SchedulabilityResult:
    """Return whether the tasks meet all deadlines in one context. O(test points x tasks)."""
    if not demands:
        return SchedulabilityResult(True, "Fits", 0.0, 0.0, 0.0)
    utilisation = sum(task.execution_time / task.period for task in demands)
    blocking = max(task.longest_stage for task in demands)
    if utilisation >= 1.0:
        return SchedulabilityResult(False, "Overloaded", utilisation, utilisation, 1.0)
    slack = sum((task.period - task.deadline) * task.execution_time / task.period for task in demands)
    horizon = max(max(task.deadline for task in demands), (slack + blocking) / (1.0 - utilisation))
    tightest_demand, tightest_interval = 0.0, 1.0
    for points, instant in enumerate(_deadlines(demands, horizon)):
        if points >= MAX_TEST_POINTS:
            return _density_test(demands, utilisation, blocking)
        demand = _demand(demands, instant)
        if demand * tightest_interval > tightest_demand * instant:
            tightest_demand, tightest_interval = demand, instant
        if demand > instant:
            return SchedulabilityResult(False, "DeadlinesNotMet", utilisation, demand, instant)
    return SchedulabilityResult(True, "Fits", utilisation, tightest_demand, tightest_interval)


def _demand(demands: Sequence[TaskDemand], interval: float) -> float:
    """Return the demand plus blocking within an interval of this length."""
    total = blocking = 0.0
    for task in demands:
        if task.deadline > interval:
            blocking = max(blocking, task.longest_stage)
        else:
            # the tolerance counts a deadline exactly at the end of the interval despite rounding of the quotient
            total += int((interval - task.deadline) / task.period + 1.0 + 1e-9) * task.execution_time
    return total + blocking


def _deadlines(demands: Sequence[TaskDemand], horizon: float) -> Iterator[float]:
    """Yield every absolute deadline up to the horizon, ascending, for tasks that are all released at 0."""
    heap = [(task.deadline, number, 0) for number, task in enumerate(demands)]
    heapq.heapify(heap)
    last = -1.0
    while heap and heap[0][0] <= horizon:
        instant, number, job = heapq.heappop(heap)
        if instant > last:
            yield instant
            last = instant
        task = demands[number]
        heapq.heappush(heap, (task.deadline + (job + 1) * task.period, number, job + 1))


def _density_test(demands: Sequence[TaskDemand], utilisation: float, blocking: float) -> SchedulabilityResult:
    """Return the result of the sufficient test sum C/D + B/min D <= 1."""
    shortest = min(task.deadline for task in demands)
    demand = shortest * sum(task.execution_time / task.deadline for task in demands) + blocking
    schedulable = demand <= shortest
    return SchedulabilityResult(
        schedulable, "Fits" if schedulable else "UtilisationTooHigh", utilisation, demand, shortest
    )

"""The schedulability test: processor demand of EDF with non-preemptive stages in one context. Called by `door`.

Jobs run in EDF order by their deadline, one stage at a time; a stage that runs is not interrupted. All deadlines are
met if for every t > 0:  sum_i floor((t - D_i) / T_i + 1) C_i  +  B(t)  <=  t,  where B(t) is the longest stage of the
tasks with D > t (a stage that began just before the busy interval). Baruah, "The limited-preemption uniprocessor
scheduling of sporadic task systems", ECRTS 2005; deadlines are constrained (D <= T). The test is sufficient: what it
admits keeps its deadlines whatever the offsets; what it refuses might have kept them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_POINTS = 20_000  # of t that are looked at; beyond that (utilisation near 1) the shorter density test decides


@dataclass(frozen=True, slots=True)
class Demand:
    """One task in one context, in seconds: worst time of the whole network and of its longest stage."""

    period: float
    deadline: float
    total: float
    longest: float


@dataclass(frozen=True, slots=True)
class Finding:
    """`work`: seconds due (and blocked) within `within` seconds, at the tightest point of those looked at."""

    fits: bool
    code: str
    utilisation: float
    work: float
    within: float


def examine(demands: Sequence[Demand]) -> Finding:
    """O(points x tasks). Without tasks everything fits."""
    if not demands:
        return Finding(True, "Fits", 0.0, 0.0, 0.0)
    utilisation = sum(one.total / one.period for one in demands)
    blocking = max(one.longest for one in demands)
    if utilisation >= 1.0:
        return Finding(False, "Overloaded", utilisation, utilisation, 1.0)
    slack = sum((one.period - one.deadline) * one.total / one.period for one in demands)
    horizon = max(max(one.deadline for one in demands), (slack + blocking) / (1.0 - utilisation))
    work, within = 0.0, 1.0
    for looked, moment in enumerate(_deadlines(demands, horizon)):
        if looked >= MOST_POINTS:
            return _by_density(demands, utilisation, blocking)
        due = _due(demands, moment)
        if due * within > work * moment:
            work, within = due, moment
        if due > moment:
            return Finding(False, "DeadlinesNotMet", utilisation, due, moment)
    return Finding(True, "Fits", utilisation, work, within)


def _due(demands: Sequence[Demand], moment: float) -> float:
    """Demand plus blocking within an interval of this length."""
    total = blocked = 0.0
    for one in demands:
        if one.deadline > moment:
            blocked = max(blocked, one.longest)
        else:
            # an instant that is a deadline of this task must count it, whatever rounding did to the quotient
            total += int((moment - one.deadline) / one.period + 1.0 + 1e-9) * one.total
    return total + blocked


def _deadlines(demands: Sequence[Demand], horizon: float) -> Iterator[float]:
    """Every absolute deadline up to the horizon when all tasks are released at 0, ascending."""
    heap = [(one.deadline, number, 0) for number, one in enumerate(demands)]
    heapq.heapify(heap)
    last = -1.0
    while heap and heap[0][0] <= horizon:
        moment, number, job = heapq.heappop(heap)
        if moment > last:
            yield moment
            last = moment
        one = demands[number]
        heapq.heappush(heap, (one.deadline + (job + 1) * one.period, number, job + 1))


def _by_density(demands: Sequence[Demand], utilisation: float, blocking: float) -> Finding:
    """Sufficient as well, and one line: sum C/D + B/min D <= 1."""
    shortest = min(one.deadline for one in demands)
    due = shortest * sum(one.total / one.deadline for one in demands) + blocking
    fits = due <= shortest
    return Finding(fits, "Fits" if fits else "UtilisationTooHigh", utilisation, due, shortest)

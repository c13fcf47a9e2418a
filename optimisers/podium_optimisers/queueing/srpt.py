"""SRPT (shortest remaining time first) on one server: mean response by formula and by exact simulation.

Called by the benchmark and the docs' table. Source: Schrage and Miller, The queue M/G/1 with the shortest remaining
processing time discipline (1966).
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_simpson, simpson

from podium_optimisers.queueing.checks import InputError, require, require_all, require_count
from podium_optimisers.queueing.service import ServiceTime

Floats = NDArray[np.float64]
LEFT_OUT = 1e-13  # share of jobs longer than the longest time that is integrated to


def srpt_mean_response(rate: float, service: ServiceTime, points: int = 40_001) -> float:
    """Mean seconds from arrival to end of M/G/1 under SRPT; infinite at load >= 1.

    With F the distribution of service, load(x) = rate int_0^x t dF:
    E[T] = int ( rate int_0^x t (1 - F(t)) dt / (1 - load(x))^2 ) dF(x)  +  int_0^inf (1 - F(t)) / (1 - load(t)) dt.
    `points`: of the grid, denser near 0; odd.
    """
    require(rate, "rate", above=0.0)
    if rate * service.mean >= 1.0:
        return math.inf
    # t = longest s^3: density where short jobs are, and few points in the tail
    along = np.linspace(0.0, 1.0, require_count(points, "points", least=101))
    longest = _longest(service)
    times, stretch = longest * along**3, 3.0 * longest * along**2
    tail, weight = service.tail(times), service.density(times) * stretch
    below = rate * cumulative_simpson(times * weight, x=along, initial=0.0)
    ahead = rate * cumulative_simpson(times * tail * stretch, x=along, initial=0.0)
    waits = simpson(ahead / (1.0 - below) ** 2 * weight, x=along)
    at_work = simpson(tail / (1.0 - below) * stretch, x=along)
    return float(waits + at_work)


def _longest(service: ServiceTime) -> float:
    reach = service.mean
    while service.tail(np.array([reach]))[0] > LEFT_OUT:
        reach *= 1.5
    return reach


def simulate_srpt(arrivals: Floats, services: Floats) -> Floats:
    """Response of each job (n,) on one server that always works on the job with least left. O(n log n).

    `arrivals` (n,) seconds, ascending; `services` (n,) seconds, above 0. Ties go to the job that came first.
    """
    require_all(arrivals, "arrivals")
    require_all(services, "services", above=0.0)
    if arrivals.ndim != 1 or arrivals.shape != services.shape:
        raise InputError("ShapeMismatch", "services", f"{services.shape} is not the shape {arrivals.shape}")
    if np.any(np.diff(arrivals) < 0):
        raise InputError("NotAscending", "arrivals", "times go back; sort jobs by arrival")
    ends = [0.0] * arrivals.size
    waiting: list[tuple[float, int]] = []  # (seconds left, job)
    now = 0.0
    coming = arrivals.tolist()
    push, pop, change = heapq.heappush, heapq.heappop, heapq.heapreplace
    for job, (arrival, length) in enumerate(zip(coming, services.tolist(), strict=True)):
        while waiting:
            left, first = waiting[0]
            if now + left > arrival:
                change(waiting, (left - (arrival - now), first))
                break
            now += left
            ends[first] = now
            pop(waiting)
        now = arrival
        push(waiting, (length, job))
    while waiting:
        left, first = pop(waiting)
        now += left
        ends[first] = now
    return np.asarray(ends) - arrivals

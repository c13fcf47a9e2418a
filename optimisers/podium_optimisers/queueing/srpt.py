"""Shortest remaining processing time (SRPT) on one server: mean response by formula and by simulation.

Source: Schrage and Miller, The queue M/G/1 with the shortest remaining processing time discipline (1966).
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from scipy.integrate import cumulative_simpson, simpson

from podium_optimisers.arrays import Floats
from podium_optimisers.queueing.service import ServiceTime
from podium_optimisers.validation import InputError, require_count, require_number, require_numbers

TAIL_CUTOFF = 1e-13  # P(S > upper limit of the integral)


def srpt_mean_response(rate: float, service: ServiceTime, points: int = 40_001) -> float:
    """Return the mean seconds from arrival to completion of M/G/1 under SRPT; infinite at load >= 1.

    With F the distribution of service and load(x) = rate int_0^x t dF:

      E[T] = int ( rate int_0^x t (1 - F(t)) dt / (1 - load(x))^2 ) dF(x)  +  int_0^inf (1 - F(t)) / (1 - load(t)) dt

    `points` is the number of grid points, denser near 0; it must be odd.
    """
    require_number(rate, "rate", above=0.0)
    if rate * service.mean >= 1.0:
        return math.inf
    # t = longest s^3: most grid points where short jobs are, few in the tail
    along = np.linspace(0.0, 1.0, require_count(points, "points", at_least=101))
    longest = _longest(service)
    times, stretch = longest * along**3, 3.0 * longest * along**2
    tail, weight = service.tail(times), service.density(times) * stretch
    below = rate * cumulative_simpson(times * weight, x=along, initial=0.0)
    ahead = rate * cumulative_simpson(times * tail * stretch, x=along, initial=0.0)
    waits = simpson(ahead / (1.0 - below) ** 2 * weight, x=along)
    services_part = simpson(tail / (1.0 - below) * stretch, x=along)
    return float(waits + services_part)


def _longest(service: ServiceTime) -> float:
    """Return a time that only a negligible share of the jobs exceeds."""
    reach = service.mean
    while service.tail(np.array([reach]))[0] > TAIL_CUTOFF:
        reach *= 1.5
    return reach


def simulate_srpt(arrivals: Floats, services: Floats) -> Floats:
    """Return the response time of each job (n,) on one preemptive server under SRPT. O(n log n).

    `arrivals` (n,): seconds, ascending. `services` (n,): seconds, above 0. Ties go to the earlier arrival.
    """
    require_numbers(arrivals, "arrivals")
    require_numbers(services, "services", above=0.0)
    if arrivals.ndim != 1 or arrivals.shape != services.shape:
        raise InputError(
            "ShapeMismatch", "services", f"the shape is {services.shape}; give the shape of arrivals, {arrivals.shape}"
        )
    if np.any(np.diff(arrivals) < 0):
        raise InputError("NotAscending", "arrivals", "arrival times decrease; sort the jobs by arrival")
    ends = [0.0] * arrivals.size
    waiting: list[tuple[float, int]] = []  # (seconds left, job)
    now = 0.0
    arrival_list = arrivals.tolist()
    push, pop, replace = heapq.heappush, heapq.heappop, heapq.heapreplace
    for job, (arrival, length) in enumerate(zip(arrival_list, services.tolist(), strict=True)):
        while waiting:
            left, first = waiting[0]
            if now + left > arrival:
                replace(waiting, (left - (arrival - now), first))
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

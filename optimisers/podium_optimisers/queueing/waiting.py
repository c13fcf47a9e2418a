"""Exact FCFS waits of a given arrival stream: the recursions of Lindley and of Kiefer and Wolfowitz.

There are three forms of the same recursion: one server without a loop; many independent streams side by side, where
numpy handles the n-th jobs of all streams at once; and one stream whose jobs take several GPUs.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.arrays import Floats
from podium_optimisers.validation import InputError, require_count, require_numbers


def poisson_arrivals(rng: np.random.Generator, rate: float, shape: tuple[int, ...]) -> Floats:
    """Return Poisson arrival times in seconds along the last axis."""
    return np.cumsum(rng.exponential(1.0 / rate, shape), axis=-1)


def lindley(arrivals: Floats, services: Floats) -> Floats:
    """Return the waits (n,) on one server.

    W[n+1] = max(0, W[n] + S[n] - A[n]) is a cumulative sum minus its running minimum, so no loop is needed. Source:
    Lindley (1952).
    """
    _check(arrivals, services)
    steps = services[:-1] - np.diff(arrivals)
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    return walk - np.minimum.accumulate(walk)


def kiefer_wolfowitz(arrivals: Floats, services: Floats, servers: int) -> Floats:
    """Return the waits (streams, n) of independent FCFS queues on `servers` servers.

    The state is the time at which each server is free next; a job takes the earliest. O(n servers) numpy steps. Source:
    Kiefer and Wolfowitz (1955).
    """
    _check(arrivals, services)
    require_count(servers, "servers")
    streams, count = arrivals.shape
    free = np.full((streams, servers), -np.inf)
    rows = np.arange(streams)
    waits = np.empty((count, streams))
    arrivals_by_job, services_by_job = np.ascontiguousarray(arrivals.T), np.ascontiguousarray(services.T)
    for job in range(count):
        first = free.argmin(axis=1)
        start = np.maximum(free[rows, first], arrivals_by_job[job])
        free[rows, first] = start + services_by_job[job]
        np.subtract(start, arrivals_by_job[job], out=waits[job])
    return waits.T


def gang_waits(arrivals: Floats, services: Floats, widths: NDArray[np.int64], gpus: int) -> Floats:
    """Return the waits (n,) of one FCFS stream without backfilling.

    Job i takes `widths[i]` GPUs at once for `services[i]` seconds. It starts when the job before it has started and its
    GPUs are free. More GPUs never make a wait longer (the recursion is monotone), so `capacity` can search by
    bisection. O(sum of widths x log gpus).
    """
    _check(arrivals, services)
    require_count(gpus, "gpus")
    if widths.shape != arrivals.shape:
        raise InputError(
            "ShapeMismatch", "widths", f"the shape is {widths.shape}; give the shape of arrivals, {arrivals.shape}"
        )
    for job in np.flatnonzero((widths < 1) | (widths > gpus))[:1]:
        text = f"a width of {widths[job]} GPUs is impossible; give 1 to {gpus}, the GPUs of the cluster"
        raise InputError("NoFittingMachine", "widths", text, f"[{job}]")
    before = float(arrivals[0]) if arrivals.size else 0.0
    free = [before] * gpus  # a heap of the times at which the GPUs are free next
    starts: list[float] = []
    pop, push, replace = heapq.heappop, heapq.heappush, heapq.heapreplace
    for arrival, length, width in zip(arrivals.tolist(), services.tolist(), widths.tolist(), strict=True):
        start = arrival if arrival > before else before
        if width == 1:
            start = free[0] if free[0] > start else start
            replace(free, start + length)
        else:
            for _ in range(width):
                freed = pop(free)
            start = freed if freed > start else start
            for _ in range(width):
                push(free, start + length)
        before = start
        starts.append(start)
    return np.asarray(starts) - arrivals


def blocked_jobs(arrivals: Floats, services: Floats, servers: int) -> NDArray[np.bool_]:
    """Return which jobs (streams, n) are blocked in loss systems: they find all `servers` busy."""
    _check(arrivals, services)
    require_count(servers, "servers")
    streams, count = arrivals.shape
    free = np.full((streams, servers), -np.inf)
    rows = np.arange(streams)
    blocked = np.empty((count, streams), dtype=np.bool_)
    arrivals_by_job, services_by_job = np.ascontiguousarray(arrivals.T), np.ascontiguousarray(services.T)
    for job in range(count):
        first = free.argmin(axis=1)
        earliest = free[rows, first]
        busy = earliest > arrivals_by_job[job]
        free[rows, first] = np.where(busy, earliest, arrivals_by_job[job] + services_by_job[job])
        blocked[job] = busy
    return blocked.T


def _check(arrivals: Floats, services: Floats) -> None:
    require_numbers(arrivals, "arrivals")
    require_numbers(services, "services", at_least=0.0)
    if arrivals.shape != services.shape:
        raise InputError(
            "ShapeMismatch", "services", f"the shape is {services.shape}; give the shape of arrivals, {arrivals.shape}"
        )
    if np.any(np.diff(arrivals, axis=-1) < 0):
        raise InputError("NotAscending", "arrivals", "arrival times decrease; sort the jobs by arrival")

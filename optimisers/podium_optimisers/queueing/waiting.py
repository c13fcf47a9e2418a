"""Exact FCFS waits of a given stream on c servers: the recursions of Lindley and of Kiefer and Wolfowitz.

Called by `capacity` (a trace), the benchmarks and tests. Three forms of the same recursion: one server (no loop), many
independent streams side by side (numpy does all streams' n-th job at once), one stream whose jobs take several GPUs.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.queueing.checks import InputError, require_all, require_count

Floats = NDArray[np.float64]


def poisson_arrivals(rng: np.random.Generator, rate: float, shape: tuple[int, ...]) -> Floats:
    """Arrival times along the last axis, seconds."""
    return np.cumsum(rng.exponential(1.0 / rate, shape), axis=-1)


def lindley(arrivals: Floats, services: Floats) -> Floats:
    """Waits (n,) on one server. W[n+1] = max(0, W[n] + S[n] - A[n]) is a sum less its running minimum: no loop.

    Source: Lindley (1952).
    """
    _check(arrivals, services)
    steps = services[:-1] - np.diff(arrivals)
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    return walk - np.minimum.accumulate(walk)


def kiefer_wolfowitz(arrivals: Floats, services: Floats, servers: int) -> Floats:
    """Waits (streams, n) of `streams` independent queues, each FCFS on `servers`. O(n servers) numpy steps.

    Kept is when each server is free next; a job takes the one that is free first. Source: Kiefer and Wolfowitz (1955).
    """
    _check(arrivals, services)
    require_count(servers, "servers")
    streams, count = arrivals.shape
    free = np.full((streams, servers), -np.inf)
    rows = np.arange(streams)
    waits = np.empty((count, streams))
    coming, lasting = np.ascontiguousarray(arrivals.T), np.ascontiguousarray(services.T)
    for job in range(count):
        first = free.argmin(axis=1)
        start = np.maximum(free[rows, first], coming[job])
        free[rows, first] = start + lasting[job]
        np.subtract(start, coming[job], out=waits[job])
    return waits.T


def gang_waits(arrivals: Floats, services: Floats, widths: NDArray[np.int64], gpus: int) -> Floats:
    """Waits (n,) of one stream, FCFS without back-filling; job i takes `widths[i]` GPUs at once for `services[i]`.

    A job starts when the one before it has started and its GPUs are free. More GPUs never make a wait longer
    (the recursion is monotone), which is what lets `capacity` search by bisection. O(sum of widths x log gpus).
    """
    _check(arrivals, services)
    require_count(gpus, "gpus")
    if widths.shape != arrivals.shape:
        raise InputError("ShapeMismatch", "widths", f"{widths.shape} is not the shape {arrivals.shape}")
    for job in np.flatnonzero((widths < 1) | (widths > gpus))[:1]:
        text = f"{widths[job]} GPUs fit nowhere; the cluster has {gpus}"
        raise InputError("NoFittingMachine", "widths", text, f"[{job}]")
    before = float(arrivals[0]) if arrivals.size else 0.0
    free = [before] * gpus  # when each is free next: a heap
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


def lost(arrivals: Floats, services: Floats, servers: int) -> NDArray[np.bool_]:
    """Which jobs (streams, n) of queues without room to wait find all `servers` busy and are lost."""
    _check(arrivals, services)
    require_count(servers, "servers")
    streams, count = arrivals.shape
    free = np.full((streams, servers), -np.inf)
    rows = np.arange(streams)
    refused = np.empty((count, streams), dtype=np.bool_)
    coming, lasting = np.ascontiguousarray(arrivals.T), np.ascontiguousarray(services.T)
    for job in range(count):
        first = free.argmin(axis=1)
        soonest = free[rows, first]
        busy = soonest > coming[job]
        free[rows, first] = np.where(busy, soonest, coming[job] + lasting[job])
        refused[job] = busy
    return refused.T


def _check(arrivals: Floats, services: Floats) -> None:
    require_all(arrivals, "arrivals")
    require_all(services, "services", least=0.0)
    if arrivals.shape != services.shape:
        raise InputError("ShapeMismatch", "services", f"{services.shape} is not the shape {arrivals.shape}")
    if np.any(np.diff(arrivals, axis=-1) < 0):
        raise InputError("NotAscending", "arrivals", "times go back; sort jobs by arrival")

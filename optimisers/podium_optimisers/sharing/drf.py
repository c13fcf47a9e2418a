"""Dominant resource fairness: jobs that need GPUs, CPUs and memory in different proportions get equal dominant shares.

Called by the benchmark. Source: Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica (NSDI 2011).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from podium_optimisers.queueing.checks import InputError, require_all
from podium_optimisers.sharing.problem import Floats


@dataclass(frozen=True, slots=True)
class DrfProblem:
    """`demand` (n, R): what one task of a job takes of each resource; `capacity` (R,); `weight` (n,); `limit` (n,):
    tasks a job wants at most (infinite: all it can get). With a limit of 1 its tasks are the share of time it runs.
    """

    jobs: tuple[str, ...]
    resources: tuple[str, ...]
    demand: Floats
    capacity: Floats
    weight: Floats
    limit: Floats

    @staticmethod
    def of(
        jobs: Sequence[str],
        resources: Sequence[str],
        demand: ArrayLike,
        capacity: Sequence[float],
        weight: Sequence[float] | None = None,
        limit: Sequence[float] | None = None,
    ) -> DrfProblem:
        """Checked. Weights default to 1, limits to infinity."""
        n = len(jobs)
        if not n or not resources:
            field = "resources" if n else "jobs"
            raise InputError("NoResources" if n else "NoJobs", field, "there is none; give one or more")
        demands, available = np.asarray(demand, dtype=np.float64), np.asarray(capacity, dtype=np.float64)
        weights = np.asarray(weight or [1.0] * n, dtype=np.float64)
        limits = np.asarray(limit or [math.inf] * n, dtype=np.float64)
        shapes = {"demand": (demands, (n, len(resources))), "capacity": (available, (len(resources),))}
        for field, (array, shape) in {**shapes, "weight": (weights, (n,)), "limit": (limits, (n,))}.items():
            if array.shape != shape:
                raise InputError("ShapeMismatch", field, f"has the shape {array.shape}; give {shape}")
        require_all(demands, "demand", jobs, least=0.0)
        require_all(available, "capacity", resources, least=0.0)
        require_all(weights, "weight", jobs, above=0.0)
        require_all(np.where(limits == math.inf, 1.0, limits), "limit", jobs, least=0.0)
        found = DrfProblem(tuple(jobs), tuple(resources), demands, available, weights, limits)
        for job, place in np.argwhere((demands > 0.0) & (available == 0.0))[:1]:
            text = f"{demands[job, place]:g} of {resources[place]} are needed, there is none; add some or leave it out"
            raise InputError("NoFittingMachine", "demand", text, jobs[job])
        for job in np.flatnonzero(demands.max(axis=1) == 0.0)[:1]:
            raise InputError("ZeroDemand", "demand", "is 0 of every resource; give what a task takes", jobs[job])
        return found

    @property
    def dominant(self) -> Floats:
        """(n,): the largest share of a resource that one task takes."""
        return np.asarray((self.demand / np.where(self.capacity > 0.0, self.capacity, 1.0)).max(axis=1))


@dataclass(frozen=True, slots=True)
class DrfShares:
    """`tasks` (n,) at work on average (whole ones from `drf_tasks`)."""

    problem: DrfProblem
    tasks: Floats

    @property
    def dominant_share(self) -> Floats:
        """(n,): of each job's dominant resource, per unit of weight: what is made equal."""
        return self.tasks * self.problem.dominant / self.problem.weight

    @property
    def residual(self) -> float:
        """Largest use above capacity (relative), above a limit, or below 0."""
        problem = self.problem
        unit = np.where(problem.capacity > 0.0, problem.capacity, 1.0)
        over = (self.tasks @ problem.demand - problem.capacity) / unit
        return max(0.0, float(over.max()), float((self.tasks - problem.limit).max()), float(-self.tasks.min()))


def drf_shares(problem: DrfProblem) -> DrfShares:
    """Progressive filling: raise all dominant shares together; who needs a resource that is full, or has all it wants,
    stays; raise the others. At most n + R rounds of O(n R). Exact.
    """
    pace = problem.weight / problem.dominant  # tasks per unit of dominant share
    rising = problem.limit > 0.0
    tasks = np.zeros(len(problem.jobs))
    full = np.zeros(len(problem.resources), dtype=np.bool_)
    while rising.any():
        use = (pace * rising) @ problem.demand
        left = np.clip(problem.capacity - tasks @ problem.demand, 0.0, None)
        with np.errstate(over="ignore"):  # of what is hardly used there is room without end
            room = np.divide(left, use, out=np.full_like(left, np.inf), where=use > 0.0)
        wanted = np.where(rising, (problem.limit - tasks) / pace, np.inf)
        rise = min(float(room.min()), float(wanted.min()))
        tasks = np.where(rising, tasks + rise * pace, tasks)
        full |= room <= rise * (1.0 + 1e-12)
        rising &= ~((problem.demand[:, full] > 0.0).any(axis=1) | (wanted <= rise * (1.0 + 1e-12)))
    return DrfShares(problem, np.minimum(tasks, problem.limit))


def drf_tasks(problem: DrfProblem) -> DrfShares:
    """Whole tasks: always one more for the job with the least dominant share (ties: the first), while it fits.

    A job whose next task does not fit is done. O(tasks (log n + R)).
    """
    left, counts = problem.capacity.copy(), np.zeros(len(problem.jobs), dtype=np.int64)
    step = problem.dominant / problem.weight
    queue = [(0.0, job) for job in range(len(problem.jobs))]
    heapq.heapify(queue)
    while queue:
        _, job = heapq.heappop(queue)
        if counts[job] + 1 > problem.limit[job] or not _fits(problem.demand[job], left, problem.capacity):
            continue
        counts[job] += 1
        left = left - problem.demand[job]
        heapq.heappush(queue, (float(counts[job] * step[job]), job))
    return DrfShares(problem, counts.astype(np.float64))


def _fits(demand: Floats, left: Floats, capacity: Floats) -> bool:
    fits: NDArray[np.bool_] = demand <= left + 1e-12 * capacity  # 0.1 + 0.2 GPUs are no more than 0.3
    return bool(fits.all())

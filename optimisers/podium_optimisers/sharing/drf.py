"""Dominant resource fairness (DRF): jobs with different resource demands get equal dominant shares.

Source: Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica (NSDI 2011).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from podium_optimisers.arrays import Floats
from podium_optimisers.validation import InputError, require_numbers


@dataclass(frozen=True, slots=True)
class DrfProblem:
    """A DRF problem. `demand` (n, R): resources of one task of each job; `capacity` (R,); `weight` (n,).

    `limit` (n,): the most tasks that a job wants; inf for no limit. With a limit of 1, a job's tasks are the share of
    time in which it runs.
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
        """Return a validated problem. Weights default to 1, limits to infinity."""
        n = len(jobs)
        if not n or not resources:
            field = "resources" if n else "jobs"
            raise InputError("NoResources" if n else "NoJobs", field, "the list is empty; give one or more")
        demands, available = np.asarray(demand, dtype=np.float64), np.asarray(capacity, dtype=np.float64)
        weights = np.asarray(weight or [1.0] * n, dtype=np.float64)
        limits = np.asarray(limit or [math.inf] * n, dtype=np.float64)
        shapes = {"demand": (demands, (n, len(resources))), "capacity": (available, (len(resources),))}
        for field, (array, shape) in {**shapes, "weight": (weights, (n,)), "limit": (limits, (n,))}.items():
            if array.shape != shape:
                raise InputError("ShapeMismatch", field, f"the shape is {array.shape}; give {shape}")
        require_numbers(demands, "demand", jobs, at_least=0.0)
        require_numbers(available, "capacity", resources, at_least=0.0)
        require_numbers(weights, "weight", jobs, above=0.0)
        require_numbers(np.where(limits == math.inf, 1.0, limits), "limit", jobs, at_least=0.0)
        problem = DrfProblem(tuple(jobs), tuple(resources), demands, available, weights, limits)
        for job, resource in np.argwhere((demands > 0.0) & (available == 0.0))[:1]:
            text = (
                f"{demands[job, resource]:g} of {resources[resource]} exceed the capacity of 0; add some or ask for 0"
            )
            raise InputError("NoFittingMachine", "demand", text, jobs[job])
        for job in np.flatnonzero(demands.max(axis=1) == 0.0)[:1]:
            raise InputError(
                "ZeroDemand",
                "demand",
                "the demand is 0 for every resource; give the resources that a task needs",
                jobs[job],
            )
        return problem

    @property
    def dominant(self) -> Floats:
        """Return the dominant share of one task of each job (n,): its largest share of a resource."""
        return np.asarray((self.demand / np.where(self.capacity > 0.0, self.capacity, 1.0)).max(axis=1))


@dataclass(frozen=True, slots=True)
class DrfAllocation:
    """An allocation: `tasks` (n,) that run on average (whole numbers from `drf_tasks`)."""

    problem: DrfProblem
    tasks: Floats

    @property
    def dominant_share(self) -> Floats:
        """Return each job's dominant share per unit of weight (n,), which DRF equalises."""
        return self.tasks * self.problem.dominant / self.problem.weight

    @property
    def residual(self) -> float:
        """Return the largest violation: use above capacity (relative), tasks above a limit, or tasks below 0."""
        problem = self.problem
        unit = np.where(problem.capacity > 0.0, problem.capacity, 1.0)
        over = (self.tasks @ problem.demand - problem.capacity) / unit
        return max(0.0, float(over.max()), float((self.tasks - problem.limit).max()), float(-self.tasks.min()))


def drf_shares(problem: DrfProblem) -> DrfAllocation:
    """Return the DRF allocation by progressive filling. Exact; at most n + R rounds of O(n R).

    All dominant shares rise together. A job stops when it needs a resource that is full, or when it has all the tasks
    that it wants; the others continue.
    """
    tasks_per_share = problem.weight / problem.dominant  # tasks per unit of dominant share
    rising = problem.limit > 0.0
    tasks = np.zeros(len(problem.jobs))
    full = np.zeros(len(problem.resources), dtype=np.bool_)
    while rising.any():
        use = (tasks_per_share * rising) @ problem.demand
        left = np.clip(problem.capacity - tasks @ problem.demand, 0.0, None)
        with np.errstate(over="ignore"):  # headroom of a resource that is hardly used overflows to inf
            headroom = np.divide(left, use, out=np.full_like(left, np.inf), where=use > 0.0)
        wanted = np.where(rising, (problem.limit - tasks) / tasks_per_share, np.inf)
        rise = min(float(headroom.min()), float(wanted.min()))
        tasks = np.where(rising, tasks + rise * tasks_per_share, tasks)
        full |= headroom <= rise * (1.0 + 1e-12)
        rising &= ~((problem.demand[:, full] > 0.0).any(axis=1) | (wanted <= rise * (1.0 + 1e-12)))
    return DrfAllocation(problem, np.minimum(tasks, problem.limit))


def drf_tasks(problem: DrfProblem) -> DrfAllocation:
    """Return whole tasks: repeatedly one more for the job with the least dominant share, while it fits.

    Ties go to the first job. A job whose next task does not fit is finished. O(tasks (log n + R)).
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
    return DrfAllocation(problem, counts.astype(np.float64))


def _fits(demand: Floats, left: Floats, capacity: Floats) -> bool:
    """Return whether one more task fits, with a tolerance for rounding."""
    fits: NDArray[np.bool_] = demand <= left + 1e-12 * capacity  # 0.1 + 0.2 GPUs must fit into 0.3
    return bool(fits.all())

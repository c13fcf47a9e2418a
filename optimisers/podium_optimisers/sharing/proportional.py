"""Proportionally fair shares: maximise sum of weight x log(throughput), the Nash bargaining solution.

The solver is a primal-dual interior-point method. A Newton step costs O(n T^3) because the matrix consists of one small
block for each job plus a rank-one term for each type (Woodbury). The final prices give a bound by weak duality, so the
gap is proven and does not depend on the solver. Sources: Kelly (1997); Eisenberg and Gale (1959); Boyd and
Vandenberghe, Convex Optimization, section 11.7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.sharing.problem import SharingProblem
from podium_optimisers.sharing.shares import TimeShares, clip_to_feasible

STEPS = 200  # 15 to 40 are usual
CENTERING = 0.1  # factor on the mean product of slack and price in each step
BOUNDARY_FRACTION = 0.99  # fraction of the step to the boundary, where a slack or price would be 0
BACKTRACK = 0.5
MIN_STEP = 1e-8
REFINEMENTS = 4  # iterative refinements of a Newton system


@dataclass(frozen=True, slots=True)
class _ScaledProblem:
    """The problem scaled so that each job's fastest rate is 1.

    `gain` (n, T) is 0 where a job cannot run; `allowed` (n, T) is 1 where it can.
    """

    gain: Floats
    allowed: Floats
    width: Floats
    gpus: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class _Point:
    """An iterate: shares, and prices of time (n,), of GPUs (T,) and of nonnegative shares (n, T).

    All are above 0 where a job can run.
    """

    share: Floats
    time_price: Floats
    gpu_price: Floats
    share_price: Floats

    def step_along(self, step: _Point, length: float) -> _Point:
        """Return the point after a step of this length."""
        return _Point(
            self.share + length * step.share,
            self.time_price + length * step.time_price,
            self.gpu_price + length * step.gpu_price,
            self.share_price + length * step.share_price,
        )


def proportional_shares(problem: SharingProblem, precision: float = 1e-6) -> TimeShares:
    """Return the proportionally fair shares. The objective is sum of weight x log(steps per second).

    The method ends at a gap of `precision` x sum of weights, or when rounding allows no further step. The gap of the
    result shows which.
    """
    usable = problem.usable
    fastest = usable.max(axis=1)
    total = float(problem.weight.sum())
    scaled = _ScaledProblem(
        usable / fastest[:, None],
        problem.allowed.astype(np.float64),
        problem.width.astype(np.float64),
        problem.gpus.astype(np.float64),
        problem.weight / total,
    )
    point, best, bound = _initial_point(scaled), -np.inf, np.inf
    share = point.share
    for _ in range(STEPS):
        fitting = clip_to_feasible(problem, point.share)
        value = _value(scaled, fitting)
        if value > best:
            best, share = value, fitting
        bound = min(bound, _bound(scaled, point))
        if bound - best <= precision:
            break
        further = _next_point(scaled, point)
        if further is None:
            break
        point = further
    shift = float(problem.weight @ np.log(fastest))
    return TimeShares(
        problem, share, "proportionally fair (interior point)", total * best + shift, total * bound + shift
    )


def _initial_point(scaled: _ScaledProblem) -> _Point:
    """Return a strictly feasible start: half of the resources, divided evenly.

    The prices make all products with slacks equal.
    """
    per_type = scaled.gpus / np.maximum((scaled.width[:, None] * scaled.allowed).sum(axis=0), 1.0)
    per_job = 1.0 / scaled.allowed.sum(axis=1)
    share = 0.5 * np.minimum(per_type[None, :], per_job[:, None]) * scaled.allowed
    time, gpus = _slacks(scaled, share)
    barrier = 1.0 / (scaled.allowed.sum() + time.size + gpus.size)
    return _Point(share, barrier / time, barrier / gpus, barrier / _nonzero_shares(scaled, share) * scaled.allowed)


def _nonzero_shares(scaled: _ScaledProblem, share: Floats) -> Floats:
    """Return the shares with 1 where a job cannot run, to divide by."""
    return np.where(scaled.allowed > 0.0, share, 1.0)


def _value(scaled: _ScaledProblem, share: Floats) -> float:
    """Return the objective of the scaled problem."""
    return float(scaled.weight @ np.log((scaled.gain * share).sum(axis=1)))


def _slacks(scaled: _ScaledProblem, share: Floats) -> tuple[Floats, Floats]:
    """Return the unused time (n,) and GPUs (T,). A type on which no job can run has a slack of 1."""
    left = scaled.gpus - scaled.width @ share
    return 1.0 - share.sum(axis=1), np.where(scaled.allowed.any(axis=0), left, 1.0)


def _residual(scaled: _ScaledProblem, point: _Point, barrier: float) -> float:
    """Return the norm of the optimality conditions, with products of slack and price at `barrier`."""
    time, gpus = _slacks(scaled, point.share)
    gradient = scaled.gain * (scaled.weight / (scaled.gain * point.share).sum(axis=1))[:, None]
    paid = point.time_price[:, None] + scaled.width[:, None] * point.gpu_price[None, :] - point.share_price
    parts = [
        (gradient - paid) * scaled.allowed,
        point.time_price * time - barrier,
        point.gpu_price * gpus - barrier,
        (point.share_price * point.share - barrier) * scaled.allowed,
    ]
    return float(np.sqrt(sum(float((part**2).sum()) for part in parts)))


def _next_point(scaled: _ScaledProblem, point: _Point) -> _Point | None:
    """Return the next point: a Newton step, shortened until the residual falls.

    None if there is no such step.
    """
    time, gpus = _slacks(scaled, point.share)
    products = point.time_price @ time + point.gpu_price @ gpus + (point.share_price * point.share).sum()
    barrier = CENTERING * float(products) / (scaled.allowed.sum() + time.size + gpus.size)
    step = _newton_direction(scaled, point, barrier)
    length = min(1.0, BOUNDARY_FRACTION * _step_to_boundary(scaled, point, step))
    now = _residual(scaled, point, barrier)
    while length >= MIN_STEP:
        further = point.step_along(step, length)
        if _residual(scaled, further, barrier) <= (1.0 - 0.01 * length) * now:
            return further
        length *= BACKTRACK
    return None


def _step_to_boundary(scaled: _ScaledProblem, point: _Point, step: _Point) -> float:
    """Return the step length at which the first slack or price becomes 0."""
    time, gpus = _slacks(scaled, point.share)
    shrinking = [
        -step.share / _nonzero_shares(scaled, point.share),
        -step.share_price / _nonzero_shares(scaled, point.share_price),
        -step.time_price / point.time_price,
        -step.gpu_price / point.gpu_price,
        step.share.sum(axis=1) / time,
        scaled.width @ step.share / gpus,
    ]
    return 1.0 / max(1e-300, *(float(speed.max()) for speed in shrinking))


def _newton_direction(scaled: _ScaledProblem, point: _Point, barrier: float) -> _Point:
    """Return the Newton direction. All prices are eliminated; see docs/explanation/optimisers/sharing.md."""
    time, gpus = _slacks(scaled, point.share)
    throughput = (scaled.gain * point.share).sum(axis=1)
    shares = _nonzero_shares(scaled, point.share)
    right = scaled.gain * (scaled.weight / throughput)[:, None]
    right = right + barrier * (1.0 / shares - 1.0 / time[:, None] - scaled.width[:, None] / gpus[None, :])
    right = right * scaled.allowed
    pairs = scaled.allowed[:, :, None] * scaled.allowed[:, None, :]
    blocks = scaled.gain[:, :, None] * scaled.gain[:, None, :] * (scaled.weight / throughput**2)[:, None, None]
    blocks = blocks + (point.time_price / time)[:, None, None] * pairs
    diagonal = np.arange(shares.shape[1])
    # where a job cannot run, 1 on the diagonal and 0 on the right give a step of 0
    blocks[:, diagonal, diagonal] += np.where(scaled.allowed > 0.0, point.share_price / shares, 1.0)
    share = _solve(scaled, blocks, gpus / point.gpu_price, right)
    return _Point(
        share,
        barrier / time - point.time_price * (1.0 - share.sum(axis=1) / time),
        barrier / gpus - point.gpu_price * (1.0 - scaled.width @ share / gpus),
        (barrier / shares - point.share_price * (1.0 + share / shares)) * scaled.allowed,
    )


def _solve(scaled: _ScaledProblem, blocks: Floats, loose: Floats, right: Floats) -> Floats:
    """Solve (blocks + sum over types t of w_t w_t' / loose_t) x = right for x (n, T).

    w_t holds the widths in column t. The GPUs of a type couple all jobs by a rank-one term, so the Woodbury identity
    applies. Near the end the blocks are nearly singular, so the solution is refined iteratively.
    """
    allowed_pairs = scaled.allowed[:, :, None] * scaled.allowed[:, None, :]
    coupled = np.linalg.inv(blocks) * allowed_pairs
    middle = np.diag(loose) + np.einsum("i,ijk->jk", scaled.width**2, coupled)
    solution = np.zeros_like(right)
    left = right
    for _ in range(REFINEMENTS):
        alone = np.einsum("ijk,ik->ij", coupled, left)
        pull = np.linalg.solve(middle, scaled.width @ alone)
        solution = solution + alone - scaled.width[:, None] * np.einsum("ijk,k->ij", coupled, pull)
        used = scaled.width[:, None] * (scaled.width @ solution / loose)[None, :]
        left = (right - np.einsum("ijk,ik->ij", blocks, solution) - used) * scaled.allowed
    return np.asarray(solution * scaled.allowed)


def _bound(scaled: _ScaledProblem, point: _Point) -> float:
    """Return an upper bound on the objective by weak duality.

    For prices p >= 0 of GPUs and m >= 0 of a job's time, with cheapest_i = min_t (width_i p_t + m_i) / gain_it:

      value <= p . gpus + sum m + sum weight (log(weight / cheapest) - 1)
    """
    cost = scaled.width[:, None] * point.gpu_price[None, :] + point.time_price[:, None]
    cheapest = np.where(scaled.allowed > 0.0, cost / np.where(scaled.allowed > 0.0, scaled.gain, 1.0), np.inf).min(
        axis=1
    )
    fit = scaled.weight @ (np.log(scaled.weight / cheapest) - 1.0)
    return float(point.gpu_price @ scaled.gpus + point.time_price.sum() + fit)

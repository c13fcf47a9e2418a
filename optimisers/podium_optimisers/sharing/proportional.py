"""Proportionally fair shares: maximise sum of weight x log(throughput), the Nash bargaining solution.

Called by the benchmark. A primal-dual interior-point method of our own: a Newton step costs O(n T^3), since the matrix
is one small block a job plus one rank a type (Woodbury). The prices it ends with give a bound by weak duality, so the
gap is proven and not the solver's opinion. Sources: Kelly (1997); Eisenberg and Gale (1959); Boyd and Vandenberghe,
Convex Optimization, section 11.7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from podium_optimisers.sharing.problem import Floats, SharingProblem
from podium_optimisers.sharing.shares import Shares, trimmed

STEPS = 200  # 15 to 40 are usual
TARGET = 0.1  # of the products of slack and price, a step
TO_WALL = 0.99  # of the way to the first slack or price that would be 0
BACKTRACK = 0.5
SHORTEST = 1e-8  # step that is still tried
REFINED = 4  # solutions of a Newton system, each of what the one before left


@dataclass(frozen=True, slots=True)
class _Scaled:
    """The problem with each job's fastest rate as 1; `gain` (n, T) has zeros where a job cannot run."""

    gain: Floats
    open: Floats  # (n, T) 1 where it can
    width: Floats
    gpus: Floats
    weight: Floats


@dataclass(frozen=True, slots=True)
class _Point:
    """Shares, and the prices of time (n,), of GPUs (T,) and of shares above 0 (n, T). All above 0 where open."""

    share: Floats
    time_price: Floats
    gpu_price: Floats
    share_price: Floats

    def moved(self, step: _Point, length: float) -> _Point:
        return _Point(
            self.share + length * step.share,
            self.time_price + length * step.time_price,
            self.gpu_price + length * step.gpu_price,
            self.share_price + length * step.share_price,
        )


def proportional_shares(problem: SharingProblem, precision: float = 1e-6) -> Shares:
    """Ends at a gap of `precision` x sum of weights, or where rounding allows no further step; the gap says which.

    Objective: sum of weight x log(steps per second).
    """
    usable = problem.usable
    fastest = usable.max(axis=1)
    total = float(problem.weight.sum())
    scaled = _Scaled(
        usable / fastest[:, None],
        problem.allowed.astype(np.float64),
        problem.width.astype(np.float64),
        problem.gpus.astype(np.float64),
        problem.weight / total,
    )
    point, best, bound = _begin(scaled), -np.inf, np.inf
    share = point.share
    for _ in range(STEPS):
        fitting = trimmed(problem, point.share)
        value = _value(scaled, fitting)
        if value > best:
            best, share = value, fitting
        bound = min(bound, _bound(scaled, point))
        if bound - best <= precision:
            break
        further = _advance(scaled, point)
        if further is None:
            break
        point = further
    shift = float(problem.weight @ np.log(fastest))
    return Shares(problem, share, "proportionally fair (interior point)", total * best + shift, total * bound + shift)


def _begin(scaled: _Scaled) -> _Point:
    """Strictly inside: half of what is there, dealt out evenly; prices for which all products with slacks are equal."""
    per_type = scaled.gpus / np.maximum((scaled.width[:, None] * scaled.open).sum(axis=0), 1.0)
    per_job = 1.0 / scaled.open.sum(axis=1)
    share = 0.5 * np.minimum(per_type[None, :], per_job[:, None]) * scaled.open
    time, gpus = _slacks(scaled, share)
    product = 1.0 / (scaled.open.sum() + time.size + gpus.size)
    return _Point(share, product / time, product / gpus, product / _safe(scaled, share) * scaled.open)


def _safe(scaled: _Scaled, share: Floats) -> Floats:
    """With 1 where a job cannot run, to divide by."""
    return np.where(scaled.open > 0.0, share, 1.0)


def _value(scaled: _Scaled, share: Floats) -> float:
    return float(scaled.weight @ np.log((scaled.gain * share).sum(axis=1)))


def _slacks(scaled: _Scaled, share: Floats) -> tuple[Floats, Floats]:
    """Time (n,) and GPUs (T,) left; a type on which nobody can run binds nobody."""
    left = scaled.gpus - scaled.width @ share
    return 1.0 - share.sum(axis=1), np.where(scaled.open.any(axis=0), left, 1.0)


def _residual(scaled: _Scaled, point: _Point, product: float) -> float:
    """How far from the conditions of optimality, with products of slack and price at `product` instead of 0."""
    time, gpus = _slacks(scaled, point.share)
    pull = scaled.gain * (scaled.weight / (scaled.gain * point.share).sum(axis=1))[:, None]
    paid = point.time_price[:, None] + scaled.width[:, None] * point.gpu_price[None, :] - point.share_price
    parts = [
        (pull - paid) * scaled.open,
        point.time_price * time - product,
        point.gpu_price * gpus - product,
        (point.share_price * point.share - product) * scaled.open,
    ]
    return float(np.sqrt(sum(float((part**2).sum()) for part in parts)))


def _advance(scaled: _Scaled, point: _Point) -> _Point | None:
    """One Newton step towards smaller products, shortened until it helps; None where none does."""
    time, gpus = _slacks(scaled, point.share)
    products = point.time_price @ time + point.gpu_price @ gpus + (point.share_price * point.share).sum()
    product = TARGET * float(products) / (scaled.open.sum() + time.size + gpus.size)
    step = _newton(scaled, point, product)
    length = min(1.0, TO_WALL * _to_wall(scaled, point, step))
    now = _residual(scaled, point, product)
    while length >= SHORTEST:
        further = point.moved(step, length)
        if _residual(scaled, further, product) <= (1.0 - 0.01 * length) * now:
            return further
        length *= BACKTRACK
    return None


def _to_wall(scaled: _Scaled, point: _Point, step: _Point) -> float:
    """The length at which the first slack or price would be 0."""
    time, gpus = _slacks(scaled, point.share)
    shrinking = [
        -step.share / _safe(scaled, point.share),
        -step.share_price / _safe(scaled, point.share_price),
        -step.time_price / point.time_price,
        -step.gpu_price / point.gpu_price,
        step.share.sum(axis=1) / time,
        scaled.width @ step.share / gpus,
    ]
    return 1.0 / max(1e-300, *(float(speed.max()) for speed in shrinking))


def _newton(scaled: _Scaled, point: _Point, product: float) -> _Point:
    """All prices are eliminated, which leaves one matrix for the shares: see docs/optimisers-sharing.md."""
    time, gpus = _slacks(scaled, point.share)
    throughput = (scaled.gain * point.share).sum(axis=1)
    safe = _safe(scaled, point.share)
    right = scaled.gain * (scaled.weight / throughput)[:, None]
    right = right + product * (1.0 / safe - 1.0 / time[:, None] - scaled.width[:, None] / gpus[None, :])
    right = right * scaled.open
    pairs = scaled.open[:, :, None] * scaled.open[:, None, :]
    blocks = scaled.gain[:, :, None] * scaled.gain[:, None, :] * (scaled.weight / throughput**2)[:, None, None]
    blocks = blocks + (point.time_price / time)[:, None, None] * pairs
    diagonal = np.arange(safe.shape[1])
    # where a job cannot run: 1 on the diagonal and 0 on the right, so the step is 0
    blocks[:, diagonal, diagonal] += np.where(scaled.open > 0.0, point.share_price / safe, 1.0)
    share = _solve(scaled, blocks, gpus / point.gpu_price, right)
    return _Point(
        share,
        product / time - point.time_price * (1.0 - share.sum(axis=1) / time),
        product / gpus - point.gpu_price * (1.0 - scaled.width @ share / gpus),
        (product / safe - point.share_price * (1.0 + share / safe)) * scaled.open,
    )


def _solve(scaled: _Scaled, blocks: Floats, loose: Floats, right: Floats) -> Floats:
    """x (n, T) of (blocks + sum over types t of w_t w_t' / loose_t) x = right, w_t the widths in column t.

    The GPUs of a type couple all jobs, but by one rank a type: Woodbury. Near the end blocks are nearly singular, so
    the answer is refined by its own residual.
    """
    open_pairs = scaled.open[:, :, None] * scaled.open[:, None, :]
    coupled = np.linalg.inv(blocks) * open_pairs
    middle = np.diag(loose) + np.einsum("i,ijk->jk", scaled.width**2, coupled)
    found = np.zeros_like(right)
    left = right
    for _ in range(REFINED):
        alone = np.einsum("ijk,ik->ij", coupled, left)
        pull = np.linalg.solve(middle, scaled.width @ alone)
        found = found + alone - scaled.width[:, None] * np.einsum("ijk,k->ij", coupled, pull)
        used = scaled.width[:, None] * (scaled.width @ found / loose)[None, :]
        left = (right - np.einsum("ijk,ik->ij", blocks, found) - used) * scaled.open
    return np.asarray(found * scaled.open)


def _bound(scaled: _Scaled, point: _Point) -> float:
    """Weak duality: for prices p >= 0 of GPUs and m >= 0 of a job's time, with cheapest_i the least over the types of
    (width_i p_t + m_i) / gain_it,  value <= p . gpus + sum m + sum weight (log(weight / cheapest) - 1).
    """
    cost = scaled.width[:, None] * point.gpu_price[None, :] + point.time_price[:, None]
    cheapest = np.where(scaled.open > 0.0, cost / np.where(scaled.open > 0.0, scaled.gain, 1.0), np.inf).min(axis=1)
    fit = scaled.weight @ (np.log(scaled.weight / cheapest) - 1.0)
    return float(point.gpu_price @ scaled.gpus + point.time_price.sum() + fit)

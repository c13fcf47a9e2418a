"""Prediction of a curve's end by an ensemble of power laws value(t) = A - B t^-p.

The `pop` policy calls it. The 21 members are 7 exponents times 3 lengths of tail, fitted to the tail of the running
best. Each is a linear least-squares fit in (A, B), so a prediction costs microseconds. After the ensembles of Domhan et
al. (IJCAI 2015) and of DPL (NeurIPS 2023), without their sampling.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_core.curves.non_finite import diverged
from podium_core.domain.snapshot import Point

EXPONENTS = np.array([0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0])
TAIL_SHARES = (1.0, 0.6, 0.35)  # shares of the points, counted from the end, that a fit uses
MIN_POINTS = 3  # smallest number of points of a tail
MEMBERS = len(EXPONENTS) * len(TAIL_SHARES)
LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class EnsemblePrediction:
    """Members' final values (larger is better), their weights (sum 1) and the mean fitting error."""

    finals: NDArray[np.float64]
    weights: NDArray[np.float64]
    noise: float


def predict(curve: Sequence[Point], sign: float, horizon: float) -> EnsemblePrediction | None:
    """Return the prediction for step `horizon`; None for fewer than MIN_POINTS finite points. O(points)."""
    kept = [(p.step, sign * p.value) for p in curve if not diverged(p.value) and p.step > 0.0]
    if len(kept) < MIN_POINTS:
        return None
    data = np.array(kept)
    t = data[:, 0] / horizon
    y = np.maximum.accumulate(data[:, 1])
    best = y[-1]
    half = float(y[-1] / 2 - y[0] / 2) or 0.5  # half of the gain: the whole gain may overflow
    y = (y / 2 - y[-1] / 2) / half  # the last best value is 0
    powers = t[:, None] ** -EXPONENTS  # (points, exponents); 1 at the horizon
    members, errors = [], []
    for share in TAIL_SHARES:
        count = max(MIN_POINTS, int(np.ceil(share * len(t))))
        x, tail = powers[-count:], y[-count:]
        slope, level = _fit_lines(x, tail)
        slope = np.minimum(slope, 0.0)  # A running best never decreases.
        residual = tail[:, None] - (level + slope * x)
        # Continue from the last point: a fit that misses a known value predicts worse.
        members.append(np.maximum(slope * (1.0 - x[-1]), 0.0))
        errors.append(np.sqrt(_mean(residual**2)))
    final, error = np.concatenate(members), np.concatenate(errors)
    weights = 1.0 / (error + 0.01) ** 2
    weights /= weights.sum()
    noise = float(weights @ error) * half * 2
    with np.errstate(over="ignore"):
        finals = np.minimum(final * half * 2 + best, LARGEST)
    return EnsemblePrediction(finals, weights, min(noise, LARGEST))


def _fit_lines(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return slope and level of the least-squares fit y = level + slope * x, one per column of x."""
    center, level = _mean(x), _mean(y)
    centered = x - center
    spread = np.add.reduce(centered**2)
    slope = np.add.reduce(centered * (y - level)[:, None]) / np.maximum(spread, 1e-12)
    return slope, level - slope * center


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the points: numpy's to the last bit, in half the time."""
    total: NDArray[np.float64] = np.add.reduce(values)
    return total / len(values)

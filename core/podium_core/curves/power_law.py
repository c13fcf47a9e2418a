"""Where a curve will end: an ensemble of power laws value(t) = A - B t^-p, fitted to the tail of the running best.

Called by the `pop` policy. The 21 members are 7 exponents times 3 lengths of tail; each is a linear least-squares fit
in (A, B), so a prediction costs microseconds. After the ensembles of Domhan et al. (IJCAI 2015) and of DPL (NeurIPS
2023), without their sampling.
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
TAILS = (1.0, 0.6, 0.35)  # shares of the points that a fit looks at, the latest
LEAST = 3  # points of a tail
MEMBERS = len(EXPONENTS) * len(TAILS)
LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Forecast:
    """Members' final values (larger is better), their weights (sum 1), and the spread that none of them explains."""

    finals: NDArray[np.float64]
    weights: NDArray[np.float64]
    noise: float


def forecast(curve: Sequence[Point], sign: float, horizon: float) -> Forecast | None:
    """The final value at step `horizon`; None for fewer than LEAST finite points. O(points)."""
    kept = [(p.step, sign * p.value) for p in curve if not diverged(p.value) and p.step > 0.0]
    if len(kept) < LEAST:
        return None
    data = np.array(kept)
    t = data[:, 0] / horizon
    y = np.maximum.accumulate(data[:, 1])
    best = y[-1]
    half = float(y[-1] / 2 - y[0] / 2) or 0.5  # of what was gained: all of it may be beyond the largest number
    y = (y / 2 - y[-1] / 2) / half  # last best = 0
    powers = t[:, None] ** -EXPONENTS  # (points, exponents); 1 at the horizon
    members, errors = [], []
    for share in TAILS:
        count = max(LEAST, int(np.ceil(share * len(t))))
        x, tail = powers[-count:], y[-count:]
        slope, level = _line(x, tail)
        slope = np.minimum(slope, 0.0)  # what has been gained is not lost again
        residual = tail[:, None] - (level + slope * x)
        # through the last point: a fit that misses what is known predicts worse than one that continues it
        members.append(np.maximum(slope * (1.0 - x[-1]), 0.0))
        errors.append(np.sqrt(_mean(residual**2)))
    final, error = np.concatenate(members), np.concatenate(errors)
    weights = 1.0 / (error + 0.01) ** 2
    weights /= weights.sum()
    noise = float(weights @ error) * half * 2
    with np.errstate(over="ignore"):
        finals = np.minimum(final * half * 2 + best, LARGEST)
    return Forecast(finals, weights, min(noise, LARGEST))


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Least squares y = level + slope * x, one fit a column of x."""
    middle, level = _mean(x), _mean(y)
    apart = x - middle
    spread = np.add.reduce(apart**2)
    slope = np.add.reduce(apart * (y - level)[:, None]) / np.maximum(spread, 1e-12)
    return slope, level - slope * middle


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the points; numpy's own to the bit, in half the time."""
    total: NDArray[np.float64] = np.add.reduce(values)
    return total / len(values)

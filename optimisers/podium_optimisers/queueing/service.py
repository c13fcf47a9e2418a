"""Distributions of service time by mean and c2 (variance / mean^2): tail, density, samples. Called by `srpt` and the
benchmark.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.queueing.checks import InputError, require

Floats = NDArray[np.float64]


class ServiceTime(Protocol):
    """A continuous distribution on [0, inf)."""

    @property
    def mean(self) -> float: ...
    @property
    def c2(self) -> float: ...
    def tail(self, times: Floats) -> Floats:
        """P(S > t), same shape."""
        ...

    def density(self, times: Floats) -> Floats: ...
    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Exponential:
    mean: float

    @property
    def c2(self) -> float:
        return 1.0

    def tail(self, times: Floats) -> Floats:
        return np.exp(-times / self.mean)

    def density(self, times: Floats) -> Floats:
        return np.exp(-times / self.mean) / self.mean

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return rng.exponential(self.mean, shape)


@dataclass(frozen=True, slots=True)
class Hyperexponential:
    """Two exponentials with balanced means (each brings half of the work): c2 > 1. Many short jobs, few long ones."""

    mean: float
    c2: float

    @property
    def short(self) -> float:
        """The probability of the shorter kind."""
        return 0.5 * (1.0 + math.sqrt((self.c2 - 1.0) / (self.c2 + 1.0)))

    @property
    def means(self) -> tuple[float, float]:
        return self.mean / (2.0 * self.short), self.mean / (2.0 * (1.0 - self.short))

    def tail(self, times: Floats) -> Floats:
        first, second = self.means
        return self.short * np.exp(-times / first) + (1.0 - self.short) * np.exp(-times / second)

    def density(self, times: Floats) -> Floats:
        first, second = self.means
        return self.short * np.exp(-times / first) / first + (1.0 - self.short) * np.exp(-times / second) / second

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        first, second = self.means
        return rng.exponential(1.0, shape) * np.where(rng.random(shape) < self.short, first, second)


@dataclass(frozen=True, slots=True)
class Erlang:
    """The sum of `phases` exponentials: c2 = 1 / phases. More regular than the exponential."""

    mean: float
    phases: int

    @property
    def c2(self) -> float:
        return 1.0 / self.phases

    def tail(self, times: Floats) -> Floats:
        scaled = times * self.phases / self.mean
        term, total = np.ones_like(scaled), np.ones_like(scaled)
        for phase in range(1, self.phases):
            term = term * scaled / phase
            total = total + term
        return total * np.exp(-scaled)

    def density(self, times: Floats) -> Floats:
        pace = self.phases / self.mean
        scaled = times * pace
        return pace * scaled ** (self.phases - 1) * np.exp(-scaled) / math.factorial(self.phases - 1)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return rng.gamma(self.phases, self.mean / self.phases, shape)


def fitted(mean: float, c2: float) -> ServiceTime:
    """A distribution with this mean and c2; below 1 the nearest 1 / phases (c2 >= 0.02)."""
    require(mean, "mean", above=0.0)
    require(c2, "c2", above=0.0)
    if c2 == 1.0:
        return Exponential(mean)
    if c2 > 1.0:
        return Hyperexponential(mean, c2)
    if c2 < 0.02:
        raise InputError("TooSmall", "c2", f"{c2:g} would need {1 / c2:.0f} phases; give 0.02 or more")
    return Erlang(mean, round(1.0 / c2))

"""Service time distributions by mean and squared coefficient of variation (c2 = variance / mean^2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from podium_optimisers.arrays import Floats
from podium_optimisers.validation import InputError, require_number


class ServiceTime(Protocol):
    """A continuous distribution on [0, inf)."""

    @property
    def mean(self) -> float:
        """Return the mean in seconds."""

    @property
    def c2(self) -> float:
        """Return the squared coefficient of variation."""

    def tail(self, times: Floats) -> Floats:
        """Return P(S > t) for each time, in the same shape."""
        ...

    def density(self, times: Floats) -> Floats:
        """Return the probability density at each time, in the same shape."""

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Return independent samples of this shape."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """The exponential distribution: c2 = 1."""

    mean: float

    @property
    def c2(self) -> float:
        """Return 1."""
        return 1.0

    def tail(self, times: Floats) -> Floats:
        """Return P(S > t)."""
        return np.exp(-times / self.mean)

    def density(self, times: Floats) -> Floats:
        """Return the probability density."""
        return np.exp(-times / self.mean) / self.mean

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Return independent samples."""
        return rng.exponential(self.mean, shape)


@dataclass(frozen=True, slots=True)
class Hyperexponential:
    """A mixture of two exponentials with balanced means, c2 > 1: many short jobs, few long ones.

    Balanced means: each of the two contributes half of the work.
    """

    mean: float
    c2: float

    @property
    def short(self) -> float:
        """Return the probability of the component with the shorter mean."""
        return 0.5 * (1.0 + math.sqrt((self.c2 - 1.0) / (self.c2 + 1.0)))

    @property
    def means(self) -> tuple[float, float]:
        """Return the means of the two components."""
        return self.mean / (2.0 * self.short), self.mean / (2.0 * (1.0 - self.short))

    def tail(self, times: Floats) -> Floats:
        """Return P(S > t)."""
        first, second = self.means
        return self.short * np.exp(-times / first) + (1.0 - self.short) * np.exp(-times / second)

    def density(self, times: Floats) -> Floats:
        """Return the probability density."""
        first, second = self.means
        return self.short * np.exp(-times / first) / first + (1.0 - self.short) * np.exp(-times / second) / second

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Return independent samples."""
        first, second = self.means
        return rng.exponential(1.0, shape) * np.where(rng.random(shape) < self.short, first, second)


@dataclass(frozen=True, slots=True)
class Erlang:
    """The Erlang distribution: the sum of `phases` exponentials, c2 = 1 / phases."""

    mean: float
    phases: int

    @property
    def c2(self) -> float:
        """Return 1 / phases."""
        return 1.0 / self.phases

    def tail(self, times: Floats) -> Floats:
        """Return P(S > t)."""
        scaled = times * self.phases / self.mean
        term, total = np.ones_like(scaled), np.ones_like(scaled)
        for phase in range(1, self.phases):
            term = term * scaled / phase
            total = total + term
        return total * np.exp(-scaled)

    def density(self, times: Floats) -> Floats:
        """Return the probability density."""
        pace = self.phases / self.mean
        scaled = times * pace
        return pace * scaled ** (self.phases - 1) * np.exp(-scaled) / math.factorial(self.phases - 1)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Return independent samples."""
        return rng.gamma(self.phases, self.mean / self.phases, shape)


def fit_two_moments(mean: float, c2: float) -> ServiceTime:
    """Return a distribution with this mean and c2 (two-moment fit).

    Below c2 = 1 the fit takes the nearest 1 / phases; c2 must be at least 0.02.
    """
    require_number(mean, "mean", above=0.0)
    require_number(c2, "c2", above=0.0)
    if c2 == 1.0:
        return Exponential(mean)
    if c2 > 1.0:
        return Hyperexponential(mean, c2)
    if c2 < 0.02:
        raise InputError("TooSmall", "c2", f"{c2:g} needs {1 / c2:.0f} phases; give 0.02 or more")
    return Erlang(mean, round(1.0 / c2))

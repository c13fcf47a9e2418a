"""M/M/c: Erlang B (loss), Erlang C (delay), mean waits and their quantiles.

Sources: Erlang (1917); Kleinrock, Queueing Systems I (1975), sections 3.4-3.6. Recursion of B: Messerli (1972).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.validation import InputError, require_count, require_number


def erlang_b_table(offered_load: float, servers: int) -> NDArray[np.float64]:
    """Return the blocking probabilities of M/G/c/c for c = 0..servers, shape (servers + 1,).

    `offered_load` = arrival rate x mean service. The recursion 1/B(c) = 1 + c / offered_load / B(c - 1) is stable and
    needs no factorial. O(servers).
    """
    require_number(offered_load, "offered_load", above=0.0)
    require_count(servers, "servers", at_least=0)
    blocking = np.empty(servers + 1)
    blocking[0] = blocking_probability = 1.0
    for count in range(1, servers + 1):
        blocking_probability = offered_load * blocking_probability / (count + offered_load * blocking_probability)
        blocking[count] = blocking_probability
    return blocking


def erlang_b(offered_load: float, servers: int) -> float:
    """Return the share of arrivals that find all `servers` busy and are lost."""
    return float(erlang_b_table(offered_load, servers)[-1])


def erlang_c(offered_load: float, servers: int) -> float:
    """Return the share of arrivals that have to wait; 1 at load >= 1, where the queue grows without limit."""
    require_count(servers, "servers")
    load = require_number(offered_load, "offered_load", above=0.0) / servers
    if load >= 1.0:
        return 1.0
    blocking_probability = erlang_b(offered_load, servers)
    return blocking_probability / (1.0 - load * (1.0 - blocking_probability))


@dataclass(frozen=True, slots=True)
class MMc:
    """An M/M/c queue: Poisson arrivals, exponential service, `servers` and one FCFS queue.

    `rate` is in jobs per second; `service` is the mean service time in seconds.
    """

    rate: float
    service: float
    servers: int

    def __post_init__(self) -> None:
        require_number(self.rate, "rate", above=0.0)
        require_number(self.service, "service", above=0.0)
        require_count(self.servers, "servers")

    @property
    def offered_load(self) -> float:
        """Return the offered load: the mean number of busy servers if no job had to wait."""
        return self.rate * self.service

    @property
    def load(self) -> float:
        """Return the load (utilisation) rho."""
        return self.offered_load / self.servers

    @property
    def wait_probability(self) -> float:
        """Return P(wait > 0), Erlang C."""
        return erlang_c(self.offered_load, self.servers)

    @property
    def mean_wait(self) -> float:
        """Return the mean seconds in the queue over all jobs; infinite at load >= 1."""
        if self.load >= 1.0:
            return math.inf
        return self.wait_probability * self.service / (self.servers * (1.0 - self.load))

    @property
    def mean_response(self) -> float:
        """Return the mean seconds from arrival to completion."""
        return self.mean_wait + self.service

    @property
    def mean_queue(self) -> float:
        """Return the mean number of waiting jobs, by Little's law."""
        return self.rate * self.mean_wait

    def wait_tail(self, seconds: float) -> float:
        """Return P(wait > seconds): a wait, given that it is above 0, is exponential."""
        require_number(seconds, "seconds", at_least=0.0)
        if self.load >= 1.0:
            return 1.0
        return self.wait_probability * math.exp(-self.servers * (1.0 - self.load) * seconds / self.service)

    def wait_quantile(self, share: float) -> float:
        """Return the shortest time that `share` of all jobs do not exceed."""
        return wait_time_quantile(self.wait_probability, self.mean_wait, share)


def wait_time_quantile(wait_probability: float, mean_wait: float, share: float) -> float:
    """Return a quantile of a wait that is 0 or exponential, as in M/M/c.

    The wait is above 0 with probability `wait_probability`. Exact for M/M/c.
    """
    require_number(share, "share", at_least=0.0)
    if share >= 1.0:
        raise InputError("TooLarge", "share", f"{share:g} is out of range; give a share below 1")
    if math.isinf(mean_wait):
        return math.inf
    if 1.0 - share >= wait_probability:
        return 0.0
    return mean_wait / wait_probability * math.log(wait_probability / (1.0 - share))


def mmck_blocking(offered_load: float, servers: int, buffer: int) -> float:
    """Return the blocking probability of M/M/c/(c + buffer). O(servers).

    `buffer` jobs can wait; an arrival that finds the buffer full is lost.
    """
    require_count(buffer, "buffer", at_least=0)
    blocking_probability = erlang_b(offered_load, servers)
    load = offered_load / servers
    # above c jobs, each further state is less likely by the factor `load`
    powers = load ** np.arange(buffer + 1)
    return float(blocking_probability * powers[-1] / (1.0 + blocking_probability * (powers.sum() - 1.0)))

"""M/M/c: Erlang B (loss), Erlang C (delay), waits and their quantiles. Called by `capacity`, `approximations`, tests.

Source: Erlang (1917); Kleinrock, Queueing Systems I (1975), sections 3.4-3.6; recursion of B: Messerli (1972).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium_optimisers.queueing.checks import InputError, require, require_count


def erlang_b_up_to(offered: float, servers: int) -> NDArray[np.float64]:
    """Loss probabilities of M/G/c/c for c = 0..servers, shape (servers + 1,); `offered` = arrival rate x mean service.

    1/B(c) = 1 + c / offered / B(c - 1): stable, no factorial. O(servers).
    """
    require(offered, "offered", above=0.0)
    require_count(servers, "servers", least=0)
    found = np.empty(servers + 1)
    found[0] = blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
        found[count] = blocked
    return found


def erlang_b(offered: float, servers: int) -> float:
    """Share of arrivals that find all `servers` busy and are lost."""
    return float(erlang_b_up_to(offered, servers)[-1])


def erlang_c(offered: float, servers: int) -> float:
    """Share of arrivals that have to wait; 1 when the load is 1 or more (the queue grows without end)."""
    require_count(servers, "servers")
    load = require(offered, "offered", above=0.0) / servers
    if load >= 1.0:
        return 1.0
    blocked = erlang_b(offered, servers)
    return blocked / (1.0 - load * (1.0 - blocked))


@dataclass(frozen=True, slots=True)
class MMc:
    """Poisson arrivals (`rate` per second), exponential service (mean `service` seconds), `servers`, one FCFS queue."""

    rate: float
    service: float
    servers: int

    def __post_init__(self) -> None:
        require(self.rate, "rate", above=0.0)
        require(self.service, "service", above=0.0)
        require_count(self.servers, "servers")

    @property
    def offered(self) -> float:
        return self.rate * self.service

    @property
    def load(self) -> float:
        return self.offered / self.servers

    @property
    def wait_probability(self) -> float:
        return erlang_c(self.offered, self.servers)

    @property
    def mean_wait(self) -> float:
        """Seconds in the queue, over all jobs; infinite at load >= 1."""
        if self.load >= 1.0:
            return math.inf
        return self.wait_probability * self.service / (self.servers * (1.0 - self.load))

    @property
    def mean_response(self) -> float:
        return self.mean_wait + self.service

    @property
    def mean_queue(self) -> float:
        """Jobs that wait, by Little's law."""
        return self.rate * self.mean_wait

    def wait_beyond(self, seconds: float) -> float:
        """P(wait > seconds): a wait, if there is one, is exponential."""
        require(seconds, "seconds", least=0.0)
        if self.load >= 1.0:
            return 1.0
        return self.wait_probability * math.exp(-self.servers * (1.0 - self.load) * seconds / self.service)

    def wait_quantile(self, share: float) -> float:
        """The shortest time that `share` of all jobs wait at most."""
        return quantile_of_wait(self.wait_probability, self.mean_wait, share)


def quantile_of_wait(wait_probability: float, mean_wait: float, share: float) -> float:
    """Quantile of a wait that is 0 with 1 - `wait_probability`, else exponential. Exact for M/M/c."""
    require(share, "share", least=0.0)
    if share >= 1.0:
        raise InputError("TooLarge", "share", f"{share:g} of all jobs is out of range; give a share below 1")
    if math.isinf(mean_wait):
        return math.inf
    if 1.0 - share >= wait_probability:
        return 0.0
    return mean_wait / wait_probability * math.log(wait_probability / (1.0 - share))


def loss_with_room(offered: float, servers: int, room: int) -> float:
    """Share lost of M/M/c/(c + room): `room` places to wait, who finds none is turned away. O(servers)."""
    require_count(room, "room", least=0)
    blocked = erlang_b(offered, servers)
    load = offered / servers
    # above c the number in the system goes down by the factor `load` a place
    powers = load ** np.arange(room + 1)
    return float(blocked * powers[-1] / (1.0 + blocked * (powers.sum() - 1.0)))

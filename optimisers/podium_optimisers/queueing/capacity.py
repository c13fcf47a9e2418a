"""How many GPUs keep the wait within a bound? From numbers by formula, from a trace by replaying it. Called by
`podium capacity`.

The wait goes down with every GPU more (Erlang C, and `gang_waits` for a trace), so the answer is found by doubling and
bisection, and one GPU less is shown not to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.queueing.approximations import GGc
from podium_optimisers.queueing.checks import InputError, require, require_count
from podium_optimisers.queueing.erlang import erlang_b_up_to
from podium_optimisers.queueing.trace import Trace
from podium_optimisers.queueing.waiting import gang_waits

MOST = 1_000_000  # GPUs: beyond this the numbers given are surely not those meant
SHOWN = 2  # steps shown below and above the answer


@dataclass(frozen=True, slots=True)
class Goal:
    """`share` of the jobs wait at most `wait` seconds; without a share, the mean wait is at most `wait`."""

    wait: float
    share: float | None = None

    def __post_init__(self) -> None:
        require(self.wait, "wait", least=0.0)
        if self.share is None:
            if self.wait == 0.0:
                text = "a mean of 0 s cannot be promised where arrivals are random; give more, or a share"
                raise InputError("TooSmall", "wait", text)
            return
        if not 0.0 < self.share < 1.0:
            raise InputError("OutOfRange", "share", f"{self.share:g} is out of range; give more than 0 and below 1")

    @property
    def text(self) -> str:
        if self.share is None:
            return f"mean wait at most {self.wait:g} s"
        return f"{self.share:g} of the jobs wait at most {self.wait:g} s"


@dataclass(frozen=True, slots=True)
class Demand:
    """`rate` jobs per second, each `service` seconds (mean) on `width` GPUs; c2 = variance / mean^2."""

    rate: float
    service: float
    width: int = 1
    arrival_c2: float = 1.0
    service_c2: float = 1.0

    def __post_init__(self) -> None:
        require_count(self.width, "width")
        GGc(self.rate, self.service, 1, self.arrival_c2, self.service_c2)  # checks the rest

    @property
    def offered(self) -> float:
        """GPUs busy on average if none ever had to wait."""
        return self.rate * self.service * self.width


@dataclass(frozen=True, slots=True)
class Row:
    """What `gpus` GPUs give; waits in seconds, `tail_wait` at the goal's share (0.95 where it has none).

    `lost`: share of the jobs turned away; 0 where there is a queue.
    """

    gpus: int
    load: float
    wait_probability: float
    mean_wait: float
    tail_wait: float
    meets: bool
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The fewest GPUs that meet the goal, with `rows` around it; `method` says how exact that is."""

    gpus: int
    offered: float
    goal: str
    tail_share: float
    method: str
    rows: tuple[Row, ...]

    @property
    def answer(self) -> Row:
        return next(row for row in self.rows if row.gpus == self.gpus)


def from_numbers(demand: Demand, goal: Goal) -> Plan:
    """Jobs of `width` GPUs each see floor(gpus / width) servers, so the answer is a multiple of the width."""
    share = goal.share or 0.95

    def row(servers: int) -> Row:
        queue = GGc(demand.rate, demand.service, servers, demand.arrival_c2, demand.service_c2)
        mean, tail = queue.mean_wait, queue.wait_quantile(share)
        meets = (mean if goal.share is None else tail) <= goal.wait
        return Row(servers * demand.width, queue.load, queue.wait_probability, mean, tail, meets)

    exact = demand.arrival_c2 == demand.service_c2 == 1.0
    method = "Erlang C (M/M/c, exact)" if exact else "Allen-Cunneen (G/G/c, an approximation)"
    least = math.floor(demand.rate * demand.service) + 1
    return _fewest(row, least, least, demand.offered, goal.text, share, method)


def from_trace(trace: Trace, goal: Goal) -> Plan:
    """Replays the trace, first come first served, each job on its GPUs at once, without back-filling. Exact for it."""
    share = goal.share or 0.95

    def row(gpus: int) -> Row:
        waits = gang_waits(trace.arrivals, trace.services, trace.widths, gpus)
        # the value that `share` of the jobs do not exceed: no value between two jobs is made up
        mean, tail = float(waits.mean()), float(np.quantile(waits, share, method="inverted_cdf"))
        meets = (mean if goal.share is None else tail) <= goal.wait
        return Row(gpus, trace.offered / gpus, float((waits > 0.0).mean()), mean, tail, meets)

    widest = int(trace.widths.max())
    begin = max(widest, math.ceil(trace.offered))
    method = (
        f"replay of the trace (FCFS, exact; c2 {trace.arrival_c2:.3g} of arrivals, {trace.service_c2:.3g} of run times)"
    )
    return _fewest(row, widest, begin, trace.offered, goal.text, share, method)


def without_queue(demand: Demand, lost: float) -> Plan:
    """Jobs that find no room are turned away: the fewest GPUs that lose at most the share `lost` (Erlang B)."""
    if not 0.0 < require(lost, "lost") < 1.0:
        raise InputError("OutOfRange", "lost", f"{lost:g} is out of range; give more than 0 and below 1")
    offered, reach = demand.rate * demand.service, 16
    _reachable(offered)
    while (losses := erlang_b_up_to(offered, reach))[-1] > lost:
        reach = _doubled(reach)

    def row(servers: int) -> Row:
        loss = float(losses[servers]) if servers <= reach else float(erlang_b_up_to(offered, servers)[-1])
        load = offered * (1.0 - loss) / servers
        return Row(servers * demand.width, load, 0.0, 0.0, 0.0, loss <= lost, loss)

    goal = f"at most {lost:g} of the jobs turned away"
    # Erlang B holds for any distribution of service, but needs Poisson arrivals
    exact = demand.arrival_c2 == 1.0
    method = "Erlang B (M/G/c/c, exact)" if exact else "Erlang B (arrivals taken as Poisson, an approximation)"
    return _fewest(row, 1, 1, demand.offered, goal, 0.95, method)


def _fewest(
    row: Callable[[int], Row], least: int, begin: int, offered: float, goal: str, share: float, method: str
) -> Plan:
    """The smallest count >= `least` whose row meets; `begin` is where to look first."""
    _reachable(offered)
    seen: dict[int, Row] = {}

    def look(count: int) -> Row:
        if count not in seen:
            seen[count] = row(count)
        return seen[count]

    below, enough = least - 1, begin
    while not look(enough).meets:
        below, enough = enough, _doubled(enough)
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if look(middle).meets else (middle, enough)
    shown = tuple(look(count) for count in range(max(least, enough - SHOWN), enough + SHOWN + 1))
    return Plan(look(enough).gpus, offered, goal, share, method, shown)


def _doubled(count: int) -> int:
    _reachable(2 * count)
    return 2 * count


def _reachable(gpus: float) -> None:
    if gpus > MOST:
        raise InputError("TooLarge", "gpus", f"more than {MOST} would be needed; check rate, service and wait")

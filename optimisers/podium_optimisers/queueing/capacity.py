"""Capacity planning: the fewest GPUs that keep the wait within a bound, by formula or by replay.

More GPUs never make the wait longer (Erlang C, and `gang_waits` for a trace), so doubling and bisection find the
answer. The plan also shows that one step less does not meet the goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from podium_optimisers.queueing.approximations import GGc
from podium_optimisers.queueing.erlang import erlang_b_table
from podium_optimisers.queueing.trace import JobTrace
from podium_optimisers.queueing.waiting import gang_waits
from podium_optimisers.validation import InputError, require_count, require_number

MAX_GPUS = 1_000_000  # an answer above this is certainly an input error
ROWS_SHOWN = 2  # rows shown below and above the answer


@dataclass(frozen=True, slots=True)
class WaitGoal:
    """A bound on the wait: `share` of the jobs wait at most `wait` seconds.

    Without a share, the mean wait is at most `wait`.
    """

    wait: float
    share: float | None = None

    def __post_init__(self) -> None:
        require_number(self.wait, "wait", at_least=0.0)
        if self.share is None:
            if self.wait == 0.0:
                text = "a mean wait of 0 s is impossible with random arrivals; give a larger bound, or a share"
                raise InputError("TooSmall", "wait", text)
            return
        if not 0.0 < self.share < 1.0:
            raise InputError("OutOfRange", "share", f"{self.share:g} is out of range; give more than 0 and below 1")

    @property
    def text(self) -> str:
        """Return the goal in words."""
        if self.share is None:
            return f"mean wait at most {self.wait:g} s"
        return f"{self.share:g} of the jobs wait at most {self.wait:g} s"


@dataclass(frozen=True, slots=True)
class Traffic:
    """The arrival process: `rate` jobs per second, each `service` seconds (mean) on `width` GPUs.

    `arrival_c2` and `service_c2` are squared coefficients of variation, variance / mean^2.
    """

    rate: float
    service: float
    width: int = 1
    arrival_c2: float = 1.0
    service_c2: float = 1.0

    def __post_init__(self) -> None:
        require_count(self.width, "width")
        GGc(self.rate, self.service, 1, self.arrival_c2, self.service_c2)  # validates the other fields

    @property
    def offered_load(self) -> float:
        """Return the GPUs that would be busy on average if no job had to wait."""
        return self.rate * self.service * self.width


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """The performance of `gpus` GPUs. Waits are in seconds.

    `tail_wait` is the quantile at the goal's share (0.95 if the goal has none). `lost` is the share of the jobs turned
    away, 0 for a system with a queue.
    """

    gpus: int
    load: float
    wait_probability: float
    mean_wait: float
    tail_wait: float
    meets: bool
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The fewest GPUs that meet the goal, with the rows around them.

    `method` states how exact the answer is.
    """

    gpus: int
    offered_load: float
    goal: str
    tail_share: float
    method: str
    rows: tuple[CapacityRow, ...]

    @property
    def answer(self) -> CapacityRow:
        """Return the row of the answer."""
        return next(row for row in self.rows if row.gpus == self.gpus)


def plan_from_traffic(traffic: Traffic, goal: WaitGoal) -> CapacityPlan:
    """Plan by formula from rates.

    Jobs of `width` GPUs see floor(gpus / width) servers, so the answer is a multiple of the width.
    """
    share = goal.share or 0.95

    def row(servers: int) -> CapacityRow:
        queue = GGc(traffic.rate, traffic.service, servers, traffic.arrival_c2, traffic.service_c2)
        mean, tail = queue.mean_wait, queue.wait_quantile(share)
        meets = (mean if goal.share is None else tail) <= goal.wait
        return CapacityRow(servers * traffic.width, queue.load, queue.wait_probability, mean, tail, meets)

    exact = traffic.arrival_c2 == traffic.service_c2 == 1.0
    method = "Erlang C (M/M/c, exact)" if exact else "Allen-Cunneen (G/G/c, an approximation)"
    least = math.floor(traffic.rate * traffic.service) + 1
    _check_limit(traffic.offered_load)
    gpus, rows = _search_fewest(row, least, least)
    return CapacityPlan(gpus, traffic.offered_load, goal.text, share, method, rows)


def plan_from_trace(trace: JobTrace, goal: WaitGoal) -> CapacityPlan:
    """Plan by replaying the trace: FCFS, each job on its GPUs at once, without backfilling.

    The answer is exact for the trace.
    """
    share = goal.share or 0.95

    def row(gpus: int) -> CapacityRow:
        waits = gang_waits(trace.arrivals, trace.services, trace.widths, gpus)
        # inverted_cdf: the quantile is the wait of a job, not an interpolation between two jobs
        mean, tail = float(waits.mean()), float(np.quantile(waits, share, method="inverted_cdf"))
        meets = (mean if goal.share is None else tail) <= goal.wait
        return CapacityRow(gpus, trace.offered_load / gpus, float((waits > 0.0).mean()), mean, tail, meets)

    widest = int(trace.widths.max())
    first_count = max(widest, math.ceil(trace.offered_load))
    method = (
        f"replay of the trace (FCFS, exact; c2 {trace.arrival_c2:.3g} of arrivals, {trace.service_c2:.3g} of run times)"
    )
    _check_limit(trace.offered_load)
    gpus, rows = _search_fewest(row, widest, first_count)
    return CapacityPlan(gpus, trace.offered_load, goal.text, share, method, rows)


def plan_loss_system(traffic: Traffic, lost: float) -> CapacityPlan:
    """Plan a loss system: the fewest GPUs that turn away at most the share `lost` of the jobs (Erlang B)."""
    if not 0.0 < require_number(lost, "lost") < 1.0:
        raise InputError("OutOfRange", "lost", f"{lost:g} is out of range; give more than 0 and below 1")
    offered_load, reach = traffic.rate * traffic.service, 16
    _check_limit(offered_load)
    while (losses := erlang_b_table(offered_load, reach))[-1] > lost:
        reach = _doubled(reach)

    def row(servers: int) -> CapacityRow:
        loss = float(losses[servers]) if servers <= reach else float(erlang_b_table(offered_load, servers)[-1])
        load = offered_load * (1.0 - loss) / servers
        return CapacityRow(servers * traffic.width, load, 0.0, 0.0, 0.0, loss <= lost, loss)

    goal = f"at most {lost:g} of the jobs turned away"
    # Erlang B holds for any service time distribution, but needs Poisson arrivals
    exact = traffic.arrival_c2 == 1.0
    method = "Erlang B (M/G/c/c, exact)" if exact else "Erlang B (assumes Poisson arrivals, an approximation)"
    _check_limit(traffic.offered_load)
    gpus, rows = _search_fewest(row, 1, 1)
    return CapacityPlan(gpus, traffic.offered_load, goal, 0.95, method, rows)


def _search_fewest(
    row: Callable[[int], CapacityRow], least: int, first_count: int
) -> tuple[int, tuple[CapacityRow, ...]]:
    """Return the GPUs of the smallest count >= `least` that meets the goal, with the rows around it.

    `first_count` is the first count that the search tries.
    """
    rows: dict[int, CapacityRow] = {}

    def cached_row(count: int) -> CapacityRow:
        if count not in rows:
            rows[count] = row(count)
        return rows[count]

    below, enough = least - 1, first_count
    while not cached_row(enough).meets:
        below, enough = enough, _doubled(enough)
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if cached_row(middle).meets else (middle, enough)
    shown = tuple(cached_row(count) for count in range(max(least, enough - ROWS_SHOWN), enough + ROWS_SHOWN + 1))
    return cached_row(enough).gpus, shown


def _doubled(count: int) -> int:
    """Return twice the count. Raise InputError if it exceeds the limit."""
    _check_limit(2 * count)
    return 2 * count


def _check_limit(gpus: float) -> None:
    """Raise InputError if this many GPUs exceed the limit."""
    if gpus > MAX_GPUS:
        raise InputError("TooLarge", "gpus", f"more than {MAX_GPUS} GPUs would be needed; check rate, service and wait")

"""Shall this job start now, wait, or be turned away? A bound on its wait decides, and the answer says why.

Called by the benchmark and by whoever puts a door before a cluster; pure, the state is given. Two states of knowledge:
`by_schedule` knows how long each job takes (its wait is exact under FCFS), `by_count` only the mean (exponential).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, islice, repeat
from itertools import count as counted

from podium_optimisers.queueing.checks import InputError, require, require_count


class Verdict(StrEnum):
    ADMIT = "Admit"  # starts at once
    QUEUE = "Queue"
    REJECT = "Reject"


@dataclass(frozen=True, slots=True)
class Decision:
    """`wait`: seconds the job would wait (by_count: the mean); `retry_after`: when the answer may be another."""

    verdict: Verdict
    code: str
    message: str
    wait: float
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A job at the door: GPUs at once, seconds of work."""

    name: str
    gpus: int
    seconds: float

    def __post_init__(self) -> None:
        require_count(self.gpus, "gpus", task=self.name)
        require(self.seconds, "seconds", task=self.name, above=0.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """No job may wait longer than `wait` seconds; under `by_count` a job is let in if it may with chance `risk`."""

    wait: float
    risk: float = 0.05

    def __post_init__(self) -> None:
        require(self.wait, "wait", least=0.0)
        if not 0.0 < require(self.risk, "risk") < 1.0:
            raise InputError("OutOfRange", "risk", f"{self.risk:g} is out of range; give more than 0 and below 1")


def by_schedule(request: Request, busy: Sequence[float], queue: Sequence[Request], bound: Bound) -> Decision:
    """`busy`: per GPU the seconds until it is free (0: free now); `queue`: who waits, in order (FCFS, no back-filling).

    The wait is exact if the durations are. O((gpus + sum of widths) log gpus).
    """
    for place, seconds in enumerate(busy):
        require(seconds, "busy", task=f"gpu {place}", least=0.0)
    if not busy:
        raise InputError("NoMachines", "busy", "there is no GPU; give one entry for each")
    for job in (*queue, request):
        if job.gpus > len(busy):
            if job is request:
                return _too_wide(request, len(busy))
            text = f"{job.gpus} GPUs fit nowhere, the cluster has {len(busy)}; take it out of the queue"
            raise InputError("NoFittingMachine", "gpus", text, job.name)
    free = list(busy)
    heapq.heapify(free)
    before = 0.0
    for job in queue:
        before = _place(free, job, before)
    idle = sum(seconds == 0.0 for seconds in busy)
    wait = _start(free, request, before)
    if wait == 0.0:
        return Decision(
            Verdict.ADMIT, "GPUsAvailable", f"needs {_gpus(request.gpus)}; {idle} free, nobody before it.", 0.0
        )
    text = f"would wait {wait:g} s (bound {bound.wait:g} s): {idle} of {len(busy)} GPUs free, {len(queue)} before it"
    if wait <= bound.wait:
        return Decision(Verdict.QUEUE, "WaitWithinBound", f"{text}.", wait)
    # as time passes without arrivals its wait shrinks second by second
    after = wait - bound.wait
    return Decision(Verdict.REJECT, "WaitBeyondBound", f"{text}; ask again in {after:g} s.", wait, after)


def by_count(servers: int, busy: int, waiting: int, mean_service: float, bound: Bound) -> Decision:
    """Only counts are known: a job that finds q waiting starts after q + 1 ends, each a mean / servers apart.

    With exponential service the wait is Erlang(q + 1): the job is let in if P(wait > bound) <= risk.
    """
    require_count(servers, "servers")
    require_count(busy, "busy", least=0)
    require_count(waiting, "waiting", least=0)
    require(mean_service, "mean_service", above=0.0)
    if busy > servers:
        raise InputError("TooLarge", "busy", f"{busy} of {servers} servers cannot be busy; count again")
    if busy < servers:
        return Decision(Verdict.ADMIT, "GPUsAvailable", f"{servers - busy} of {servers} servers free.", 0.0)
    gap = mean_service / servers
    mean = (waiting + 1) * gap
    late = _erlang_tail(waiting + 1, bound.wait / gap)
    text = f"{waiting} wait before it: {mean:g} s on average, beyond {bound.wait:g} s with probability {late:.2g}"
    if late <= bound.risk:
        return Decision(Verdict.QUEUE, "WaitWithinBound", f"{text} (at most {bound.risk:g}).", mean)
    room = places(servers, mean_service, bound)
    after = (waiting + 1 - room) * gap
    message = f"{text} (at most {bound.risk:g}); ask again in {after:g} s."
    return Decision(Verdict.REJECT, "WaitBeyondBound", message, mean, after)


def places(servers: int, mean_service: float, bound: Bound) -> int:
    """How many may wait under `by_count`: the queue is then M/M/c/(c + places), see `erlang.loss_with_room`."""
    tails = accumulate(_poisson(bound.wait * servers / mean_service))
    return next(room for room, late in enumerate(tails) if late > bound.risk)


def _erlang_tail(ends: int, passed: float) -> float:
    """P(fewer than `ends` events of a Poisson process in a time in which `passed` are expected)."""
    return math.fsum(islice(_poisson(passed), ends))


def _poisson(mean: float) -> Iterator[float]:
    """P(0), P(1), ... of a Poisson count; by logarithms, since exp(-mean) alone may be 0."""
    if mean == 0.0:
        yield 1.0
        yield from repeat(0.0)
    for count in counted():
        yield math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _start(free: list[float], job: Request, before: float) -> float:
    """When `job` can start: after the one before it, when its GPUs are free. Takes them out of `free`."""
    freed = 0.0
    for _ in range(job.gpus):
        freed = heapq.heappop(free)
    return max(freed, before)


def _place(free: list[float], job: Request, before: float) -> float:
    start = _start(free, job, before)
    for _ in range(job.gpus):
        heapq.heappush(free, start + job.seconds)
    return start


def _too_wide(request: Request, gpus: int) -> Decision:
    text = f"needs {_gpus(request.gpus)}, the cluster has {gpus}; ask for {gpus} or fewer."
    return Decision(Verdict.REJECT, "LargerThanCluster", text, math.inf)


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"

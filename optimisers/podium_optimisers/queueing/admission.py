"""Admission control: decide whether a job starts now, waits or is rejected, given a bound on its wait.

The functions are pure: the caller passes the state of the cluster. `admit_by_schedule` knows how long each job takes,
so its wait is exact under FCFS. `admit_by_count` knows only the mean service time and assumes it exponential.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, islice, repeat
from itertools import count as counted

from podium_optimisers.validation import InputError, require_count, require_number


class AdmissionVerdict(StrEnum):
    """The outcome of admission control: start now, wait in the queue, or be rejected."""

    ADMIT = "Admit"
    QUEUE = "Queue"
    REJECT = "Reject"


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """A verdict with its reason. `wait`: seconds that the job would wait (`admit_by_count`: the mean).

    `retry_after`: seconds after which a rejected job may be admitted; None for other jobs.
    """

    verdict: AdmissionVerdict
    code: str
    message: str
    wait: float
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A job that asks for admission: the number of GPUs it needs at once and its seconds of work."""

    name: str
    gpus: int
    seconds: float

    def __post_init__(self) -> None:
        require_count(self.gpus, "gpus", item=self.name)
        require_number(self.seconds, "seconds", item=self.name, above=0.0)


@dataclass(frozen=True, slots=True)
class WaitBound:
    """The longest wait allowed, in seconds.

    Under `admit_by_count`, a job is admitted if it exceeds the bound with a probability of at most `risk`.
    """

    wait: float
    risk: float = 0.05

    def __post_init__(self) -> None:
        require_number(self.wait, "wait", at_least=0.0)
        if not 0.0 < require_number(self.risk, "risk") < 1.0:
            raise InputError("OutOfRange", "risk", f"{self.risk:g} is out of range; give more than 0 and below 1")


def admit_by_schedule(
    request: AdmissionRequest, busy: Sequence[float], queue: Sequence[AdmissionRequest], bound: WaitBound
) -> AdmissionDecision:
    """Decide from the exact schedule of the cluster.

    `busy`: for each GPU the seconds until it is free (0: free now). `queue`: the waiting jobs in FCFS order, without
    backfilling. The wait is exact if the durations are. O((gpus + sum of widths) log gpus).
    """
    for gpu, seconds in enumerate(busy):
        require_number(seconds, "busy", item=f"gpu {gpu}", at_least=0.0)
    if not busy:
        raise InputError("NoMachines", "busy", "the list is empty; give one entry for each GPU")
    for job in (*queue, request):
        if job.gpus > len(busy):
            if job is request:
                return _too_wide(request, len(busy))
            text = f"the job needs {job.gpus} GPUs and the cluster has {len(busy)}; remove the job from the queue"
            raise InputError("NoFittingMachine", "gpus", text, job.name)
    free = list(busy)
    heapq.heapify(free)
    before = 0.0
    for job in queue:
        before = _occupy(free, job, before)
    idle = sum(seconds == 0.0 for seconds in busy)
    wait = _start(free, request, before)
    if wait == 0.0:
        text = f"needs {_gpus(request.gpus)}; {idle} free, no job ahead of it."
        return AdmissionDecision(AdmissionVerdict.ADMIT, "GPUsAvailable", text, 0.0)
    text = f"would wait {wait:g} s (bound {bound.wait:g} s): {idle} of {len(busy)} GPUs free, {len(queue)} ahead of it"
    if wait <= bound.wait:
        return AdmissionDecision(AdmissionVerdict.QUEUE, "WaitWithinBound", f"{text}.", wait)
    # without arrivals the wait shrinks by one second each second
    after = wait - bound.wait
    return AdmissionDecision(AdmissionVerdict.REJECT, "WaitBeyondBound", f"{text}; retry in {after:g} s.", wait, after)


def admit_by_count(servers: int, busy: int, waiting: int, mean_service: float, bound: WaitBound) -> AdmissionDecision:
    """Decide from counts alone: a job behind q waiting jobs starts after q + 1 completions.

    With exponential service the completions are mean / servers apart and the wait is Erlang(q + 1) distributed. The job
    is admitted if P(wait > bound) <= risk.
    """
    require_count(servers, "servers")
    require_count(busy, "busy", at_least=0)
    require_count(waiting, "waiting", at_least=0)
    require_number(mean_service, "mean_service", above=0.0)
    if busy > servers:
        raise InputError("TooLarge", "busy", f"{busy} busy servers of {servers} are impossible; give at most {servers}")
    if busy < servers:
        return AdmissionDecision(
            AdmissionVerdict.ADMIT, "GPUsAvailable", f"{servers - busy} of {servers} servers free.", 0.0
        )
    gap = mean_service / servers
    mean = (waiting + 1) * gap
    probability = _erlang_tail(waiting + 1, bound.wait / gap)
    chance = f"more than {bound.wait:g} s with probability {probability:.2g}"
    text = f"{waiting} wait ahead of it: {mean:g} s on average, {chance}"
    if probability <= bound.risk:
        return AdmissionDecision(AdmissionVerdict.QUEUE, "WaitWithinBound", f"{text} (at most {bound.risk:g}).", mean)
    capacity = queue_capacity(servers, mean_service, bound)
    after = (waiting + 1 - capacity) * gap
    message = f"{text} (at most {bound.risk:g}); retry in {after:g} s."
    return AdmissionDecision(AdmissionVerdict.REJECT, "WaitBeyondBound", message, mean, after)


def queue_capacity(servers: int, mean_service: float, bound: WaitBound) -> int:
    """Return how many jobs may wait under `admit_by_count`.

    The queue is then M/M/c/(c + capacity); see `erlang.mmck_blocking`.
    """
    tails = accumulate(_poisson(bound.wait * servers / mean_service))
    return next(capacity for capacity, probability in enumerate(tails) if probability > bound.risk)


def _erlang_tail(ends: int, passed: float) -> float:
    """Return P(fewer than `ends` events of a Poisson process in a time in which `passed` are expected)."""
    return math.fsum(islice(_poisson(passed), ends))


def _poisson(mean: float) -> Iterator[float]:
    """Yield P(0), P(1), ... of a Poisson count.

    The terms are computed by logarithms because exp(-mean) alone may underflow to 0.
    """
    if mean == 0.0:
        yield 1.0
        yield from repeat(0.0)
    for count in counted():
        yield math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _start(free: list[float], job: AdmissionRequest, before: float) -> float:
    """Return when `job` can start: after the job ahead of it, once its GPUs are free.

    Pops its GPUs from `free`.
    """
    freed = 0.0
    for _ in range(job.gpus):
        freed = heapq.heappop(free)
    return max(freed, before)


def _occupy(free: list[float], job: AdmissionRequest, before: float) -> float:
    """Return when `job` starts and record in `free` when its GPUs are free again."""
    start = _start(free, job, before)
    for _ in range(job.gpus):
        heapq.heappush(free, start + job.seconds)
    return start


def _too_wide(request: AdmissionRequest, gpus: int) -> AdmissionDecision:
    """Return the rejection of a job that needs more GPUs than the cluster has."""
    text = f"needs {_gpus(request.gpus)}, the cluster has {gpus}; ask for {gpus} or fewer."
    return AdmissionDecision(AdmissionVerdict.REJECT, "LargerThanCluster", text, math.inf)


def _gpus(count: int) -> str:
    """Return the count with its unit."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"

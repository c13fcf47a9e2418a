"""Admission control: verdicts, messages, and that admitted jobs meet the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.queueing.admission import (
    AdmissionRequest,
    AdmissionVerdict,
    WaitBound,
    admit_by_count,
    admit_by_schedule,
    queue_capacity,
)
from podium_optimisers.queueing.waiting import gang_waits
from podium_optimisers.validation import InputError


def job(gpus: int = 1, seconds: float = 10.0, name: str = "new") -> AdmissionRequest:
    return AdmissionRequest(name, gpus, seconds)


@pytest.mark.parametrize(
    ("request_", "busy", "queue", "bound", "verdict", "code", "wait", "after"),
    [
        (job(2), [0, 0, 9], [], 0, AdmissionVerdict.ADMIT, "GPUsAvailable", 0.0, None),
        (job(2), [0, 8, 9], [], 8, AdmissionVerdict.QUEUE, "WaitWithinBound", 8.0, None),
        (job(2), [0, 8, 9], [], 5, AdmissionVerdict.REJECT, "WaitBeyondBound", 8.0, 3.0),
        # one GPU is free, but the wider job ahead takes it first: no backfilling
        (job(1), [0, 8], [job(2, 5, "ahead")], 20, AdmissionVerdict.QUEUE, "WaitWithinBound", 13.0, None),
        (job(1), [0, 8], [job(1, 5, "ahead")], 20, AdmissionVerdict.QUEUE, "WaitWithinBound", 5.0, None),
        (job(4), [0, 0, 0], [], 99, AdmissionVerdict.REJECT, "LargerThanCluster", math.inf, None),
    ],
)
def test_admission_by_schedule(
    request_: AdmissionRequest,
    busy: list[float],
    queue: list[AdmissionRequest],
    bound: float,
    verdict: AdmissionVerdict,
    code: str,
    wait: float,
    after: float | None,
) -> None:
    decision = admit_by_schedule(request_, busy, queue, WaitBound(bound))
    assert (decision.verdict, decision.code, decision.wait, decision.retry_after) == (verdict, code, wait, after)
    assert decision.message.endswith(".")


def test_a_rejection_names_the_numbers_and_the_retry_time() -> None:
    decision = admit_by_schedule(job(2), [3, 8, 9], [job(1, 5, "ahead")], WaitBound(6))
    assert decision.message == "would wait 8 s (bound 6 s): 0 of 3 GPUs free, 1 ahead of it; retry in 2 s."
    later = admit_by_schedule(job(2), [1, 6, 7], [job(1, 5, "ahead")], WaitBound(6))  # the state 2 s later
    assert later.verdict is AdmissionVerdict.QUEUE
    assert "ask for 3 or fewer" in admit_by_schedule(job(4), [3, 8, 9], [], WaitBound(6)).message


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0.1, 9.0), st.floats(0.0, 2.0)), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_an_admitted_job_waits_exactly_as_long_as_promised(jobs: list[tuple[int, float, float]]) -> None:
    gpus, bound, now = 3, WaitBound(6.0), 0.0
    arrivals: list[float] = []
    widths: list[int] = []
    services: list[float] = []
    promised: list[float] = []
    starts = np.zeros(0)
    for number, (width, seconds, gap) in enumerate(jobs):
        now += gap
        ends = starts + np.asarray(services)
        running = starts <= now
        at_work = sorted(
            end - now for end, w, on in zip(ends, widths, running, strict=True) for _ in range(w) if on and end > now
        )
        busy = [0.0] * (gpus - len(at_work)) + at_work
        waiting = [job(widths[i], services[i], f"j{i}") for i in np.flatnonzero(~running)]
        decision = admit_by_schedule(AdmissionRequest(f"j{number}", width, seconds), busy, waiting, bound)
        if decision.verdict is AdmissionVerdict.REJECT:
            assert decision.wait > bound.wait
            continue
        arrivals.append(now)
        widths.append(width)
        services.append(seconds)
        promised.append(decision.wait)
        waits = gang_waits(np.asarray(arrivals), np.asarray(services), np.asarray(widths), gpus)
        starts = np.asarray(arrivals) + waits
    waits = gang_waits(np.asarray(arrivals), np.asarray(services), np.asarray(widths), gpus)
    assert waits == pytest.approx(promised, abs=1e-6)
    assert (waits <= bound.wait + 1e-6).all()


@pytest.mark.parametrize(
    ("busy", "waiting", "wait", "verdict", "code"),
    [
        (3, 0, 0.0, AdmissionVerdict.ADMIT, "GPUsAvailable"),
        (4, 0, 0.0, AdmissionVerdict.REJECT, "WaitBeyondBound"),
        (4, 0, 10.0, AdmissionVerdict.QUEUE, "WaitWithinBound"),
        (4, 400, 10.0, AdmissionVerdict.REJECT, "WaitBeyondBound"),
    ],
)
def test_admission_by_count(busy: int, waiting: int, wait: float, verdict: AdmissionVerdict, code: str) -> None:
    decision = admit_by_count(4, busy, waiting, 1.0, WaitBound(wait))
    assert (decision.verdict, decision.code) == (verdict, code)
    assert decision.wait == (0.0 if busy < 4 else (waiting + 1) / 4)


@given(st.integers(1, 64), st.floats(0.0, 50.0), st.floats(0.01, 0.9), st.floats(0.1, 100.0))
@settings(deadline=None, max_examples=50)
def test_admission_by_count_rejects_at_the_queue_capacity(
    servers: int, wait: float, risk: float, service: float
) -> None:
    bound = WaitBound(wait * service / servers, risk)
    capacity = queue_capacity(servers, service, bound)
    assert admit_by_count(servers, servers, capacity, service, bound).verdict is AdmissionVerdict.REJECT
    if capacity:
        assert admit_by_count(servers, servers, capacity - 1, service, bound).verdict is AdmissionVerdict.QUEUE


def test_the_probability_of_a_long_wait_is_a_poisson_tail() -> None:
    # one server, one job in service, none waiting: the wait is exponential
    decision = admit_by_count(1, 1, 0, 2.0, WaitBound(6.0, 0.0498))
    assert math.exp(-3.0) == pytest.approx(0.0498, abs=2e-5)
    assert decision.verdict is AdmissionVerdict.QUEUE
    assert admit_by_count(1, 1, 0, 2.0, WaitBound(6.0, 0.0497)).verdict is AdmissionVerdict.REJECT


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (lambda: AdmissionRequest("a", 0, 1.0), "TooSmall", "a.gpus"),
        (lambda: AdmissionRequest("a", 1, math.nan), "NotANumber", "a.seconds"),
        (lambda: AdmissionRequest("a", 1, -1.0), "TooSmall", "a.seconds"),
        (lambda: WaitBound(-1.0), "TooSmall", "wait"),
        (lambda: WaitBound(1.0, 1.0), "OutOfRange", "risk"),
        (lambda: admit_by_schedule(job(), [], [], WaitBound(1.0)), "NoMachines", "busy"),
        (lambda: admit_by_schedule(job(), [-1.0], [], WaitBound(1.0)), "TooSmall", "gpu 0.busy"),
        (
            lambda: admit_by_schedule(job(), [0.0], [job(2, 1.0, "wide")], WaitBound(1.0)),
            "NoFittingMachine",
            "wide.gpus",
        ),
        (lambda: admit_by_count(0, 0, 0, 1.0, WaitBound(1.0)), "TooSmall", "servers"),
        (lambda: admit_by_count(2, 3, 0, 1.0, WaitBound(1.0)), "TooLarge", "busy"),
        (lambda: admit_by_count(2, 1, 0, 0.0, WaitBound(1.0)), "TooSmall", "mean_service"),
    ],
)
def test_invalid_input_is_refused_with_item_and_field(call: object, code: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.code == code
    assert str(caught.value).startswith(message)

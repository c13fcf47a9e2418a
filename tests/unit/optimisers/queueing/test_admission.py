"""The door before a cluster: who starts, who waits, who is turned away and with which words; the promise is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.queueing.admission import Bound, Request, Verdict, by_count, by_schedule, places
from podium_optimisers.queueing.checks import InputError
from podium_optimisers.queueing.waiting import gang_waits


def job(gpus: int = 1, seconds: float = 10.0, name: str = "new") -> Request:
    return Request(name, gpus, seconds)


@pytest.mark.parametrize(
    ("request_", "busy", "queue", "bound", "verdict", "code", "wait", "after"),
    [
        (job(2), [0, 0, 9], [], 0, Verdict.ADMIT, "GPUsAvailable", 0.0, None),
        (job(2), [0, 8, 9], [], 8, Verdict.QUEUE, "WaitWithinBound", 8.0, None),
        (job(2), [0, 8, 9], [], 5, Verdict.REJECT, "WaitBeyondBound", 8.0, 3.0),
        # one GPU is free, but the pair ahead takes it first: no back-filling
        (job(1), [0, 8], [job(2, 5, "ahead")], 20, Verdict.QUEUE, "WaitWithinBound", 13.0, None),
        (job(1), [0, 8], [job(1, 5, "ahead")], 20, Verdict.QUEUE, "WaitWithinBound", 5.0, None),
        (job(4), [0, 0, 0], [], 99, Verdict.REJECT, "LargerThanCluster", math.inf, None),
    ],
)
def test_by_schedule(
    request_: Request,
    busy: list[float],
    queue: list[Request],
    bound: float,
    verdict: Verdict,
    code: str,
    wait: float,
    after: float | None,
) -> None:
    found = by_schedule(request_, busy, queue, Bound(bound))
    assert (found.verdict, found.code, found.wait, found.retry_after) == (verdict, code, wait, after)
    assert found.message.endswith(".")


def test_a_rejection_says_numbers_and_cure() -> None:
    found = by_schedule(job(2), [3, 8, 9], [job(1, 5, "ahead")], Bound(6))
    assert found.message == "would wait 8 s (bound 6 s): 0 of 3 GPUs free, 1 before it; ask again in 2 s."
    later = by_schedule(job(2), [1, 6, 7], [job(1, 5, "ahead")], Bound(6))  # 2 s on, as it was told
    assert later.verdict is Verdict.QUEUE
    assert "ask for 3 or fewer" in by_schedule(job(4), [3, 8, 9], [], Bound(6)).message


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0.1, 9.0), st.floats(0.0, 2.0)), min_size=1, max_size=20))
@settings(deadline=None, max_examples=50)
def test_whoever_is_let_in_waits_exactly_as_long_as_told(jobs: list[tuple[int, float, float]]) -> None:
    gpus, bound, now = 3, Bound(6.0), 0.0
    arrivals: list[float] = []
    widths: list[int] = []
    services: list[float] = []
    told: list[float] = []
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
        found = by_schedule(Request(f"j{number}", width, seconds), busy, waiting, bound)
        if found.verdict is Verdict.REJECT:
            assert found.wait > bound.wait
            continue
        arrivals.append(now)
        widths.append(width)
        services.append(seconds)
        told.append(found.wait)
        waits = gang_waits(np.asarray(arrivals), np.asarray(services), np.asarray(widths), gpus)
        starts = np.asarray(arrivals) + waits
    waits = gang_waits(np.asarray(arrivals), np.asarray(services), np.asarray(widths), gpus)
    assert waits == pytest.approx(told, abs=1e-6)
    assert (waits <= bound.wait + 1e-6).all()


@pytest.mark.parametrize(
    ("busy", "waiting", "wait", "verdict", "code"),
    [
        (3, 0, 0.0, Verdict.ADMIT, "GPUsAvailable"),
        (4, 0, 0.0, Verdict.REJECT, "WaitBeyondBound"),
        (4, 0, 10.0, Verdict.QUEUE, "WaitWithinBound"),
        (4, 400, 10.0, Verdict.REJECT, "WaitBeyondBound"),
    ],
)
def test_by_count(busy: int, waiting: int, wait: float, verdict: Verdict, code: str) -> None:
    found = by_count(4, busy, waiting, 1.0, Bound(wait))
    assert (found.verdict, found.code) == (verdict, code)
    assert found.wait == (0.0 if busy < 4 else (waiting + 1) / 4)


@given(st.integers(1, 64), st.floats(0.0, 50.0), st.floats(0.01, 0.9), st.floats(0.1, 100.0))
@settings(deadline=None, max_examples=50)
def test_places_are_where_by_count_begins_to_refuse(servers: int, wait: float, risk: float, service: float) -> None:
    bound = Bound(wait * service / servers, risk)
    room = places(servers, service, bound)
    assert by_count(servers, servers, room, service, bound).verdict is Verdict.REJECT
    if room:
        assert by_count(servers, servers, room - 1, service, bound).verdict is Verdict.QUEUE


def test_the_chance_to_wait_too_long_is_a_poisson_tail() -> None:
    # one server, one ahead in service, none waiting: the wait is exponential
    found = by_count(1, 1, 0, 2.0, Bound(6.0, 0.0498))
    assert math.exp(-3.0) == pytest.approx(0.0498, abs=2e-5)
    assert found.verdict is Verdict.QUEUE
    assert by_count(1, 1, 0, 2.0, Bound(6.0, 0.0497)).verdict is Verdict.REJECT


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (lambda: Request("a", 0, 1.0), "TooSmall", "a.gpus"),
        (lambda: Request("a", 1, math.nan), "NotANumber", "a.seconds"),
        (lambda: Request("a", 1, -1.0), "TooSmall", "a.seconds"),
        (lambda: Bound(-1.0), "TooSmall", "wait"),
        (lambda: Bound(1.0, 1.0), "OutOfRange", "risk"),
        (lambda: by_schedule(job(), [], [], Bound(1.0)), "NoMachines", "busy"),
        (lambda: by_schedule(job(), [-1.0], [], Bound(1.0)), "TooSmall", "gpu 0.busy"),
        (lambda: by_schedule(job(), [0.0], [job(2, 1.0, "wide")], Bound(1.0)), "NoFittingMachine", "wide.gpus"),
        (lambda: by_count(0, 0, 0, 1.0, Bound(1.0)), "TooSmall", "servers"),
        (lambda: by_count(2, 3, 0, 1.0, Bound(1.0)), "TooLarge", "busy"),
        (lambda: by_count(2, 1, 0, 0.0, Bound(1.0)), "TooSmall", "mean_service"),
    ],
)
def test_wrong_input_is_refused_by_task_and_field(call: object, code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.code == code
    assert str(caught.value).startswith(said)

"""How many GPUs: the answer meets the goal and one step less does not; traces are read or refused by line."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.queueing.capacity import Demand, Goal, from_numbers, from_trace, without_queue
from podium_optimisers.queueing.checks import InputError
from podium_optimisers.queueing.erlang import MMc, erlang_b
from podium_optimisers.queueing.trace import Trace, read_trace
from podium_optimisers.queueing.waiting import gang_waits


@given(st.floats(0.01, 300.0), st.floats(0.001, 5.0), st.sampled_from([None, 0.5, 0.9, 0.99]))
@settings(deadline=None, max_examples=50)
def test_numbers_the_answer_meets_and_one_less_does_not(offered: float, wait: float, share: float | None) -> None:
    plan = from_numbers(Demand(offered / 60.0, 60.0), Goal(60.0 * wait, share))

    def figure(gpus: int) -> float:
        queue = MMc(offered / 60.0, 60.0, gpus)
        return queue.mean_wait if share is None else queue.wait_quantile(share)

    assert figure(plan.gpus) <= 60.0 * wait
    assert plan.gpus == 1 or figure(plan.gpus - 1) > 60.0 * wait
    assert [row.gpus for row in plan.rows] == sorted(row.gpus for row in plan.rows)
    assert plan.answer.meets
    assert not any(row.meets for row in plan.rows if row.gpus < plan.gpus)


@given(st.integers(1, 8), st.floats(0.5, 40.0))
@settings(deadline=None, max_examples=50)
def test_jobs_of_several_gpus_see_fewer_servers(width: int, offered: float) -> None:
    one = from_numbers(Demand(offered, 1.0), Goal(0.5))
    many = from_numbers(Demand(offered, 1.0, width), Goal(0.5))
    assert many.gpus == width * one.gpus
    assert many.answer.mean_wait == one.answer.mean_wait


def test_more_variability_never_needs_fewer_gpus() -> None:
    counts = [from_numbers(Demand(2.0, 5.0, 1, 1.0, c2), Goal(0.5)).gpus for c2 in (0.0, 1.0, 4.0, 25.0)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 1


@given(st.floats(0.01, 500.0), st.floats(0.0001, 0.9))
@settings(deadline=None, max_examples=50)
def test_losses_the_answer_meets_and_one_less_does_not(offered: float, lost: float) -> None:
    plan = without_queue(Demand(offered, 1.0), lost)
    assert erlang_b(offered, plan.gpus) <= lost < erlang_b(offered, plan.gpus - 1)
    assert plan.answer.lost == pytest.approx(erlang_b(offered, plan.gpus))


TRACES = st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 30.0), st.integers(1, 4)), min_size=2, max_size=30)


@given(TRACES, st.floats(0.1, 10.0), st.sampled_from([None, 0.5, 0.9]))
@settings(deadline=None, max_examples=50)
def test_a_trace_the_answer_meets_and_one_less_does_not(
    jobs: list[tuple[float, float, int]], wait: float, share: float | None
) -> None:
    arrivals = np.sort(np.array([job[0] for job in jobs]))
    arrivals[-1] += 1.0
    services, widths = np.array([job[1] for job in jobs]), np.array([job[2] for job in jobs])
    plan = from_trace(Trace(arrivals, services, widths), Goal(wait, share))

    def figure(gpus: int) -> float:
        waits = gang_waits(arrivals, services, widths, gpus)
        return float(waits.mean() if share is None else np.sort(waits)[math.ceil(share * len(waits) - 1e-9) - 1])

    assert figure(plan.gpus) <= wait
    assert plan.gpus == widths.max() or figure(plan.gpus - 1) > wait


def test_a_poisson_trace_needs_what_the_formula_says() -> None:
    rng = np.random.default_rng(2)
    count = 60_000
    arrivals, services = np.cumsum(rng.exponential(0.1, count)), rng.exponential(1.0, count)
    trace = Trace(arrivals, services, np.ones(count, dtype=np.int64))
    assert trace.offered == pytest.approx(10.0, rel=0.02)
    assert [trace.arrival_c2, trace.service_c2] == pytest.approx([1.0, 1.0], abs=0.05)
    assert from_trace(trace, Goal(0.3)).gpus == from_numbers(Demand(trace.rate, 1.0), Goal(0.3)).gpus == 12


def test_a_trace_of_every_dialect() -> None:
    philly = ["timestamp,duration,num_gpus,x", "2017-10-09 07:01:55,66.0,1,a", "2017-10-09 07:01:45,2951.0,2.0,b", ""]
    trace = read_trace(philly)
    assert trace.arrivals.tolist() == [0.0, 10.0]
    assert (trace.services.tolist(), trace.widths.tolist()) == ([2951.0, 66.0], [2, 1])
    plain = read_trace(["arrival,duration", "5,1", "7.5,2", "7.5,3"])
    assert (plain.arrivals.tolist(), plain.widths.tolist(), plain.span) == ([0.0, 2.5, 2.5], [1, 1, 1], 2.5)
    assert plain.rate == pytest.approx(0.8)
    assert read_trace(["arrival,duration", "0,0", "1,0"]).service_c2 == 0.0
    assert read_trace(["arrival,duration", "0,0", "1,1e-300"]).service_c2 == pytest.approx(1.0)
    # a job of no GPUs asks nothing of them
    assert read_trace(["time,runtime,gpus", "0,1,1", "1,1,0", "2,1,1"]).widths.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ([], "ColumnMissing", "arrival"),
        (["arrival,gpus", "1,1"], "ColumnMissing", "duration"),
        (["arrival,duration", "1,2"], "TooFewJobs", "trace"),
        (["arrival,duration", "1,2", "1,2"], "ZeroTimeSpan", "arrival"),
        (["arrival,duration", "1,2", "2,-3"], "TooSmall", "line 3.duration"),
        (["arrival,duration", "1,2", "2,nan"], "NotANumber", "line 3.duration"),
        (["arrival,duration", "1,2", "2026-01-01T00:00:00Z,1"], "MixedTimes", "line 3.arrival"),
        (["arrival,duration", "1,x", "2,3"], "NotANumber", "line 2.duration"),
        (["arrival,duration", "inf,2", "2,3"], "NotFinite", "line 2.arrival"),
        (["arrival,duration", "yesterday,2", "2,3"], "InvalidTime", "line 2.arrival"),
        (["arrival,duration,gpus", "1,2,1.5", "2,3,1"], "NotInteger", "line 2.gpus"),
        (["arrival,duration,gpus", "1,2,-1", "2,3,1"], "TooSmall", "line 2.gpus"),
        (["arrival,duration,gpus", "1,2", "2,3,1"], "RowTooShort", "line 2.row"),
        (["arrival,duration", "1,2,3", "2,3"], "RowTooLong", "line 2.row"),
        (["arrival,duration", "1,2", "2," + "3" * 131_073], "RowMalformed", "line 3.row: field larger"),
        (["x" * 131_073], "RowMalformed", "line 1.row: field larger"),
    ],
)
def test_a_wrong_trace_is_refused_by_line_and_column(lines: list[str], code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(lines)
    assert caught.value.code == code
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("call", "code", "field"),
    [
        (lambda: Goal(0.0), "TooSmall", "wait"),
        (lambda: Goal(math.nan), "NotANumber", "wait"),
        (lambda: Goal(1.0, 1.0), "OutOfRange", "share"),
        (lambda: Demand(1.0, 1.0, 0), "TooSmall", "width"),
        (lambda: Demand(-1.0, 1.0), "TooSmall", "rate"),
        (lambda: without_queue(Demand(1.0, 1.0), 0.0), "OutOfRange", "lost"),
        (lambda: from_numbers(Demand(1e9, 1.0), Goal(1e-9)), "TooLarge", "gpus"),
    ],
)
def test_wrong_numbers_are_refused_by_field(call: object, code: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert (caught.value.code, caught.value.field) == (code, field)


def test_a_share_of_all_but_none_may_wait_0_seconds() -> None:
    plan = from_numbers(Demand(1.0, 1.0), Goal(0.0, 0.9))
    assert MMc(1.0, 1.0, plan.gpus).wait_probability <= 0.1 < MMc(1.0, 1.0, plan.gpus - 1).wait_probability

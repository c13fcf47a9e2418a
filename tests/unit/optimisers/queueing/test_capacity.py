"""Capacity planning: the answer meets the goal and one step less does not; traces are validated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.queueing.capacity import Traffic, WaitGoal, plan_from_trace, plan_from_traffic, plan_loss_system
from podium_optimisers.queueing.erlang import MMc, erlang_b
from podium_optimisers.queueing.trace import JobTrace, read_trace
from podium_optimisers.queueing.waiting import gang_waits
from podium_optimisers.validation import InputError


@given(st.floats(0.01, 300.0), st.floats(0.001, 5.0), st.sampled_from([None, 0.5, 0.9, 0.99]))
@settings(deadline=None, max_examples=50)
def test_the_planned_gpus_meet_the_goal_and_one_less_does_not(
    offered_load: float, wait: float, share: float | None
) -> None:
    plan = plan_from_traffic(Traffic(offered_load / 60.0, 60.0), WaitGoal(60.0 * wait, share))

    def figure(gpus: int) -> float:
        queue = MMc(offered_load / 60.0, 60.0, gpus)
        return queue.mean_wait if share is None else queue.wait_quantile(share)

    assert figure(plan.gpus) <= 60.0 * wait
    assert plan.gpus == 1 or figure(plan.gpus - 1) > 60.0 * wait
    assert [row.gpus for row in plan.rows] == sorted(row.gpus for row in plan.rows)
    assert plan.answer.meets
    assert not any(row.meets for row in plan.rows if row.gpus < plan.gpus)


@given(st.integers(1, 8), st.floats(0.5, 40.0))
@settings(deadline=None, max_examples=50)
def test_jobs_of_several_gpus_see_fewer_servers(width: int, offered_load: float) -> None:
    one = plan_from_traffic(Traffic(offered_load, 1.0), WaitGoal(0.5))
    many = plan_from_traffic(Traffic(offered_load, 1.0, width), WaitGoal(0.5))
    assert many.gpus == width * one.gpus
    assert many.answer.mean_wait == one.answer.mean_wait


def test_more_variability_never_needs_fewer_gpus() -> None:
    counts = [plan_from_traffic(Traffic(2.0, 5.0, 1, 1.0, c2), WaitGoal(0.5)).gpus for c2 in (0.0, 1.0, 4.0, 25.0)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 1


@given(st.floats(0.01, 500.0), st.floats(0.0001, 0.9))
@settings(deadline=None, max_examples=50)
def test_the_planned_loss_system_meets_the_goal_and_one_less_does_not(offered_load: float, lost: float) -> None:
    plan = plan_loss_system(Traffic(offered_load, 1.0), lost)
    assert erlang_b(offered_load, plan.gpus) <= lost < erlang_b(offered_load, plan.gpus - 1)
    assert plan.answer.lost == pytest.approx(erlang_b(offered_load, plan.gpus))


TRACES = st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 30.0), st.integers(1, 4)), min_size=2, max_size=30)


@given(TRACES, st.floats(0.1, 10.0), st.sampled_from([None, 0.5, 0.9]))
@settings(deadline=None, max_examples=50)
def test_the_gpus_planned_from_a_trace_meet_the_goal_and_one_less_does_not(
    jobs: list[tuple[float, float, int]], wait: float, share: float | None
) -> None:
    arrivals = np.sort(np.array([job[0] for job in jobs]))
    arrivals[-1] += 1.0
    services, widths = np.array([job[1] for job in jobs]), np.array([job[2] for job in jobs])
    plan = plan_from_trace(JobTrace(arrivals, services, widths), WaitGoal(wait, share))

    def figure(gpus: int) -> float:
        waits = gang_waits(arrivals, services, widths, gpus)
        return float(waits.mean() if share is None else np.sort(waits)[math.ceil(share * len(waits) - 1e-9) - 1])

    assert figure(plan.gpus) <= wait
    assert plan.gpus == widths.max() or figure(plan.gpus - 1) > wait


def test_a_poisson_trace_needs_as_many_gpus_as_the_formula() -> None:
    rng = np.random.default_rng(2)
    count = 60_000
    arrivals, services = np.cumsum(rng.exponential(0.1, count)), rng.exponential(1.0, count)
    trace = JobTrace(arrivals, services, np.ones(count, dtype=np.int64))
    assert trace.offered_load == pytest.approx(10.0, rel=0.02)
    assert [trace.arrival_c2, trace.service_c2] == pytest.approx([1.0, 1.0], abs=0.05)
    assert (
        plan_from_trace(trace, WaitGoal(0.3)).gpus
        == plan_from_traffic(Traffic(trace.rate, 1.0), WaitGoal(0.3)).gpus
        == 12
    )


def test_columns_of_public_traces_are_recognised() -> None:
    philly = ["timestamp,duration,num_gpus,x", "2017-10-09 07:01:55,66.0,1,a", "2017-10-09 07:01:45,2951.0,2.0,b", ""]
    trace = read_trace(philly)
    assert trace.arrivals.tolist() == [0.0, 10.0]
    assert (trace.services.tolist(), trace.widths.tolist()) == ([2951.0, 66.0], [2, 1])
    plain = read_trace(["arrival,duration", "5,1", "7.5,2", "7.5,3"])
    assert (plain.arrivals.tolist(), plain.widths.tolist(), plain.span) == ([0.0, 2.5, 2.5], [1, 1, 1], 2.5)
    assert plain.rate == pytest.approx(0.8)
    assert read_trace(["arrival,duration", "0,0", "1,0"]).service_c2 == 0.0
    assert read_trace(["arrival,duration", "0,0", "1,1e-300"]).service_c2 == pytest.approx(1.0)
    # jobs without GPUs are skipped
    assert read_trace(["time,runtime,gpus", "0,1,1", "1,1,0", "2,1,1"]).widths.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("lines", "code", "message"),
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
        (
            ["arrival,duration", "1,2", "2," + "3" * 131_073],
            "RowMalformed",
            "line 3.row: the row is not valid CSV (field larger",
        ),
        (["x" * 131_073], "RowMalformed", "line 1.row: the row is not valid CSV (field larger"),
    ],
)
def test_an_invalid_trace_is_refused_with_line_and_column(lines: list[str], code: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(lines)
    assert caught.value.code == code
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("call", "code", "field"),
    [
        (lambda: WaitGoal(0.0), "TooSmall", "wait"),
        (lambda: WaitGoal(math.nan), "NotANumber", "wait"),
        (lambda: WaitGoal(1.0, 1.0), "OutOfRange", "share"),
        (lambda: Traffic(1.0, 1.0, 0), "TooSmall", "width"),
        (lambda: Traffic(-1.0, 1.0), "TooSmall", "rate"),
        (lambda: plan_loss_system(Traffic(1.0, 1.0), 0.0), "OutOfRange", "lost"),
        (lambda: plan_from_traffic(Traffic(1e9, 1.0), WaitGoal(1e-9)), "TooLarge", "gpus"),
    ],
)
def test_invalid_numbers_are_refused_with_their_field(call: object, code: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert (caught.value.code, caught.value.field) == (code, field)


def test_a_share_of_the_jobs_can_be_required_not_to_wait() -> None:
    plan = plan_from_traffic(Traffic(1.0, 1.0), WaitGoal(0.0, 0.9))
    assert MMc(1.0, 1.0, plan.gpus).wait_probability <= 0.1 < MMc(1.0, 1.0, plan.gpus - 1).wait_probability

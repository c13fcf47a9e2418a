"""The exact simulators: compared with one another, with hand-made streams and with the formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from podium_optimisers.arrays import Floats
from podium_optimisers.queueing.erlang import MMc, erlang_b
from podium_optimisers.queueing.service import Exponential, fit_two_moments
from podium_optimisers.queueing.srpt import simulate_srpt, srpt_mean_response
from podium_optimisers.queueing.waiting import blocked_jobs, gang_waits, kiefer_wolfowitz, lindley, poisson_arrivals
from podium_optimisers.validation import InputError


@st.composite
def streams(draw: st.DrawFn, most: int = 25) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return arrivals, services and widths of a few jobs; equal times are likely."""
    count = draw(st.integers(1, most))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.25]), min_size=count, max_size=count))
    lengths = draw(st.lists(st.one_of(st.sampled_from([0.5, 1.0, 4.0]), st.floats(0.01, 9)), min_size=count))
    widths = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    return np.cumsum(gaps), np.asarray(lengths[:count]), np.asarray(widths, dtype=np.int64)


@given(streams(), st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_all_forms_of_the_recursion_agree(stream: tuple[Floats, Floats, NDArray[np.int64]], servers: int) -> None:
    arrivals, services, _ = stream
    ones = np.ones(arrivals.size, dtype=np.int64)
    heap = gang_waits(arrivals, services, ones, servers)
    twice = kiefer_wolfowitz(np.stack([arrivals, arrivals]), np.stack([services, services]), servers)
    assert twice == pytest.approx(np.stack([heap, heap]), abs=1e-9)
    if servers == 1:
        assert lindley(arrivals, services) == pytest.approx(heap, abs=1e-9)


@given(streams(), st.integers(4, 7))
@settings(deadline=None, max_examples=50)
def test_gang_waits_are_feasible_in_order_and_minimal(
    stream: tuple[Floats, Floats, NDArray[np.int64]], gpus: int
) -> None:
    arrivals, services, widths = stream
    starts = arrivals + gang_waits(arrivals, services, widths, gpus)
    assert (starts >= arrivals).all()
    assert (np.diff(starts) >= -1e-12).all()  # first come, first served
    for job, start in enumerate(starts):
        at_work = widths[:job][starts[:job] + services[:job] > start + 1e-9].sum()
        assert at_work + widths[job] <= gpus
        # if the job waited for GPUs, too few were free just before its start
        if start > max(arrivals[job], starts[:job].max(initial=0.0)) + 1e-6:
            before = widths[:job][starts[:job] + services[:job] > start - 1e-7].sum()
            assert before + widths[job] > gpus


@given(streams(), st.integers(4, 7))
@settings(deadline=None, max_examples=50)
def test_one_gpu_more_never_makes_a_job_wait_longer(
    stream: tuple[Floats, Floats, NDArray[np.int64]], gpus: int
) -> None:
    assert (gang_waits(*stream, gpus + 1) <= gang_waits(*stream, gpus) + 1e-9).all()


@given(streams())
@settings(deadline=None, max_examples=50)
def test_srpt_has_a_lower_mean_than_fcfs_and_the_same_last_completion(
    stream: tuple[Floats, Floats, NDArray[np.int64]],
) -> None:
    arrivals, services, _ = stream
    responses = simulate_srpt(arrivals, services)
    fcfs = lindley(arrivals, services) + services
    assert (responses >= services - 1e-9).all()
    assert responses.mean() <= fcfs.mean() + 1e-9
    # the last completion is the same for all work-conserving rules
    assert (arrivals + responses).max() == pytest.approx((arrivals + fcfs).max())


@given(streams(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_srpt_of_simultaneous_jobs_does_not_depend_on_their_order(
    stream: tuple[Floats, Floats, NDArray[np.int64]], random: object
) -> None:
    _, services, _ = stream
    order = np.arange(services.size)
    random.shuffle(order)  # type: ignore[attr-defined]
    zeros = np.zeros(services.size)
    ends = simulate_srpt(zeros, services)
    assert np.sort(simulate_srpt(zeros, services[order])) == pytest.approx(np.sort(ends))
    assert np.sort(ends) == pytest.approx(np.cumsum(np.sort(services)))


def test_srpt_by_hand() -> None:
    # the long job is preempted at 1 by the job of 2 s, which is preempted at 2 by the job of 0.5 s
    responses = simulate_srpt(np.array([0.0, 1.0, 2.0]), np.array([5.0, 2.0, 0.5]))
    assert responses.tolist() == [7.5, 2.5, 0.5]


def test_gangs_by_hand() -> None:
    # 2 GPUs: the job of width 2 waits for both, and the next job waits although one GPU is free
    waits = gang_waits(np.array([0.0, 1.0, 1.0]), np.array([4.0, 1.0, 1.0]), np.array([1, 2, 1]), 2)
    assert waits.tolist() == [0.0, 3.0, 4.0]


def test_losses_by_hand() -> None:
    refused = blocked_jobs(np.array([[0.0, 0.5, 1.0, 1.5]]), np.array([[1.0, 9.0, 1.0, 1.0]]), 1)
    assert refused.tolist() == [[False, True, False, True]]


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 0.9), (8, 0.8)])
def test_simulated_waits_agree_with_erlang_c(servers: int, load: float) -> None:
    rng = np.random.default_rng(7)
    shape = (400, 2500)
    waits = kiefer_wolfowitz(poisson_arrivals(rng, servers * load, shape), rng.exponential(1.0, shape), servers)
    queue = MMc(servers * load, 1.0, servers)
    assert (waits[:, 500:] > 0.0).mean() == pytest.approx(queue.wait_probability, rel=0.02)
    assert waits[:, 500:].mean() == pytest.approx(queue.mean_wait, rel=0.06)


def test_simulated_losses_agree_with_erlang_b_for_any_service_distribution() -> None:
    rng = np.random.default_rng(7)
    shape = (400, 2000)
    for c2 in (0.25, 1.0, 4.0):
        refused = blocked_jobs(poisson_arrivals(rng, 8.0, shape), fit_two_moments(1.0, c2).sample(rng, shape), 8)
        assert refused[:, 500:].mean() == pytest.approx(erlang_b(8.0, 8), rel=0.02)


@pytest.mark.parametrize("c2", [0.25, 1.0, 4.0])
def test_simulated_srpt_agrees_with_schrage_and_miller(c2: float) -> None:
    rng = np.random.default_rng(3)
    service = fit_two_moments(1.0, c2)
    count = 150_000
    responses = simulate_srpt(poisson_arrivals(rng, 0.7, (count,)), service.sample(rng, (count,)))
    assert responses.mean() == pytest.approx(srpt_mean_response(0.7, service), rel=0.04)


def test_the_same_seed_gives_the_same_stream() -> None:
    def waits() -> Floats:
        rng = np.random.default_rng(5)
        return kiefer_wolfowitz(poisson_arrivals(rng, 1.0, (3, 50)), Exponential(1.5).sample(rng, (3, 50)), 2)

    assert (waits() == waits()).all()


ONE = np.array([1.0])


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (lambda: lindley(np.array([0.0, np.nan]), np.ones(2)), "NotANumber", "[1].arrivals"),
        (lambda: lindley(np.zeros(2), np.array([1.0, -1.0])), "TooSmall", "[1].services"),
        (lambda: lindley(np.array([1.0, 0.0]), np.ones(2)), "NotAscending", "arrivals"),
        (lambda: lindley(np.zeros(2), np.ones(3)), "ShapeMismatch", "services"),
        (lambda: kiefer_wolfowitz(np.zeros((1, 2)), np.ones((1, 2)), 0), "TooSmall", "servers"),
        (lambda: blocked_jobs(np.zeros((1, 2)), np.ones((1, 2)), 0), "TooSmall", "servers"),
        (lambda: gang_waits(ONE, ONE, np.array([3]), 2), "NoFittingMachine", "[0].widths"),
        (lambda: gang_waits(ONE, ONE, np.array([0]), 2), "NoFittingMachine", "[0].widths"),
        (lambda: gang_waits(ONE, ONE, np.array([1, 1]), 2), "ShapeMismatch", "widths"),
        (lambda: gang_waits(ONE, ONE, np.array([1]), 0), "TooSmall", "gpus"),
        (lambda: simulate_srpt(ONE, np.array([0.0])), "TooSmall", "[0].services"),
        (lambda: simulate_srpt(ONE, np.ones(2)), "ShapeMismatch", "services"),
        (lambda: simulate_srpt(np.array([2.0, 1.0]), np.ones(2)), "NotAscending", "arrivals"),
    ],
)
def test_invalid_streams_are_refused_with_job_and_field(call: object, code: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert caught.value.code == code
    assert str(caught.value).startswith(message)

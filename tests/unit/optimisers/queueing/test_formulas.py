"""Erlang, Pollaczek-Khinchine, Kingman, Allen-Cunneen, SRPT: known values, limits, bounds, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium_optimisers.queueing.approximations import GGc, kingman_bound, mg1_mean_wait
from podium_optimisers.queueing.erlang import MMc, erlang_b, erlang_b_table, erlang_c, mmck_blocking
from podium_optimisers.queueing.service import Erlang, Exponential, Hyperexponential, fit_two_moments
from podium_optimisers.queueing.srpt import srpt_mean_response
from podium_optimisers.validation import InputError

LOADS = st.floats(0.01, 0.99)
SERVERS = st.integers(1, 200)


@pytest.mark.parametrize(
    ("servers", "load", "waits", "mean"),
    [(1, 0.8, 0.8, 4.0), (4, 0.9, 0.787753, 1.969383), (8, 0.8, 0.457645, 0.286028), (32, 0.95, 0.695710, 0.434819)],
)
def test_erlang_c_table(servers: int, load: float, waits: float, mean: float) -> None:
    queue = MMc(servers * load, 1.0, servers)
    assert queue.wait_probability == pytest.approx(waits, abs=1e-6)
    assert queue.mean_wait == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(
    ("offered_load", "servers", "blocked"), [(8.0, 8, 0.235570), (30.4, 32, 0.102589), (1.0, 1, 0.5)]
)
def test_erlang_b_table(offered_load: float, servers: int, blocked: float) -> None:
    assert erlang_b(offered_load, servers) == pytest.approx(blocked, abs=1e-6)


@given(st.floats(0.05, 60.0), st.integers(1, 60))
@settings(deadline=None, max_examples=50)
def test_erlang_b_agrees_with_its_definition(offered_load: float, servers: int) -> None:
    logs = [k * math.log(offered_load) - math.lgamma(k + 1) for k in range(servers + 1)]
    top = max(logs)
    want = math.exp(logs[-1] - top) / math.fsum(math.exp(term - top) for term in logs)
    assert erlang_b(offered_load, servers) == pytest.approx(want, rel=1e-9)


@given(LOADS, SERVERS)
@settings(deadline=None, max_examples=50)
def test_erlang_c_lies_between_b_and_1_and_falls_with_every_server(load: float, servers: int) -> None:
    offered_load = load * servers
    assert erlang_b(offered_load, servers) <= erlang_c(offered_load, servers) <= 1.0
    assert erlang_c(offered_load, servers + 1) < erlang_c(offered_load, servers)
    assert (np.diff(erlang_b_table(offered_load, servers)) < 0).all()


@given(LOADS, SERVERS, st.floats(0.01, 0.999), st.floats(0.001, 1e4))
@settings(deadline=None, max_examples=50)
def test_the_quantile_of_the_wait_is_the_inverse_of_its_tail(
    load: float, servers: int, share: float, service: float
) -> None:
    queue = MMc(load * servers / service, service, servers)
    wait = queue.wait_quantile(share)
    assert wait >= 0.0
    if wait > 0.0:
        assert queue.wait_tail(wait) == pytest.approx(1.0 - share, rel=1e-6)
    else:
        assert queue.wait_probability <= 1.0 - share + 1e-12


@given(LOADS, st.floats(0.001, 1e4))
@settings(deadline=None, max_examples=50)
def test_littles_law_and_one_server(load: float, service: float) -> None:
    queue = MMc(load / service, service, 1)
    assert queue.wait_probability == pytest.approx(load)
    assert queue.mean_response == pytest.approx(service / (1.0 - load))
    assert queue.mean_queue == pytest.approx(load**2 / (1.0 - load))
    assert mg1_mean_wait(load / service, service, 1.0) == pytest.approx(queue.mean_wait)


def test_waits_are_infinite_at_load_1() -> None:
    for queue in (MMc(2.0, 1.0, 2), GGc(2.0, 1.0, 2, 0.0, 3.0)):
        assert (queue.wait_probability, queue.mean_wait, queue.wait_quantile(0.5)) == (1.0, math.inf, math.inf)
        assert queue.wait_tail(100.0) == 1.0
    assert mg1_mean_wait(1.0, 1.0, 0.0) == kingman_bound(1.0, 1.0, 0.0, 0.0) == math.inf
    assert srpt_mean_response(1.0, Exponential(1.0)) == math.inf


@given(LOADS, st.floats(0.0, 20.0))
@settings(deadline=None, max_examples=50)
def test_allen_cunneen_is_exact_for_m_g_1_and_kingman_is_never_below(load: float, service_c2: float) -> None:
    exact = mg1_mean_wait(load, 1.0, service_c2)
    assert GGc(load, 1.0, 1, 1.0, service_c2).mean_wait == pytest.approx(exact)
    assert kingman_bound(load, 1.0, 1.0, service_c2) >= exact


def test_the_wait_is_0_without_variability() -> None:
    queue = GGc(3.0, 1.0, 4, 0.0, 0.0)
    assert (queue.mean_wait, queue.wait_tail(0.0), queue.wait_quantile(0.99)) == (0.0, 0.0, 0.0)


@given(st.floats(0.1, 50.0), st.integers(1, 40), st.integers(0, 30))
@settings(deadline=None, max_examples=50)
def test_a_buffer_lowers_the_blocking_probability_below_erlang_b(
    offered_load: float, servers: int, buffer: int
) -> None:
    lost = mmck_blocking(offered_load, servers, buffer)
    assert mmck_blocking(offered_load, servers, 0) == pytest.approx(erlang_b(offered_load, servers))
    assert 0.0 <= mmck_blocking(offered_load, servers, buffer + 1) <= lost * (1.0 + 1e-12)
    assert lost >= 1.0 - servers / offered_load - 1e-12  # the servers cannot serve more than their capacity


@pytest.mark.parametrize(("load", "want"), [(0.5, 1.4254), (0.7, 1.8746), (0.8, 2.3528), (0.9, 3.5521)])
def test_srpt_of_m_m_1_table(load: float, want: float) -> None:
    assert srpt_mean_response(load, Exponential(1.0)) == pytest.approx(want, abs=5e-5)


@given(st.floats(0.05, 0.98), st.floats(0.02, 8.0))
@settings(deadline=None, max_examples=50)
def test_srpt_is_never_worse_than_fcfs_and_never_shorter_than_the_service(load: float, c2: float) -> None:
    service = fit_two_moments(2.0, c2)
    rate = load / service.mean
    response = srpt_mean_response(rate, service, 4001)
    assert service.mean < response < service.mean + mg1_mean_wait(rate, service.mean, service.c2)


@pytest.mark.parametrize("c2", [0.02, 0.25, 0.5, 1.0, 1.5, 16.0])
def test_fitted_distributions_have_their_mean_and_c2(c2: float) -> None:
    service = fit_two_moments(3.0, c2)
    assert service.c2 == pytest.approx(c2)
    times = np.linspace(0.0, 600.0, 2_000_001)
    tail = service.tail(times)
    assert np.trapezoid(tail, times) == pytest.approx(3.0, rel=1e-5)
    assert 2.0 * np.trapezoid(times * tail, times) == pytest.approx(9.0 * (1.0 + c2), rel=1e-4)
    assert service.density(times[1::1000]) == pytest.approx(-np.gradient(tail, times)[1::1000], rel=1e-3, abs=1e-6)
    samples = service.sample(np.random.default_rng(1), (200_000,))
    assert samples.mean() == pytest.approx(3.0, rel=0.05)
    assert (samples > 3.0).mean() == pytest.approx(float(service.tail(np.array([3.0]))[0]), abs=0.01)


def test_c2_decides_the_kind_of_distribution() -> None:
    kinds = [type(fit_two_moments(1.0, c2)) for c2 in (0.5, 1.0, 2.0)]
    assert kinds == [Erlang, Exponential, Hyperexponential]


@pytest.mark.parametrize(
    ("call", "code", "field"),
    [
        (lambda: MMc(math.nan, 1.0, 1), "NotANumber", "rate"),
        (lambda: MMc(1.0, -1.0, 1), "TooSmall", "service"),
        (lambda: MMc(1.0, 1.0, 0), "TooSmall", "servers"),
        (lambda: MMc(1.0, 1.0, 1.5), "NotInteger", "servers"),  # type: ignore[arg-type]
        (lambda: MMc(1.0, 1.0, True), "NotInteger", "servers"),
        (lambda: MMc(0.5, 1.0, 1).wait_tail(-1.0), "TooSmall", "seconds"),
        (lambda: MMc(0.5, 1.0, 1).wait_quantile(1.0), "TooLarge", "share"),
        (lambda: erlang_b(math.inf, 1), "NotFinite", "offered_load"),
        (lambda: erlang_c(1.0, 0), "TooSmall", "servers"),
        (lambda: mmck_blocking(1.0, 1, -1), "TooSmall", "buffer"),
        (lambda: GGc(1.0, 1.0, 2, -0.1, 1.0), "TooSmall", "arrival_c2"),
        (lambda: GGc(1.0, 1.0, 2, 1.0, math.nan), "NotANumber", "service_c2"),
        (lambda: mg1_mean_wait(1.0, 0.5, -1.0), "TooSmall", "service_c2"),
        (lambda: kingman_bound(1.0, 0.5, -1.0, 1.0), "TooSmall", "arrival_c2"),
        (lambda: fit_two_moments(0.0, 1.0), "TooSmall", "mean"),
        (lambda: fit_two_moments(1.0, 0.001), "TooSmall", "c2"),
        (lambda: srpt_mean_response(-1.0, Exponential(1.0)), "TooSmall", "rate"),
    ],
)
def test_invalid_numbers_are_refused_with_their_field(call: object, code: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert (caught.value.code, caught.value.field) == (code, field)
    assert str(caught.value).startswith(field)

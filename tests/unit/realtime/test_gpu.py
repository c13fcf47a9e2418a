"""The simulated GPU: it reproduces what it is fed with, and it gives away no more SMs than there are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_realtime.model import published
from podium_realtime.model.network import resnet18
from podium_realtime.model.refusal import RealtimeError
from podium_realtime.scheduling.pool import StreamPriority, context_pool
from podium_realtime.simulation.fitted import FITTED
from podium_realtime.simulation.gpu import Interference, Share, published_gpu
from podium_realtime.simulation.profiling import alone, occupied, profile_networks

GPU = published_gpu(FITTED.interference)
NET = resnet18()


@pytest.mark.parametrize(("sms", "microseconds"), published.RESNET18_MICROSECONDS.items())
def test_the_published_curve_comes_out(sms: int, microseconds: int) -> None:
    assert sum(alone(GPU, stage, sms) for stage in NET.stages) == pytest.approx(microseconds * 1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(StreamPriority), st.integers(1, 4)), min_size=1, max_size=12),
    st.lists(st.integers(2, 68), min_size=4, max_size=4),
)
def test_no_sm_is_given_twice(running: list[tuple[int, StreamPriority, int]], sizes: list[int]) -> None:
    shares = [Share(context, sizes[context], priority, batch) for context, priority, batch in running]
    found = GPU.shares(shares)
    assert sum(found) <= GPU.sms + 1e-9
    for context, size in enumerate(sizes):
        mine = [sms for share, sms in zip(shares, found, strict=True) if share.context == context]
        assert sum(mine) <= size + 1e-9
    # more company never makes anything faster
    assert GPU.rates(shares)[0] <= GPU.rates(shares[:1])[0] + 1e-9


def test_the_limit_is_above_every_crowd_of_equal_contexts() -> None:
    for count in range(1, 20):
        crowd = [Share(context, GPU.sms, StreamPriority.LOW, 1) for context in range(count)]
        assert sum(GPU.rates(crowd)) <= GPU.limit() + 1e-9
    assert GPU.limit(1) == pytest.approx(published.BEST_BATCHED_FPS)


def test_high_streams_get_the_larger_part() -> None:
    high, low = GPU.shares([Share(0, 60, StreamPriority.HIGH, 1), Share(0, 60, StreamPriority.LOW, 1)])
    assert (high, low) == (40.0, 20.0)


def test_occupied_takes_longer_than_alone() -> None:
    pool = context_pool(68, 3, 1.5)
    for stage in NET.stages:
        assert occupied(GPU, stage, pool[0], pool) > alone(GPU, stage, pool[0].sms)
    profiles = profile_networks(GPU, [NET, NET.fused()], pool)
    assert list(profiles) == ["resnet18"]


@pytest.mark.parametrize("field", ["kappa", "serial", "threads", "convoy", "jitter"])
def test_a_model_that_cannot_be(field: str) -> None:
    with pytest.raises(RealtimeError, match=f"interference: {field}"):
        replace(Interference(0.1, 0.9, 10.0, 0.1), **{field: -1.0})

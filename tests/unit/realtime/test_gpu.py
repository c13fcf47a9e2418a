"""The simulated GPU: it reproduces the published curve and never allocates more SMs than it has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_realtime.model import published
from podium_realtime.model.errors import RealtimeError
from podium_realtime.model.network import resnet18
from podium_realtime.scheduling.pool import StreamPriority, context_pool
from podium_realtime.simulation.calibration import CALIBRATED
from podium_realtime.simulation.gpu import Interference, RunningStage, published_gpu
from podium_realtime.simulation.profiling import profile_networks, time_alone, time_occupied

GPU = published_gpu(CALIBRATED.interference)
NET = resnet18()


@pytest.mark.parametrize(("sms", "microseconds"), published.RESNET18_MICROSECONDS.items())
def test_the_published_curve_is_reproduced(sms: int, microseconds: int) -> None:
    assert sum(time_alone(GPU, stage, sms) for stage in NET.stages) == pytest.approx(microseconds * 1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(StreamPriority), st.integers(1, 4)), min_size=1, max_size=12),
    st.lists(st.integers(2, 68), min_size=4, max_size=4),
)
def test_no_sm_is_allocated_twice(running: list[tuple[int, StreamPriority, int]], sizes: list[int]) -> None:
    stages = [RunningStage(context, sizes[context], priority, frames) for context, priority, frames in running]
    allocated = GPU.allocate_sms(stages)
    assert sum(allocated) <= GPU.sms + 1e-9
    for context, size in enumerate(sizes):
        own = [sms for stage, sms in zip(stages, allocated, strict=True) if stage.context == context]
        assert sum(own) <= size + 1e-9
    # further stages never make a stage faster
    assert GPU.rates(stages)[0] <= GPU.rates(stages[:1])[0] + 1e-9


def test_no_number_of_equal_contexts_exceeds_the_maximum_throughput() -> None:
    for count in range(1, 20):
        running = [RunningStage(context, GPU.sms, StreamPriority.LOW, 1) for context in range(count)]
        assert sum(GPU.rates(running)) <= GPU.max_throughput() + 1e-9
    assert GPU.max_throughput(1) == pytest.approx(published.BEST_BATCHED_FPS)


def test_high_priority_streams_receive_more_sms() -> None:
    high, low = GPU.allocate_sms(
        [RunningStage(0, 60, StreamPriority.HIGH, 1), RunningStage(0, 60, StreamPriority.LOW, 1)]
    )
    assert (high, low) == (40.0, 20.0)


def test_an_occupied_device_is_slower() -> None:
    pool = context_pool(68, 3, 1.5)
    for stage in NET.stages:
        assert time_occupied(GPU, stage, pool[0], pool) > time_alone(GPU, stage, pool[0].sms)
    profiles = profile_networks(GPU, [NET, NET.fused()], pool)
    assert list(profiles) == ["resnet18"]


@pytest.mark.parametrize("field", ["kappa", "serial", "threads", "convoy", "jitter"])
def test_invalid_parameters_are_rejected(field: str) -> None:
    with pytest.raises(RealtimeError, match=f"interference: {field}"):
        replace(Interference(0.1, 0.9, 10.0, 0.1), **{field: -1.0})

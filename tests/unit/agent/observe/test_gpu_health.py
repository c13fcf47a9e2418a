"""Health, smoothing, and what the driver's absence means."""

from __future__ import annotations

import asyncio
import time

import pytest
from grouped_values import change
from hypothesis import given
from hypothesis import strategies as st

from podium_agent.observe.gpu_health import GpuLoad, Reading, Sample, judge, merge, unknown
from podium_agent.observe.nvml import Driver, DriverTroubleError
from podium_agent.observe.telemetry import Telemetry

OK = Sample("A", 0, "H200", 100, load=GpuLoad(10, 50.0))


@pytest.mark.parametrize(
    ("changes", "health", "reason"),
    [
        ({}, "Healthy", ""),
        ({"faults__lost": True}, "Unhealthy", "GPULost"),
        ({"error": "Timeout"}, "Unknown", "DriverError"),
        ({"faults__xid": 79}, "Unhealthy", "Xid79"),
        ({"faults__xid": 31}, "Healthy", ""),  # the program's own fault
        ({"faults__ecc_uncorrected": 2}, "Unhealthy", "UncorrectedECCErrors: 2"),
        ({"faults__remap_failed": True}, "Unhealthy", "RowRemapFailed"),
    ],
)
def test_health(changes: dict[str, object], health: str, reason: str) -> None:
    found, why = judge(change(OK, **changes))
    assert found == health
    assert why.startswith(reason)
    assert bool(why) == (health != "Healthy")


def test_utilisation_is_smoothed_and_a_missing_gpu_is_lost() -> None:
    reading = merge(Reading(), [OK], 100.0, "610")
    assert reading.gpus[0].sm_utilization == 50.0
    reading = merge(reading, [change(OK, load__sm_utilization=100.0)], 102.5, "610")
    assert reading.gpus[0].sm_utilization == pytest.approx(75.0)
    reading = merge(reading, [change(OK, load__sm_utilization=None)], 103.5, "610")
    assert reading.gpus[0].sm_utilization == pytest.approx(75.0)
    reading = merge(reading, [], 104.5, "610")
    assert reading.gpus[0].health == "Unhealthy"


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.none() | st.floats(-1e9, 1e9)), max_size=20),
    st.floats(1.0, 1e9),
)
def test_utilisation_stays_within_its_bounds_whatever_the_clock_does(
    turns: list[tuple[float, float | None]], at: float
) -> None:
    reading = merge(Reading(), [OK], at, "610")
    for jump, sm_utilization in turns:
        at += jump
        reading = merge(reading, [change(OK, load__sm_utilization=sm_utilization)], at, "610")
        assert 0.0 <= reading.gpus[0].sm_utilization <= 100.0


def test_without_a_driver_the_gpus_remain_with_unknown_health() -> None:
    reading = unknown(merge(Reading(), [OK], 100.0, "610"), "DriverMissing: gone")
    assert [(gpu.uuid, gpu.health) for gpu in reading.gpus] == [("A", "Unknown")]
    assert reading.trouble == "DriverMissing: gone"


class FakeDriver(Driver):
    """Stands for a library that is missing, then slow, then well."""

    def __init__(self, pauses: list[float]) -> None:
        self.version = "610"
        self._pauses = pauses

    def sample(self) -> tuple[Sample, ...]:
        if self._pauses:
            time.sleep(self._pauses.pop(0))
        return (OK,)


def test_telemetry_survives_a_missing_and_a_hung_driver() -> None:
    tries: list[int] = []
    pauses = [0.3]

    def open_driver() -> Driver:
        tries.append(1)
        if len(tries) < 3:
            raise DriverTroubleError("no library")
        return FakeDriver(pauses)

    async def watch() -> list[str]:
        telemetry = Telemetry(0.01, 0.1, open_driver)
        seen: list[str] = []
        done = asyncio.Event()

        def note() -> None:
            word = telemetry.reading.trouble.split(":")[0]
            if not seen or seen[-1] != word:
                seen.append(word)
            if telemetry.reading.gpus and not telemetry.reading.trouble:
                done.set()

        telemetry.subscribe(note)
        assert not telemetry.asked.is_set()
        task = asyncio.ensure_future(telemetry.run())
        await asyncio.wait_for(done.wait(), 300)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    assert asyncio.run(watch()) == ["DriverMissing", "DriverUnresponsive", ""]

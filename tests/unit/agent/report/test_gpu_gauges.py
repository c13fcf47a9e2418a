"""The agent's gauges of GPUs show the GPUs of the node now."""

from __future__ import annotations

from typing import Any

from prometheus_client import generate_latest

from podium_agent.metrics import Metrics
from podium_core.schema.gpunode import GpuStatus

TRIAL = {"namespace": "lab", "trial": "a-0", "uid": "1", "since": "2026-01-01T00:00:00Z"}


def gpu(uuid: str, **more: Any) -> GpuStatus:
    return GpuStatus.model_validate({"uuid": uuid, "index": 0, **more})


def lines(metrics: Metrics) -> set[str]:
    text = generate_latest(metrics.registry).decode().splitlines()
    return {line.removeprefix("podium_agent_gpu_") for line in text if line.startswith("podium_agent_gpu_")}


def test_a_gpu_is_shown_with_its_values() -> None:
    metrics = Metrics()
    metrics.gpus.set(
        [
            gpu(
                "A",
                health="Healthy",
                slots=4,
                holder=TRIAL,
                trials=[TRIAL | {"pod": "a-0-0", "podUID": "2", "state": "Running"}],
                smUtilization=62.5,
                memoryTotal=1000,
                memoryUsed=250,
                temperature=61.0,
            )
        ]
    )
    assert lines(metrics) == {
        'healthy{uuid="A"} 1.0',
        'trials{uuid="A"} 1.0',
        'slots{uuid="A"} 4.0',
        'held{uuid="A"} 1.0',
        'utilization_ratio{uuid="A"} 0.625',
        'memory_bytes{uuid="A"} 1000.0',
        'memory_used_bytes{uuid="A"} 250.0',
        'temperature_celsius{uuid="A"} 61.0',
    }


def test_a_gpu_that_left_the_node_is_not_shown_and_an_unknown_temperature_is_no_zero() -> None:
    metrics = Metrics()
    metrics.gpus.set([gpu("A", temperature=40.0), gpu("B", health="Unhealthy")])
    assert 'healthy{uuid="A"} -1.0' in lines(metrics)
    metrics.gpus.set([gpu("B", health="Unhealthy")])
    shown = lines(metrics)
    assert 'healthy{uuid="B"} 0.0' in shown
    assert not [line for line in shown if '"A"' in line or line.startswith("temperature")]

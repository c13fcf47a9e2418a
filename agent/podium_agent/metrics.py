"""Prometheus metrics of the agent, served at /metrics."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, fields

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from podium_core.schema.gpunode import GpuStatus

_FAST = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_PREFIX = "podium_agent_"


def error_code(error: BaseException) -> str:
    """Return the name of a system error (ENOSPC), or of the exception's class."""
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number or 0, type(error).__name__)


class Metrics:
    """The agent's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(_PREFIX + name, text, labels, registry=self.registry, buckets=_FAST)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(_PREFIX + name, text, labels, registry=self.registry)

        self.suspend = histogram("suspend_seconds", "From the decision to the verified stop", "method")
        self.resume = histogram("resume_seconds", "From the decision to the verified start", "method")
        self.effect = histogram("run_queue_effect_seconds", "From receiving a run queue until it is in effect")
        self.failures = counter("failures_total", "Acts, patches, notes and reads that failed", "what", "code")
        self.grants = counter("gates_opened_total", "Gates opened")
        self.last_calls = counter(
            "final_checkpoints_total",
            "Deleted trials thawed beside the holder shortly before the end of their grace period",
        )
        self.points = counter("points_total", "Points of learning curves read from logs")
        self.repeated = counter("repeated_points_total", "Points whose step was already known")
        self.diverged = counter("non_finite_points_total", "Points whose value was not finite")
        self.lost_logs = counter("lost_logs_total", "Log files deleted before they were read")
        self.trials = gauge("trials", "Trials on this node", "state")
        self.epoch = gauge("epoch", "Epoch of the run queues in force")
        self.gpus = GpuGauges.of(self.registry)

    def note_failed(self, error: OSError) -> None:
        """Count a note on the node's disk that could not be written."""
        self.failures.labels("note", error_code(error)).inc()


@dataclass(frozen=True, slots=True)
class GpuGauges:
    """Gauges of the node's GPUs. Their label is the UUID of the GPU."""

    healthy: Gauge
    trials: Gauge
    slots: Gauge
    held: Gauge
    utilization: Gauge
    memory: Gauge
    memory_used: Gauge
    temperature: Gauge

    @staticmethod
    def of(registry: CollectorRegistry) -> GpuGauges:
        """Create the gauges in a registry."""

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{_PREFIX}gpu_{name}", text, ["uuid"], registry=registry)

        return GpuGauges(
            healthy=gauge("healthy", "1: healthy, 0: unhealthy, -1: unknown"),
            trials=gauge("trials", "Trials that occupy a slot of the GPU"),
            slots=gauge("slots", "Trials that can occupy a slot of the GPU"),
            held=gauge("held", "1 if a trial holds the GPU, else 0"),
            utilization=gauge("utilization_ratio", "Utilization of the streaming multiprocessors, from 0 to 1"),
            memory=gauge("memory_bytes", "Total memory of the GPU"),
            memory_used=gauge("memory_used_bytes", "Used memory of the GPU"),
            temperature=gauge("temperature_celsius", "Temperature of the GPU"),
        )

    def set(self, gpus: Iterable[GpuStatus]) -> None:
        """Show these GPUs and no other ones."""
        for one in fields(self):
            getattr(self, one.name).clear()
        for gpu in gpus:
            self.healthy.labels(gpu.uuid).set({"Healthy": 1, "Unhealthy": 0}.get(gpu.health, -1))
            self.trials.labels(gpu.uuid).set(len(gpu.trials))
            self.slots.labels(gpu.uuid).set(gpu.slots)
            self.held.labels(gpu.uuid).set(gpu.holder is not None)
            self.utilization.labels(gpu.uuid).set(gpu.sm_utilization / 100)
            self.memory.labels(gpu.uuid).set(gpu.memory_total)
            self.memory_used.labels(gpu.uuid).set(gpu.memory_used)
            if gpu.temperature is not None:
                self.temperature.labels(gpu.uuid).set(gpu.temperature)

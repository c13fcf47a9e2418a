"""Metrics of the operator, for /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from podium_core.domain.gpu_queue import QueueShare, QueueUsage


class Metrics:
    """All metrics of the operator, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leader = Gauge("podium_operator_leader", "1 if this replica leads, else 0", registry=self.registry)
        self.part_seconds = Histogram(
            "podium_operator_reconcile_seconds",
            "One reconcile, by part: plan, run_queues, act (what is new), describe (ranks, predictions), report",
            ["part"],
            registry=self.registry,
        )
        self.actions = Counter("podium_operator_actions_total", "Actions carried out", ["kind"], registry=self.registry)
        self.failed = Counter(
            "podium_operator_actions_failed_total",
            "Actions that were refused",
            ["kind"],
            registry=self.registry,
        )
        self.errors = Counter(
            "podium_operator_reconcile_errors_total",
            "Reconciles that ended in an error of Podium",
            registry=self.registry,
        )
        self.trials = Gauge("podium_trials", "Trials by phase", ["phase"], registry=self.registry)
        self.reservations = Gauge(
            "podium_gpu_reservations", "GPU reservations by state", ["state"], registry=self.registry
        )
        self.reservation_events = Counter(
            "podium_gpu_reservation_events_total",
            "GPU reservations: requested, refused, preempted, yielded, released",
            ["what"],
            registry=self.registry,
        )
        self.jobs = Gauge("podium_jobs", "Jobs by phase", ["phase"], registry=self.registry)
        self.agent_responsive = Gauge(
            "podium_operator_agent_responsive",
            "1 if the node's agent renews its heartbeat, else 0",
            ["node"],
            registry=self.registry,
        )
        self.refused_pods = Gauge(
            "podium_refused_pods",
            "Pods that the API server refuses for now, by kind (trial, reservation) and cause (quota, other)",
            ["namespace", "kind", "cause"],
            registry=self.registry,
        )
        self.lost_work = Counter(
            "podium_lost_work_total",
            "Attempts that had to repeat work because a pod ended before its trial could checkpoint",
            ["namespace"],
            registry=self.registry,
        )
        self.lost_gpu_seconds = Counter(
            "podium_lost_work_gpu_seconds_total",
            "GPU-seconds that had to be repeated because a pod ended before its trial could checkpoint",
            ["namespace"],
            registry=self.registry,
        )
        self.gpu_seconds = Counter(
            "podium_gpu_seconds_total",
            "GPU-seconds that trials held GPUs; queue is empty without GPUQueues",
            ["namespace", "queue"],
            registry=self.registry,
        )
        self.job = JobGauges.of(self.registry)
        self.queue = QueueGauges.of(self.registry)


@dataclass(frozen=True, slots=True)
class QueueGauges:
    """Gauges of single GPUQueues. Their label is the name of the queue."""

    gpus: Gauge
    gpu_seconds: Gauge
    waiting: Gauge

    @staticmethod
    def of(registry: CollectorRegistry) -> QueueGauges:
        """Create the gauges in a registry."""

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"podium_queue_{name}", text, ["queue", *labels], registry=registry)

        return QueueGauges(
            gpus=gauge("gpus", "GPUs of the queue by state: nominal, deserved, used, borrowed", "state"),
            gpu_seconds=gauge("gpu_seconds", "GPU-seconds that the queue has used in total"),
            waiting=gauge("waiting_trials", "Trials of the queue that want a GPU and have none"),
        )

    def export(self, shares: Iterable[QueueShare], usage: Mapping[str, QueueUsage]) -> None:
        """Set the gauges of the present queues, and forget the others."""
        for one in (self.gpus, self.gpu_seconds, self.waiting):
            one.clear()
        for share in shares:
            name = share.queue
            self.gpus.labels(name, "nominal").set(share.nominal)
            self.gpus.labels(name, "deserved").set(share.deserved)
            self.gpus.labels(name, "used").set(share.held)
            self.gpus.labels(name, "borrowed").set(share.borrowed)
            self.gpu_seconds.labels(name).set(usage.get(name, QueueUsage()).total)
            self.waiting.labels(name).set(share.waiting)


@dataclass(frozen=True, slots=True)
class JobGauges:
    """Gauges of single jobs. Their labels are the namespace and the name of the job."""

    trials: Gauge
    max_trials: Gauge
    gpu_seconds: Gauge
    suspensions: Gauge
    best_value: Gauge
    end: Gauge
    shown: Gauge

    @staticmethod
    def of(registry: CollectorRegistry) -> JobGauges:
        """Create the gauges in a registry."""

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"podium_job_{name}", text, ["namespace", "job_name", *labels], registry=registry)

        return JobGauges(
            trials=gauge("trials", "Trials by state: pending, running, suspended, succeeded, failed", "state"),
            max_trials=gauge("max_trials", "Largest number of trials: trials.max"),
            gpu_seconds=gauge("gpu_seconds", "GPU-seconds of all trials by use: training, switching", "use"),
            suspensions=gauge("suspensions", "Suspensions of all trials"),
            best_value=gauge("best_value", "Best value of the objective so far"),
            end=gauge("expected_end_timestamp_seconds", "Expected end of the search, in seconds of the epoch"),
            shown=Gauge("podium_jobs_shown", "Jobs with metrics of their own", registry=registry),
        )

    def clear(self) -> None:
        """Forget all jobs."""
        for one in (self.trials, self.max_trials, self.gpu_seconds, self.suspensions, self.best_value, self.end):
            one.clear()

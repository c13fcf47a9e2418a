"""Metrics of the operator, for /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


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
            "GPU reservations: requested, refused, preempted, released",
            ["what"],
            registry=self.registry,
        )
        self.jobs = Gauge("podium_jobs", "Jobs by phase", ["phase"], registry=self.registry)

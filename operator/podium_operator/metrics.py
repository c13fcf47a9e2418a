"""What the operator counts, for /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.cycle = Histogram(
            "podium_operator_cycle_seconds",
            "One cycle, by part: plan, order, act (what is new), tell (ranks and predictions in words), report",
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
            "podium_operator_cycle_errors_total", "Cycles that ended in an error of ours", registry=self.registry
        )
        self.trials = Gauge("podium_trials", "Trials by phase", ["phase"], registry=self.registry)
        self.leases = Gauge("podium_leases", "GPU leases by state", ["state"], registry=self.registry)
        self.lease_events = Counter(
            "podium_lease_events_total",
            "Leases asked for, refused, taken, given back",
            ["what"],
            registry=self.registry,
        )
        self.jobs = Gauge("podium_jobs", "Jobs by phase", ["phase"], registry=self.registry)

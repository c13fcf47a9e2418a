"""The extender's own figures: how long each verb takes (kube-scheduler has none for this) and why nodes are refused."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

# from a tenth of a millisecond (two nodes) to the scheduler's time limit
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """One registry for one process (or one test)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.seconds = Histogram(
            "podium_extender_request_seconds",
            "time from the whole request to the whole answer",
            ["verb"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.requests = Counter(
            "podium_extender_requests", "answers by verb and HTTP status", ["verb", "status"], registry=self.registry
        )
        self.rejections = Counter(
            "podium_extender_rejections", "nodes refused by filter, by code", ["code"], registry=self.registry
        )

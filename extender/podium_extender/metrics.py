"""The extender's own figures: how long each verb takes and on what (kube-scheduler has none for this), why nodes and
evictions are refused, how old what is known is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from podium_cluster.watch import WatchCache
from podium_extender.assumed import End

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
        self.phases = Histogram(
            "podium_extender_phase_seconds",
            "parts of the same: read (the body comes in), parse, decide (and write)",
            ["verb", "phase"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.requests = Counter(
            "podium_extender_requests", "answers by verb and HTTP status", ["verb", "status"], registry=self.registry
        )
        self.rejections = Counter(
            "podium_extender_rejections", "nodes refused by filter, by code", ["code"], registry=self.registry
        )
        self.preemptions = Counter(
            "podium_extender_preemptions",
            "answers to preempt: Evicted, or the code of each node's refusal",
            ["code"],
            registry=self.registry,
        )
        self.wakeups = Counter(
            "podium_extender_wakeups",
            "refused pods that were told of room (woken), or could not be (failed)",
            ["result"],
            registry=self.registry,
        )
        self.assumed = Gauge(
            "podium_extender_assumed_pods",
            "pods that count on the node that was best for them and were not seen bound yet",
            registry=self.registry,
        )
        self.assumptions = Counter(
            "podium_extender_assumptions",
            "how they ended: confirmed, elsewhere, asked_again, gone, expired",
            ["result"],
            registry=self.registry,
        )
        self.ages = Gauge(
            "podium_extender_cache_age_seconds",
            "since the API server was last heard of this kind of object",
            ["cache"],
            registry=self.registry,
        )

    def assumption_ended(self, how: End) -> None:
        self.assumptions.labels(how).inc()

    def watch(self, caches: Mapping[str, WatchCache[Any]]) -> None:
        """Show the caches' ages, as they are when the page is read."""
        for name, cache in caches.items():
            self.ages.labels(name).set_function(cache.age)

    @contextmanager
    def whole(self, verb: str) -> Iterator[None]:
        """Time an answer; one that failed is counted by its status, not here."""
        started = time.perf_counter()
        yield
        self.seconds.labels(verb).observe(time.perf_counter() - started)

    @contextmanager
    def phase(self, verb: str, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.phases.labels(verb, phase).observe(time.perf_counter() - started)

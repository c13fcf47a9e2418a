"""Metrics of the extender: the duration of each verb and its phases, reasons of refusals, and ages of the caches.

kube-scheduler has no metrics for the duration of an extender's verbs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from podium_extender.state.assumptions import End

# from a tenth of a millisecond (two nodes) to the scheduler's time limit
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """The metrics of one process (or one test), with a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._by_verb: dict[str, _VerbMetrics] = {}
        self.seconds = Histogram(
            "podium_extender_request_seconds",
            "seconds from the start of a request to its response",
            ["verb"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.phases = Histogram(
            "podium_extender_phase_seconds",
            "seconds of each phase of a request: read (receive the body), parse, decide (and write)",
            ["verb", "phase"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.requests = Counter(
            "podium_extender_requests", "responses by verb and HTTP status", ["verb", "status"], registry=self.registry
        )
        self.rejections = Counter(
            "podium_extender_rejections", "nodes refused by filter, by code", ["code"], registry=self.registry
        )
        self.filter_answers = Counter(
            "podium_extender_filter_answers",
            "responses of filter: the best nodes, all that fit (few, preference, no_favourite), or none",
            ["nodes"],
            registry=self.registry,
        )
        self.preemptions = Counter(
            "podium_extender_preemptions",
            "responses of preempt: Evicted, or the code of each node's refusal",
            ["code"],
            registry=self.registry,
        )
        self.wakeups = Counter(
            "podium_extender_wakeups",
            "retries of refused pods: written (woken) or not (failed)",
            ["result"],
            registry=self.registry,
        )
        self.assumed = Gauge(
            "podium_extender_assumed_pods",
            "pods that are assumed on their best node because their binding was not observed yet",
            registry=self.registry,
        )
        self.assumptions = Counter(
            "podium_extender_assumptions",
            "assumed pods by outcome: confirmed, elsewhere, asked_again, gone, expired",
            ["result"],
            registry=self.registry,
        )
        self.ages = Gauge(
            "podium_extender_cache_age_seconds",
            "seconds since the last event or list of this kind of object",
            ["cache"],
            registry=self.registry,
        )

    def assumption_ended(self, outcome: End) -> None:
        """Count the end of an assumption."""
        self.assumptions.labels(outcome).inc()

    def watch(self, caches: Mapping[str, WatchCache[Any]]) -> None:
        """Export the ages of the caches, computed when the metrics are read."""
        for name, cache in caches.items():
            self.ages.labels(name).set_function(cache.age)

    def answered(self, verb: str, began: float, read: float, parsed: float, ended: float) -> None:
        """Count a response with status 200 and its phases; the times are those of time.perf_counter().

        Failed responses are counted only by their status.
        """
        metrics = self._by_verb.get(verb)
        if metrics is None:
            metrics = self._by_verb[verb] = _VerbMetrics.of(self, verb)
        metrics.read.observe(read - began)
        metrics.parse.observe(parsed - read)
        metrics.decide.observe(ended - parsed)
        metrics.total.observe(ended - began)
        metrics.served.inc()


@dataclass(frozen=True, slots=True)
class _VerbMetrics:
    """Metrics of one verb, looked up once because a look-up by labels takes as long as counting."""

    read: Histogram
    parse: Histogram
    decide: Histogram
    total: Histogram
    served: Counter

    @staticmethod
    def of(metrics: Metrics, verb: str) -> _VerbMetrics:
        read, parse, decide = (metrics.phases.labels(verb, phase) for phase in ("read", "parse", "decide"))
        return _VerbMetrics(read, parse, decide, metrics.seconds.labels(verb), metrics.requests.labels(verb, "200"))

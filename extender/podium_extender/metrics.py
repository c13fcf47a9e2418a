"""The extender's own figures: how long each verb takes and on what (kube-scheduler has none for this), why nodes and
evictions are refused, how old what is known is.
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
    """One registry for one process (or one test)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._answers: dict[str, _Answers] = {}
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
        self.filter_answers = Counter(
            "podium_extender_filter_answers",
            "answers to filter: the best nodes, all that fit and why (few, preference, no_favourite), or none",
            ["nodes"],
            registry=self.registry,
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
            "how they ended: confirmed, elsewhere, forget, gone, expired",
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

    def answered(self, verb: str, began: float, read: float, parsed: float, ended: float) -> None:
        """With 200; times by time.perf_counter(). An answer that failed is counted by its status alone."""
        of = self._answers.get(verb)
        if of is None:
            of = self._answers[verb] = _Answers.of(self, verb)
        of.read.observe(read - began)
        of.parse.observe(parsed - read)
        of.decide.observe(ended - parsed)
        of.whole.observe(ended - began)
        of.served.inc()


@dataclass(frozen=True, slots=True)
class _Answers:
    """Of one verb, looked up once: the look-ups by labels take as long as the counting."""

    read: Histogram
    parse: Histogram
    decide: Histogram
    whole: Histogram
    served: Counter

    @staticmethod
    def of(metrics: Metrics, verb: str) -> _Answers:
        read, parse, decide = (metrics.phases.labels(verb, phase) for phase in ("read", "parse", "decide"))
        return _Answers(read, parse, decide, metrics.seconds.labels(verb), metrics.requests.labels(verb, "200"))

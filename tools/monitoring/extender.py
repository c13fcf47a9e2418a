"""Dashboard `extender`: how fast does the scheduler extender respond, and what does it decide?"""

from __future__ import annotations

from typing import Any

from monitoring.dashboard import dashboard
from monitoring.layout import Row
from monitoring.panels import Chart, Query, Style, curves

RATE = "[$__rate_interval]"
TIME_LIMIT = 1.0  # of the kube-scheduler for one request (charts/podium/templates/scheduler/config.yaml)


def build() -> dict[str, Any]:
    """Return the dashboard."""
    rows = [
        Row("Speed", [curves(chart) for chart in SPEED], across=2),
        Row("Decisions", [curves(chart) for chart in DECISIONS], across=2),
        Row("State", [curves(chart) for chart in STATE], across=3),
    ]
    return dashboard("extender", "Extender", "Speed and decisions of Podium's scheduler extender.", rows)


def quantile(share: float, metric: str, *labels: str) -> str:
    """Return a quantile of a histogram, for each value of the labels."""
    return f"histogram_quantile({share:g}, sum by (le, {', '.join(labels)}) (rate({metric}_bucket{RATE})))"


def per_second(metric: str, *labels: str) -> str:
    """Return the increase of a counter per second, for each value of the labels."""
    return f"sum by ({', '.join(labels)}) (rate({metric}{RATE}))"


SPEED = (
    Chart(
        "Requests, p99",
        "Time of a request. After one second the kube-scheduler gives up, and the pod is tried again later.",
        (Query(quantile(0.99, "podium_extender_request_seconds", "verb"), "{{verb}}"),),
        Style("s", limit=TIME_LIMIT),
    ),
    Chart(
        "Requests, p50",
        "Time of a typical request.",
        (Query(quantile(0.5, "podium_extender_request_seconds", "verb"), "{{verb}}"),),
        Style("s"),
    ),
    Chart(
        "Mean time by phase",
        "read: receive the body, parse, decide: decide and write the response.",
        (
            Query(
                f"{per_second('podium_extender_phase_seconds_sum', 'verb', 'phase')} / "
                f"{per_second('podium_extender_phase_seconds_count', 'verb', 'phase')}",
                "{{verb}}: {{phase}}",
            ),
        ),
        Style("s"),
    ),
    Chart(
        "Responses",
        "Responses per second, by verb and HTTP status. Any status but 200 is an error.",
        (Query(per_second("podium_extender_requests_total", "verb", "status"), "{{verb}}: {{status}}"),),
        Style("ops"),
    ),
)
DECISIONS = (
    Chart(
        "Refused nodes",
        "Nodes that filter refuses per second, by code. The page of reasons explains each code.",
        (Query(per_second("podium_extender_rejections_total", "code"), "{{code}}"),),
        Style("ops", stacked=True),
    ),
    Chart(
        "Responses of filter",
        "best: the best nodes; few, preference, no_favourite: all that fit; none: no node fits.",
        (Query(per_second("podium_extender_filter_answers_total", "nodes"), "{{nodes}}"),),
        Style("ops", stacked=True),
    ),
    Chart(
        "Preemptions",
        "Responses of preempt: Evicted, or the code of each node's refusal.",
        (Query(per_second("podium_extender_preemptions_total", "code"), "{{code}}"),),
        Style("ops"),
    ),
    Chart(
        "Retries of refused pods",
        "Refused pods that were woken because something changed for them, or could not be.",
        (Query(per_second("podium_extender_wakeups_total", "result"), "{{result}}"),),
        Style("ops"),
    ),
)
STATE = (
    Chart(
        "Assumed pods",
        "Pods that count on their best node although their binding was not observed yet, by replica.",
        (Query("sum by (pod) (podium_extender_assumed_pods)", "{{pod}}"),),
    ),
    Chart(
        "Ends of assumptions",
        "confirmed: the pod went to its best node. Every other result means that it did not.",
        (Query(per_second("podium_extender_assumptions_total", "result"), "{{result}}"),),
        Style("ops"),
    ),
    Chart(
        "Ages of caches",
        "Time since the API server last sent this kind of object. A quiet cluster has old caches.",
        (Query("max by (cache) (podium_extender_cache_age_seconds)", "{{cache}}"),),
        Style("s"),
    ),
)

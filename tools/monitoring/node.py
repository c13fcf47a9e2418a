"""Dashboard `node`: what do the GPUs of a node do, and does its agent switch trials in time?"""

from __future__ import annotations

from typing import Any

from monitoring.dashboard import dashboard, variable
from monitoring.layout import Row
from monitoring.panels import Chart, Query, Style, curves, number
from monitoring.switching import SWITCHING_BUDGET, switching_share

NODE = '{node=~"$node"}'
RATE = f"{NODE}[$__rate_interval]"
GPU = "{{node}} {{uuid}}"


def build() -> dict[str, Any]:
    """Return the dashboard."""
    rows = [
        Row("Now", [number(chart) for chart in NOW], across=4, height=4),
        Row("GPUs", [curves(chart) for chart in GPUS], across=2),
        Row("Switches", [curves(chart) for chart in SWITCHES], across=2),
        Row("Reading and reporting", [curves(chart) for chart in REPORTS], across=2),
    ]
    variables = [variable("node", "Node", "podium_agent_gpu_healthy")]
    return dashboard("node", "Node", "GPUs and trials of single nodes, and their agents.", rows, variables)


def p95(metric: str, *labels: str) -> str:
    """Return the 95th percentile of a histogram, for each value of the labels."""
    return f"histogram_quantile(0.95, sum by (le, {', '.join(labels)}) (rate({metric}_bucket{RATE})))"


NOW = (
    Chart("GPUs", "GPUs of the chosen nodes.", (Query(f"count(podium_agent_gpu_healthy{NODE})", "GPUs"),)),
    Chart(
        "Unhealthy GPUs",
        "GPUs that get no trial. kubectl get gpunode NODE -o yaml names the reason.",
        (Query(f"sum(podium_agent_gpu_healthy{NODE} == bool 0)", "GPUs"),),
        Style(limit=1),
    ),
    Chart("Trials", "Trials that occupy a slot.", (Query(f"sum(podium_agent_gpu_trials{NODE})", "trials"),)),
    Chart(
        "Agents that respond",
        "1: the agent renews its heartbeat. 0: nothing is switched on the node.",
        (Query(f"min(podium_operator_agent_responsive{NODE})", "responsive"),),
    ),
)
GPUS = (
    Chart(
        "Utilization",
        "Utilization of the streaming multiprocessors.",
        (Query(f"podium_agent_gpu_utilization_ratio{NODE}", GPU),),
        Style("percentunit", most=1.0),
    ),
    Chart(
        "Used memory",
        "Used part of the GPU's memory, by all processes.",
        (Query(f"podium_agent_gpu_memory_used_bytes{NODE} / (podium_agent_gpu_memory_bytes{NODE} > 0)", GPU),),
        Style("percentunit", most=1.0),
    ),
    Chart(
        "Temperature",
        "Temperature of the GPU.",
        (Query(f"podium_agent_gpu_temperature_celsius{NODE}", GPU),),
        Style("celsius"),
    ),
    Chart(
        "Trials by state",
        "Trials of the node as the agent sees them. One trial holds a GPU, the others are suspended or gated.",
        (Query(f"sum by (state) (podium_agent_trials{NODE})", "{{state}}"),),
        Style(stacked=True),
    ),
)
SWITCHES = (
    Chart(
        "GPU time that switches take",
        "Time of suspending and resuming, as a part of the time of all GPUs. The planner's budget is 3 %.",
        (Query(switching_share(NODE, "$__rate_interval"), "{{node}}"),),
        Style("percentunit", limit=SWITCHING_BUDGET),
    ),
    Chart(
        "Suspending, p95",
        "Time from the decision to the verified stop.",
        (Query(p95("podium_agent_suspend_seconds", "node", "method"), "{{node}} {{method}}"),),
        Style("s"),
    ),
    Chart(
        "Resuming, p95",
        "Time from the decision to the verified start.",
        (Query(p95("podium_agent_resume_seconds", "node", "method"), "{{node}} {{method}}"),),
        Style("s"),
    ),
    Chart(
        "Run queue in effect, p95",
        "Time from a new run queue until the agent has nothing left to do for it.",
        (Query(p95("podium_agent_run_queue_effect_seconds", "node"), "{{node}}"),),
        Style("s"),
    ),
)
REPORTS = (
    Chart(
        "Points of learning curves",
        "Points that the agent reads from logs and files, per second.",
        (Query(f"sum by (node) (rate(podium_agent_points_total{RATE}))", "{{node}}"),),
        Style("ops"),
    ),
    Chart(
        "Failures",
        "Acts, patches and reads that failed. The agent's log has the whole message.",
        (
            Query(
                f"sum by (node, what, code) (increase(podium_agent_failures_total{RATE}))",
                "{{node}} {{what}}: {{code}}",
            ),
        ),
    ),
)

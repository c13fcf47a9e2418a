"""Dashboard `cluster`: are the GPUs used, what waits, and does Podium itself work?"""

from __future__ import annotations

from typing import Any

from monitoring.dashboard import dashboard
from monitoring.layout import Row
from monitoring.panels import Chart, Query, Style, curves, number

PER_SECOND = "[$__rate_interval]"


def build() -> dict[str, Any]:
    """Return the dashboard."""
    rows = [
        Row("Now", [number(chart) for chart in NOW], across=6, height=4),
        Row("GPUs and trials", [curves(chart) for chart in WORK], across=2),
        Row("Operator", [curves(chart) for chart in OPERATOR], across=2),
    ]
    return dashboard("cluster", "Cluster", "GPUs, trials and jobs of the whole cluster, and the operator.", rows)


NOW = (
    Chart(
        "GPUs held",
        "Part of the healthy GPUs with slots on which a trial runs.",
        (
            Query(
                "sum(podium_agent_gpu_held) / "
                "sum((podium_agent_gpu_healthy == bool 1) * (podium_agent_gpu_slots > bool 0))",
                "held",
            ),
        ),
        Style("percentunit"),
    ),
    Chart(
        "Unhealthy GPUs",
        "GPUs that get no trial.",
        (Query("sum(podium_agent_gpu_healthy == bool 0)", "GPUs"),),
        Style(limit=1),
    ),
    Chart(
        "Silent agents",
        "Nodes whose agent did not renew its heartbeat: nothing is switched there.",
        (Query("sum(podium_operator_agent_responsive == bool 0)", "agents"),),
        Style(limit=1),
    ),
    Chart("Running jobs", "Jobs in the phase Running.", (Query('sum(podium_jobs{phase="Running"})', "jobs"),)),
    Chart(
        "Refused pods",
        "Pods that the API server refuses for now, for example because a quota is reached.",
        (Query("sum(podium_refused_pods) or vector(0)", "pods"),),
        Style(limit=1),
    ),
    Chart(
        "Lost work, one day",
        "GPU time that trials had to repeat, because a pod ended before its trial could checkpoint.",
        (Query("sum(increase(podium_lost_work_gpu_seconds_total[1d]))", "lost"),),
        Style("s"),
    ),
)
WORK = (
    Chart(
        "Trials by phase",
        "Trials that have not ended. Suspended and gated trials wait for their next time slice on a GPU.",
        (Query('sum by (phase) (podium_trials{phase!~"Succeeded|Failed|EarlyStopped"})', "{{phase}}"),),
        Style(stacked=True),
    ),
    Chart(
        "Jobs by phase",
        "Searches that have not ended.",
        (Query('sum by (phase) (podium_jobs{phase=~"Pending|Running|Suspended"})', "{{phase}}"),),
        Style(stacked=True),
    ),
    Chart(
        "GPUs",
        "A GPU is held while the processes of a trial may use it. Without a waiting trial, a free GPU is idle.",
        (
            Query("count(podium_agent_gpu_healthy)", "all"),
            Query("sum(podium_agent_gpu_healthy == bool 1)", "healthy"),
            Query("sum(podium_agent_gpu_held)", "held"),
        ),
    ),
    Chart(
        "Slots",
        "Trials that occupy a slot of a GPU, and all slots. New trials wait while all slots are occupied.",
        (Query("sum(podium_agent_gpu_trials)", "occupied"), Query("sum(podium_agent_gpu_slots)", "all")),
    ),
    Chart(
        "Reserved GPUs",
        "GPU reservations by state, with gpus.mode: reservations.",
        (Query("sum by (state) (podium_gpu_reservations)", "{{state}}"),),
        Style(stacked=True),
    ),
    Chart(
        "Lost work",
        "Part of the GPUs' time that is work done a second time, by namespace.",
        (
            Query(
                f"sum by (namespace) (rate(podium_lost_work_gpu_seconds_total{PER_SECOND}))",
                "{{namespace}}",
            ),
        ),
        Style("short"),
    ),
)
OPERATOR = (
    Chart(
        "Time of a reconcile",
        "Mean time of each part of a reconcile. GPUs wait for plan and run_queues only.",
        (
            Query(
                f"sum by (part) (rate(podium_operator_reconcile_seconds_sum{PER_SECOND})) / "
                f"sum by (part) (rate(podium_operator_reconcile_seconds_count{PER_SECOND}))",
                "{{part}}",
            ),
        ),
        Style("s", stacked=True),
    ),
    Chart(
        "Actions",
        "Writes to the API server by kind, and those that it refused.",
        (
            Query(f"sum by (kind) (rate(podium_operator_actions_total{PER_SECOND}))", "{{kind}}"),
            Query(f"sum by (kind) (rate(podium_operator_actions_failed_total{PER_SECOND}))", "{{kind}} refused"),
        ),
        Style("ops"),
    ),
    Chart(
        "Refused pods by cause",
        "Pods of trials and of GPU reservations that the API server refuses for now.",
        (Query("sum by (namespace, kind, cause) (podium_refused_pods)", "{{namespace}}: {{kind}}, {{cause}}"),),
        Style(stacked=True),
    ),
    Chart(
        "Errors and leaders",
        "Reconciles that ended in an error of Podium, and replicas that lead: always 1.",
        (
            Query(f"sum(increase(podium_operator_reconcile_errors_total{PER_SECOND}))", "errors"),
            Query("sum(podium_operator_leader)", "leaders"),
        ),
    ),
)

"""Alert rules for Prometheus, as the dictionary of a rules file. Pure.

Every rule has a summary, a description with the value, and a link to the section of the documentation with its cure;
the chart can replace the page's path by its address. `critical`: trials may lose work, or nothing is scheduled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from monitoring.switching import SWITCHING_BUDGET, switching_share

RUNBOOK = "docs/how-to/respond-to-alerts.md"
LATENCY = 0.5  # seconds: half of the time limit that the kube-scheduler has for the extender


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: `expression` must hold for `duration` until it fires."""

    name: str
    expression: str
    duration: str
    severity: Literal["warning", "critical"]
    summary: str
    description: str

    def rule(self) -> dict[str, Any]:
        """Return the rule."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.duration,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOK}#{self.name.lower()}",
            },
        }


ALERTS = (
    Alert(
        "PodiumOperatorAbsent",
        "absent(podium_operator_leader == 1)",
        "2m",
        "critical",
        "No operator of Podium leads.",
        "For two minutes no operator has led. Trials keep running, but no search continues, and no other alert of "
        "Podium about agents and jobs can fire.",
    ),
    Alert(
        "PodiumAgentSilent",
        "podium_operator_agent_responsive == 0",
        "1m",
        "critical",
        "The agent of node {{ $labels.node }} is silent.",
        "The operator has seen no heartbeat of the agent of node {{ $labels.node }} for more than a minute. Nothing "
        "is switched there, and a suspended trial cannot checkpoint.",
    ),
    Alert(
        "PodiumUnhealthyGPUWithTrials",
        "podium_agent_gpu_healthy == 0 and podium_agent_gpu_trials > 0",
        "5m",
        "critical",
        "Trials are on an unhealthy GPU of node {{ $labels.node }}.",
        "GPU {{ $labels.uuid }} of node {{ $labels.node }} is unhealthy, and its trials have not left it for five "
        "minutes. Their next steps may be lost.",
    ),
    Alert(
        "PodiumSuspensionOverBudget",
        f"{switching_share('', '15m')} > {SWITCHING_BUDGET:g}",
        "15m",
        "warning",
        "Switching takes too much GPU time on node {{ $labels.node }}.",
        "Suspending and resuming take {{ $value | humanizePercentage }} of the GPU time of node {{ $labels.node }}. "
        f"The budget is {SWITCHING_BUDGET:.0%}.",
    ),
    Alert(
        "PodiumWorkLost",
        "increase(podium_lost_work_gpu_seconds_total[1h]) > 60",
        "0m",
        "warning",
        "Trials of namespace {{ $labels.namespace }} lose work.",
        "Trials of namespace {{ $labels.namespace }} lost {{ $value | humanizeDuration }} of GPU time within an hour, "
        "because pods ended before their trials could checkpoint.",
    ),
    Alert(
        "PodiumExtenderSlow",
        "histogram_quantile(0.99, sum by (le, verb) "
        f"(rate(podium_extender_request_seconds_bucket[10m]))) > {LATENCY:g}",
        "10m",
        "warning",
        "The scheduler extender is slow.",
        "One percent of the requests of verb {{ $labels.verb }} take more than {{ $value | humanizeDuration }}. After "
        "one second the kube-scheduler gives up a request, and its pod waits.",
    ),
    Alert(
        "PodiumQuotaReached",
        'sum by (namespace, kind) (podium_refused_pods{cause="quota"}) > 0',
        "10m",
        "warning",
        "A quota of namespace {{ $labels.namespace }} is reached.",
        "The API server has refused {{ $value }} pods of kind {{ $labels.kind }} in namespace "
        "{{ $labels.namespace }} for ten minutes, because they exceed a ResourceQuota.",
    ),
)


def groups() -> dict[str, Any]:
    """Return the rules file."""
    return {"groups": [{"name": "podium", "rules": [alert.rule() for alert in ALERTS]}]}

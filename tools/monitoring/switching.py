"""The part of the GPUs' time that suspending and resuming take: a query that a panel and an alert share."""

from __future__ import annotations

SWITCHING_BUDGET = 0.03
"""The planner keeps time slices so long that switching takes at most this part (docs/explanation/switching.md)."""


def switching_share(selector: str, interval: str) -> str:
    """Return the query of the part for each node; the selector of nodes may be empty."""
    suspending, resuming = (
        f"sum by (node) (rate(podium_agent_{act}_seconds_sum{selector}[{interval}]))" for act in ("suspend", "resume")
    )
    return f"({suspending} + {resuming}) / count by (node) (podium_agent_gpu_healthy{selector})"

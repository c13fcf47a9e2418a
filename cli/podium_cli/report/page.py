"""Report as one HTML file without scripts, links or external fonts."""

from __future__ import annotations

from podium_views import charts, pareto
from podium_views.lineage import lineage
from podium_views.model import LEVELS, JobReport
from podium_views.template import render as render_template


def render(report: JobReport) -> str:
    """Return the report as one HTML file."""
    return render_template(
        "podium_cli.report",
        "report.html.j2",
        report=report,
        levels=LEVELS,
        front=pareto.front(report.several),
        curves=charts.curves(report),
        lineage=lineage(report),
        gantt=charts.gantt(report),
        best_so_far=charts.best_so_far(report),
        scatters=[drawing for _, drawing in charts.scatters(report)],
    )

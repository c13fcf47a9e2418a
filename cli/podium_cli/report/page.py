"""Report as one HTML file that loads nothing and runs nothing."""

from __future__ import annotations

from podium_views import charts, pareto
from podium_views.lineage import lineage
from podium_views.model import LEVELS, JobReport
from podium_views.template import render as render_template


def render(report: JobReport, live: str = "") -> str:
    """Return the report as one HTML file.

    `live`: where to watch the search in the browser, the address of its page on a dashboard or a command.
    """
    return render_template(
        "podium_cli.report",
        "report.html.j2",
        report=report,
        live=live,
        levels=LEVELS,
        front=pareto.front(report.several),
        curves=charts.curves(report),
        lineage=lineage(report),
        gantt=charts.gantt(report),
        best_so_far=charts.best_so_far(report),
        scatters=[drawing for _, drawing in charts.scatters(report)],
    )

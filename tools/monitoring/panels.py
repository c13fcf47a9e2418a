"""Panels of a Grafana dashboard, as dictionaries without identifier and position; `layout` adds these. Pure.

The panels need Grafana 10 or newer and no plugin. Every query goes to the data source that the dashboard's variable
`datasource` names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Panel = dict[str, Any]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the legend of its series; `{{label}}` in a legend stands for the value of a label."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Style:
    """How the values of a panel are shown.

    - `unit`: a unit of Grafana: short, s, bytes, percentunit, celsius, ops, dateTimeFromNow
    - `stacked`: the series are parts of a whole
    - `limit`: values from here on are red; None: no value is
    - `least`, `most`: ends of the axis; None: as the values are
    """

    unit: str = "short"
    stacked: bool = False
    limit: float | None = None
    least: float | None = 0.0
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel: its question, what its values mean, and its queries."""

    title: str
    description: str
    queries: tuple[Query, ...]
    style: Style = field(default_factory=Style)


def curves(chart: Chart) -> Panel:
    """Return a panel that shows values over time."""
    panel = _panel("timeseries", chart, instant=False)
    custom = {
        "lineWidth": 1,
        "fillOpacity": 30 if chart.style.stacked else 0,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if chart.style.stacked else "none"},
        "thresholdsStyle": {"mode": "off" if chart.style.limit is None else "line"},
    }
    ends = {"min": chart.style.least, "max": chart.style.most}
    panel["fieldConfig"]["defaults"] |= {"custom": custom} | {k: v for k, v in ends.items() if v is not None}
    panel["options"] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def number(chart: Chart) -> Panel:
    """Return a panel that shows the present value."""
    panel = _panel("stat", chart, instant=True)
    panel["options"] = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto" if len(chart.queries) == 1 else "value_and_name",
    }
    return panel


def _panel(kind: str, chart: Chart, *, instant: bool) -> Panel:
    targets = [
        {
            "refId": chr(ord("A") + position),
            "datasource": SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend,
            "instant": instant,
            "range": not instant,
        }
        for position, query in enumerate(chart.queries)
    ]
    return {
        "type": kind,
        "title": chart.title,
        "description": chart.description,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": chart.style.unit, "thresholds": _thresholds(chart.style.limit)},
            "overrides": [],
        },
    }


def _thresholds(limit: float | None) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if limit is not None:
        steps.append({"color": "red", "value": limit})
    return {"mode": "absolute", "steps": steps}

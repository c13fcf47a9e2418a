"""A whole dashboard in Grafana's JSON model: its panels, its variables and its links to the other ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitoring.layout import Row, place

SCHEMA_VERSION = 39  # of Grafana 10.4; newer ones read it
TAG = "podium"


def dashboard(
    name: str, title: str, description: str, rows: Sequence[Row], variables: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the dashboard `name`: its address in Grafana ends with podium-NAME."""
    return {
        "uid": f"podium-{name}",
        "title": f"Podium / {title}",
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), *variables]},
        "annotations": {"list": []},
        "links": [_other_dashboards()],
        "panels": place(rows),
    }


def variable(name: str, label: str, metric: str) -> dict[str, Any]:
    """Return a variable with the values of a metric's label; several or all can be chosen."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": f"label_values({metric}, {name})", "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
    }


def _other_dashboards() -> dict[str, Any]:
    return {
        "type": "dashboards",
        "title": "Podium",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": False,
        "keepTime": True,
        "targetBlank": False,
    }

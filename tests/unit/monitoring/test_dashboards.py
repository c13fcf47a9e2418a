"""The chart's dashboards and alert rules: up to date, well formed, and about metrics that the components export."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from monitoring import alerts
from monitoring.__main__ import CHART, dashboards, files
from monitoring.layout import WIDTH, Row, place
from monitoring.panels import Chart, Query, curves

from podium_agent.metrics import Metrics as AgentMetrics
from podium_extender.metrics import Metrics as ExtenderMetrics
from podium_operator.metrics import Metrics as OperatorMetrics

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
GUIDE = ROOT / "docs" / "how-to" / "monitor.md"
RUNBOOK = ROOT / "docs" / "how-to" / "respond-to-alerts.md"
UNITS = {"short", "s", "percentunit", "celsius", "ops", "dateTimeFromNow"}
BOARDS = dashboards()
Box = dict[str, int]


def exported() -> dict[str, set[str]]:
    """Return each metric's samples by its name on the pages of all components."""
    found: dict[str, set[str]] = {}
    for registry in (OperatorMetrics().registry, ExtenderMetrics().registry, AgentMetrics().registry):
        found |= _families(registry)
    return found


def _families(registry: CollectorRegistry) -> dict[str, set[str]]:
    found = {}
    for family in registry.collect():
        if not family.name.startswith("podium_"):
            continue
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = {family.name + suffix for suffix in suffixes}
    return found


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Return every query with the place that it is from."""
    for name, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{name}: ${variable['name']}", variable["query"]["query"]
    for alert in alerts.ALERTS:
        yield alert.name, alert.expression


def test_the_files_of_the_chart_are_up_to_date() -> None:
    for path, text in files().items():
        assert path.read_text() == text, f"{path.name}: run `make generate`"
    assert {path.name for path in CHART.iterdir()} == {path.name for path in files()}


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_a_query_uses_only_metrics_that_exist(where: str, expression: str) -> None:
    samples = set().union(*exported().values())
    used = set(re.findall(r"\bpodium_\w+", expression))
    assert used, where
    assert used <= samples, f"{where}: {sorted(used - samples)}"


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_well_formed(name: str) -> None:
    board = BOARDS[name]
    assert board == json.loads(json.dumps(board))
    assert board["uid"] == f"podium-{name}"
    assert board["schemaVersion"] == 39
    assert {panel["type"] for panel in board["panels"]} <= {"row", "stat", "timeseries"}
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))
    titles = [panel["title"] for panel in panels(board)]
    assert len(titles) == len(set(titles))
    defined = {variable["name"] for variable in board["templating"]["list"]}
    for panel in panels(board):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references))
        for target in panel["targets"]:
            assert target["legendFormat"], panel["title"]
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            named = set(re.findall(r"\$(\w+)", target["expr"]))
            assert named <= defined | {"__rate_interval", "__range"}, panel["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap_and_leave_the_grid_nowhere(name: str) -> None:
    boxes: list[Box] = [panel["gridPos"] for panel in BOARDS[name]["panels"]]
    assert all(box["x"] >= 0 and box["x"] + box["w"] <= WIDTH and box["h"] > 0 for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]


def overlap(a: Box, b: Box) -> bool:
    return all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h")))


def test_rows_are_filled_from_the_left() -> None:
    one = curves(Chart("one", "One.", (Query("up", "up"),)))
    placed = place([Row("first", [one] * 3, across=2), Row("second", [one], across=4, height=4)])
    assert [(box["x"], box["y"], box["w"], box["h"]) for box in (panel["gridPos"] for panel in placed)] == [
        (0, 0, 24, 1), (0, 1, 12, 8), (12, 1, 12, 8), (0, 9, 12, 8), (0, 17, 24, 1), (0, 18, 6, 4),
    ]  # fmt: skip


def test_names_of_dashboards_and_labels_are_unlike_prometheus_own() -> None:
    """Prometheus writes `job` and `instance` itself; a metric with such a label would lose it."""
    for registry in (OperatorMetrics().registry, ExtenderMetrics().registry, AgentMetrics().registry):
        for collector in list(registry._collector_to_names):
            assert not {"job", "instance"} & set(getattr(collector, "_labelnames", ()))


def test_the_reference_lists_every_metric_and_no_other_one() -> None:
    listed = set(re.findall(r"`(podium_\w+)`", PAGE.read_text()))
    assert listed == set(exported())


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_an_alert_is_documented(alert: alerts.Alert) -> None:
    rule = alert.rule()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert re.fullmatch(r"\d+m", rule["for"])
    assert all(rule["annotations"][name] for name in ("summary", "description"))
    address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / address == RUNBOOK
    section = RUNBOOK.read_text().partition(f"\n## {alert.name}\n")[2].partition("\n## ")[0]
    assert anchor == alert.name.lower()
    for part in ("*Meaning:*", "*Cure:*"):
        assert part in section, f"{alert.name}: {part}"


def test_the_guide_describes_every_dashboard_and_row() -> None:
    text = GUIDE.read_text()
    for board in BOARDS.values():
        title = board["title"].removeprefix("Podium / ")
        section = text.partition(f"\n### {title}\n")[2].partition("\n##")[0]
        assert section, title
        for row in board["panels"]:
            if row["type"] == "row":
                assert f"**{row['title']}**" in section, f"{title}: {row['title']}"

"""Every query of the dashboards and alerts, evaluated by a real Prometheus on the metrics of a real run.

data/metrics/README.md describes the recording.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import metrics_recording
from monitoring import alerts
from monitoring.__main__ import dashboards
from prometheus_server import Series, Server, fires, serve

pytestmark = pytest.mark.integration
RUN = metrics_recording.facts()
STEP = 10.0  # seconds between two evaluations of a query
LOOKBACK = "1m"
DISTINGUISHABLE = 40  # curves in one panel
# what Grafana puts in place of the variables if everything is chosen
VARIABLES = {"$__rate_interval": "1m", "$__range": "30m", "$namespace": ".*", "$job_name": ".*", "$node": ".*"}
NOT_IN_THIS_RUN = {
    "node: Failures": "no act, patch or read of an agent failed",
    "extender: Refused nodes": "each pod fitted on each node",
    "extender: Preemptions": "no pod with a higher priority came",
    "extender: Retries of refused pods": "no node refused a pod",
}
"""Panels without data: what would have to happen for them to have some."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One query of a dashboard."""

    place: str
    expression: str
    legend: str
    instant: bool


PANELS = [
    Panel(f"{name}: {panel['title']}", target["expr"], target["legendFormat"], target["instant"])
    for name, board in dashboards().items()
    for panel in board["panels"]
    for target in panel.get("targets", [])
]
CHOICES = [
    (f"{name}: {variable['name']}", variable["query"]["query"])
    for name, board in dashboards().items()
    for variable in board["templating"]["list"]
    if variable["type"] == "query"
]


@pytest.fixture(scope="module")
def recorded(prometheus_programs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus")
    with serve(*prometheus_programs, metrics_recording.samples(), folder, LOOKBACK) as server:
        yield server


def with_variables(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


def named(legend: str, labels: Mapping[str, str]) -> str:
    """Return the name of a curve as Grafana shows it."""
    return re.sub(r"{{(\w+)}}", lambda match: labels[match[1]], legend)


def over_the_run(server: Server, expression: str) -> Series:
    return server.query(with_variables(expression), RUN.began, RUN.ended, STEP)


def numbers(series: Series) -> list[float]:
    return [value for one in series for _, text in one["values"] if math.isfinite(value := float(text))]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.place)
def test_a_query_has_numbers_and_its_legend_tells_its_curves_apart(recorded: Server, panel: Panel) -> None:
    series = over_the_run(recorded, panel.expression)
    if panel.place in NOT_IN_THIS_RUN:
        assert not numbers(series), f"{panel.place} has data: remove it from NOT_IN_THIS_RUN"
        return
    assert series, f"{panel.place}: no series for {panel.expression}"
    assert numbers(series), f"{panel.place}: no finite number for {panel.expression}"
    assert len(series) <= DISTINGUISHABLE, f"{panel.place}: {len(series)} curves"
    for label in re.findall(r"{{(\w+)}}", panel.legend):
        assert all(label in one["metric"] for one in series), f"{panel.place}: no label {label}"
    shown = [named(panel.legend, one["metric"]) for one in series]
    assert len(shown) == len(set(shown)), f"{panel.place}: equal legends {shown}"


def test_panels_without_data_exist() -> None:
    assert NOT_IN_THIS_RUN.keys() <= {panel.place for panel in PANELS}


@pytest.mark.parametrize("panel", [panel for panel in PANELS if panel.instant], ids=lambda panel: panel.place)
def test_a_panel_of_the_present_has_at_most_one_number_for_each_job(recorded: Server, panel: Panel) -> None:
    """Such a panel shows the last value, here that of the middle of the search."""
    series = recorded.query_at(with_variables(panel.expression), (RUN.began + RUN.disturbed) / 2)
    assert len(series) <= 1, f"{panel.place}: {series}"


@pytest.mark.parametrize(("place", "query"), CHOICES, ids=[place for place, _ in CHOICES])
def test_a_variable_has_choices(recorded: Server, place: str, query: str) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found, query
    values = recorded.label_values(found[2], with_variables(found[1]), RUN.began, RUN.ended)
    expected = {
        "search: namespace": ["default", "small"],
        "search: job_name": ["digits", "interrupted", "refused"],
        "node: node": ["node-1", "node-2"],
    }
    assert values == expected[place]


def test_the_metrics_agree_with_the_api_server(recorded: Server) -> None:
    """The recorder read the right sides from the status of the job, and knows what it did."""

    def values(expression: str) -> list[float]:
        return numbers(recorded.query(expression, RUN.began, RUN.ended, STEP))

    assert max(values('podium_job_trials{job_name="digits", state="succeeded"}')) == RUN.succeeded
    assert max(values('podium_job_suspensions{job_name="digits"}')) == RUN.suspensions
    assert max(values('podium_job_best_value{job_name="digits"}')) == pytest.approx(RUN.best_value)
    assert max(values("count(podium_agent_gpu_healthy == 1)")) == RUN.nodes, "each node has one GPU"
    assert max(values("sum(podium_operator_leader)")) == 1
    assert max(values('podium_refused_pods{namespace="small", cause="quota"}')) >= 1
    assert (max(values('podium_lost_work_total{namespace="default"}')) > 0) == (RUN.losses > 0)
    ratio = values("podium_agent_gpu_utilization_ratio")
    assert 0 <= min(ratio) < max(ratio) <= 1


def test_the_scrape_configuration_of_the_guide_collected_every_component(recorded: Server) -> None:
    """The recorder used that configuration: operator, extender, and an agent on each node."""
    series = recorded.query("up", RUN.began, RUN.ended, STEP)
    assert len(series) == 2 + RUN.nodes
    assert {one["metric"]["node"] for one in series} == {"node-1", "node-2"}
    assert all(max(numbers([one])) == 1 for one in series)


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_no_alert_fires_during_a_healthy_search(recorded: Server, alert: alerts.Alert) -> None:
    series = recorded.query(alert.expression, RUN.began, RUN.disturbed, STEP)
    assert not fires(series, alert.duration, STEP)


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_only_the_alert_of_the_quota_is_pending_while_the_quota_refuses_pods(
    recorded: Server, alert: alerts.Alert
) -> None:
    """It fires after ten minutes. The work lost after the search is less than that alert needs."""
    series = recorded.query_at(alert.expression, RUN.ended)
    assert bool(series) == (alert.name == "PodiumQuotaReached")

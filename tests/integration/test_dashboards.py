"""Every query of the dashboards and alerts, evaluated by a real Prometheus on the metrics of a real run.

`tools/record_metrics.py` made the recording: the digits search on a two-node cluster with suspensions and lost work,
and a second search whose pods a quota refuses.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from monitoring import alerts
from monitoring.__main__ import dashboards
from prometheus_server import Server, serve

pytestmark = pytest.mark.integration
RECORDING = Path(__file__).parent / "data" / "metrics-of-a-run.txt.gz"
QUERIES = [
    (name, panel["title"], target["expr"], target["legendFormat"])
    for name, board in dashboards().items()
    for panel in board["panels"]
    for target in panel.get("targets", [])
]
# what did not happen in the recorded run
QUIET = {
    "podium_extender_preemptions_total": "no pod of a higher priority came",
    "podium_extender_wakeups_total": "no pod was refused by all nodes",
    "podium_agent_failures_total": "nothing failed on a node",
    "podium_extender_assumptions_total": "",
}
VARIABLES = {"$__rate_interval": "1m", "$__range": "10m", "$namespace": ".*", "$job_name": ".*", "$node": ".*"}


@pytest.fixture(scope="module")
def recorded(prometheus_programs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(*prometheus_programs, RECORDING, tmp_path_factory.mktemp("prometheus")) as server:
        yield server


def with_variables(expression: str) -> str:
    """Return the query as Grafana sends it if everything is chosen."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


@pytest.mark.parametrize(("board", "title", "expression", "legend"), QUERIES, ids=lambda value: str(value)[:30])
def test_a_query_has_values_and_its_legend_names_labels_of_them(
    recorded: Server, board: str, title: str, expression: str, legend: str
) -> None:
    series = recorded.query(with_variables(expression))
    if not series and any(metric in expression for metric in QUIET):
        return
    assert series, f"{board}: {title}: no series"
    values = [float(value) for one in series for _, value in one["values"]]
    assert any(math.isfinite(value) for value in values), f"{board}: {title}: no number"
    assert len(series) <= 60, f"{board}: {title}: {len(series)} curves cannot be told apart"
    for label in re.findall(r"{{(\w+)}}", legend):
        assert all(label in one["metric"] for one in series), f"{board}: {title}: no label {label}"
    shown = [re.sub(r"{{(\w+)}}", lambda match, one=one: one["metric"][match[1]], legend) for one in series]
    assert len(shown) == len(set(shown)), f"{board}: {title}: two curves have the same legend"


def test_the_numbers_agree_with_the_run(recorded: Server) -> None:
    """Known facts of the run: two nodes with one GPU each, twelve trials, and a quota that refuses pods."""

    def values(expression: str) -> list[float]:
        return [float(value) for one in recorded.query(expression) for _, value in one["values"]]

    assert max(values("count(podium_agent_gpu_healthy)")) == 2
    assert set(values("sum(podium_operator_leader)")) == {1}
    assert max(values('podium_job_trials{job_name="digits", state="succeeded"}')) == 12
    assert max(values("podium_lost_work_total")) >= 1
    assert max(values('podium_refused_pods{namespace="small", cause="quota"}')) >= 1
    assert max(values('podium_job_suspensions{job_name="digits"}')) >= 6
    ratio = values("podium_agent_gpu_utilization_ratio")
    assert 0 <= min(ratio) <= max(ratio) <= 1


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_the_expression_of_an_alert_is_evaluated_on_the_run(recorded: Server, alert: alerts.Alert) -> None:
    """The run is too short for most alerts to fire. That of the quota holds until it is reached for ten minutes."""
    holds = bool(recorded.query(alert.expression))
    assert holds == (alert.name == "PodiumQuotaReached")

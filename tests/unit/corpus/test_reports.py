"""Public reports about other tools (reports.yaml): Podium does with the same input what the table states."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from podium_core.acceptance.findings import findings
from podium_core.curves.non_finite import diverged
from podium_core.logs.line_reader import line_reader
from podium_core.schema.job import Direction
from podium_core.schema.metrics.config import MetricsConfig
from podium_simulator.traces.csv_tables import read_table
from podium_simulator.traces.trace import TraceError, parse

sys.path.insert(0, str(Path(__file__).parents[1] / "schema"))

from bad_jobs import changed

ROOT = Path(__file__).parents[3]
REPORTS: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_suffix("").parent / "reports.yaml")
VERDICTS = {"read", "refused", "handled"}


def with_field(field: str) -> list[Any]:
    return [pytest.param(one, id=one["report"]) for one in REPORTS if field in one]


def test_each_report_has_a_verdict_and_is_tried_in_one_way() -> None:
    assert len({one["report"] for one in REPORTS}) == len(REPORTS) >= 15
    for one in REPORTS:
        assert one["verdict"] in VERDICTS
        assert len({"lines", "table", "curves", "job", "test"} & one.keys()) == 1, one["report"]


@pytest.mark.parametrize("report", with_field("lines"))
def test_lines(report: dict[str, Any]) -> None:
    fixed = {"direction": Direction.MAXIMIZE, "container": "train"}
    reader = line_reader(MetricsConfig.model_validate(report["reader"] | fixed))
    read = [[one.step, one.value] for line in report["lines"] for one in reader(line)]
    assert read == report["read"]


@pytest.mark.parametrize("report", with_field("table"))
def test_tables(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(report["table"].encode())
    said: list[str] = []
    trace = read_table(tmp_path / "table.csv", True, said.append)
    read = {trial.name: [None if diverged(value) else value for value in trial.values] for trial in trace.trials}
    assert read == report["read"]
    assert report.get("says", "") in "\n".join(said)


@pytest.mark.parametrize("report", with_field("curves"))
def test_curves(report: dict[str, Any]) -> None:
    with pytest.raises(TraceError) as refused:
        parse(report["curves"], "x.jsonl")
    assert report["says"] in str(refused.value)


@pytest.mark.parametrize("report", with_field("job"))
def test_jobs(report: dict[str, Any]) -> None:
    assert report["code"] in [one.code for one in findings(changed(report["job"])) if one.severity == "error"]


@pytest.mark.parametrize("report", with_field("test"))
def test_the_named_test_exists(report: dict[str, Any]) -> None:
    file, _, name = report["test"].partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

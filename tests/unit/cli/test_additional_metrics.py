"""Additional metrics in tables, sentences, the report and exported curves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from podium_cli.report import page
from podium_cli.views import summary
from podium_cli.views.explain import lines as explanation
from podium_cli.views.trials import trials_table
from podium_cli.views.watch import view
from podium_core.curves.additional_metrics import Extreme, MetricSummary
from podium_simulator.traces.trace import TraceError, load, parse, trace_lines
from podium_views.job_snapshot import JobSnapshot
from podium_views.model import build
from podium_views.trace import trace_of

Snapshot = Callable[..., JobSnapshot]
LOSS = {"metric": "loss", "step": 24, "latest": 0.125, "min": 0.11, "minStep": 22, "max": 2.5, "maxStep": 1}
EVIL = "<b>[red]\x1b"
EVIL_SHOWN = "<b>[red]"


@pytest.fixture
def beside(snapshot: Snapshot) -> Callable[..., JobSnapshot]:
    """The synthetic search with additional metrics; digits-9, its best trial, has printed `values`."""

    def build_it(names: list[str], *values: dict[str, Any]) -> JobSnapshot:
        changes = {
            "digits": {"spec": {"objective": {"additionalMetrics": names}}},
            "digits-9": {"status": {"additionalMetrics": list(values)}},
        }
        return snapshot(600, changes)

    return build_it


def printed(snapshot: JobSnapshot) -> list[list[str]]:
    out = StringIO()
    Console(file=out, width=10_000).print(trials_table(snapshot, "number"))
    return [line.split() for line in out.getvalue().splitlines()]


def test_each_metric_has_a_column_before_those_with_spaces(beside: Callable[..., JobSnapshot]) -> None:
    heads, *rows = printed(beside(["loss", "f1"], LOSS))
    assert heads[9:] == ["SUSPENSIONS", "loss", "f1", "PARAMETERS", "WHY"]
    shown = {row[0]: row[10:12] for row in rows}
    assert shown["digits-9"] == ["0.125", "–"]
    assert shown["digits-3"] == ["–", "–"]
    assert printed(beside([]))[0][9:] == ["SUSPENSIONS", "PARAMETERS", "WHY"]


@pytest.mark.parametrize(("metrics", "more"), [(True, ["loss", EVIL_SHOWN]), (False, [])])
def test_watch_shows_them_on_request(metrics: bool, more: list[str], beside: Callable[..., JobSnapshot]) -> None:
    out = StringIO()
    Console(file=out, width=200).print(view(beside(["loss", EVIL], LOSS), metrics=metrics))
    trace_lines = out.getvalue().splitlines()
    heads = next(line for line in trace_lines if line.split()[:2] == ["TRIAL", "PHASE"]).split()
    assert heads[7:] == [*more, "WHY"]
    best = next(line.split() for line in trace_lines if line.strip().startswith("digits-9 "))
    assert ("0.125" in best) is metrics


@pytest.mark.parametrize(
    ("observation", "sentence"),
    [
        (LOSS, "loss 0.125 at epoch 24 (lowest 0.11 at 22, highest 2.5 at 1)"),
        (LOSS | {"latest": "nan"}, "loss nan at epoch 24 (lowest 0.11 at 22, highest 2.5 at 1)"),
        ({"metric": "loss", "step": 24, "latest": "-inf"}, "loss -inf at epoch 24"),
    ],
)
def test_explain_and_summary_have_a_sentence(
    beside: Callable[..., JobSnapshot], observation: dict[str, Any], sentence: str
) -> None:
    seen = beside(["f1", "loss"], observation)
    trial = next(one for one in seen.trials if one.metadata.name == "digits-9")
    assert f"metric       {sentence}" in explanation(seen, trial)
    assert f"metric       {sentence}" in summary.lines(build(seen))


def test_the_report_has_a_column_for_each_and_escapes_names(beside: Callable[..., JobSnapshot]) -> None:
    html = page.render(build(beside(["loss", EVIL], LOSS, {"metric": EVIL, "step": 1, "latest": 7.25})))
    assert '<th scope="col" class="n">loss</th>' in html
    assert re.search(r'<td class="n">0\.125</td>\s*<td class="n">7\.25</td>', html)
    assert "<b>[red]" not in html
    assert "\x1b" not in html
    heads = printed(beside([EVIL], {"metric": EVIL, "step": 1, "latest": 7.25}))[0]
    assert "<b>[red]" in heads, "only Podium writes markup"


def test_exported_curves_keep_them_and_files_without_them_are_read(
    beside: Callable[..., JobSnapshot], tmp_path: Path
) -> None:
    found = trace_of(beside(["loss"], LOSS | {"latest": "inf"}))
    path = tmp_path / "digits.jsonl"
    path.write_text("".join(f"{line}\n" for line in trace_lines(found)))
    back = load(path)
    assert back == found
    expected = MetricSummary("loss", 24.0, float("inf"), Extreme(22.0, 0.11), Extreme(1.0, 2.5))
    assert {trial.name: trial.additional_metrics for trial in back.trials if trial.additional_metrics} == {
        "digits-9": (expected,)
    }
    older = [
        {key: value for key, value in json.loads(line).items() if key != "observations"} for line in trace_lines(found)
    ]
    assert [trial.additional_metrics for trial in parse(map(json.dumps, older), "x.jsonl").trials] == [()] * 12


@pytest.mark.parametrize("wrong", [7, [7], [{"metric": "loss"}], [LOSS | {"latest": "high"}]])
def test_invalid_metrics_are_refused_with_their_line(beside: Callable[..., JobSnapshot], wrong: Any) -> None:
    head, first, *_ = trace_lines(trace_of(beside(["loss"], LOSS)))
    with pytest.raises(TraceError, match=r"x\.jsonl, line 2: .* as in a trial's status"):
        parse([head, json.dumps(json.loads(first) | {"observations": wrong})], "x.jsonl")

"""A search with several objectives in the views: the front instead of a best trial."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console, RenderableType

from podium_cli.exit_codes import Exit
from podium_cli.main import run
from podium_cli.report import page
from podium_cli.samples import search_at
from podium_cli.views import jobs, summary, watch
from podium_cli.views.trials import trials_data, trials_table
from podium_views.job_snapshot import JobSnapshot
from podium_views.model import build
from podium_views.pareto import front as drawing
from podium_views.pareto import steps

Snapshot = Callable[..., JobSnapshot]
EXAMPLE = Path(__file__).parents[3] / "crds/examples/several-objectives.yaml"
PAIR = [{"metric": "val_acc", "direction": "maximize"}, {"metric": "podium.dev/gpu-seconds", "direction": "minimize"}]
FRONT = [
    {"trial": "digits-9", "step": 30.0, "values": [0.96, 41.5]},
    {"trial": "digits-1", "step": 30.0, "values": [0.81, 20.25]},
]


def several(snapshot: Snapshot, **changes: Any) -> JobSnapshot:
    spec = {"objective": None, "objectives": PAIR, "policy": {"name": "pareto"}, **changes}
    return snapshot(600, {"digits": {"spec": spec, "status": {"best": None, "paretoFront": FRONT}}})


def text_of(view: RenderableType) -> str:
    console = Console(file=StringIO(), width=240)
    console.print(view)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_header_and_the_lines_of_watch_show_the_front(snapshot: Snapshot) -> None:
    now = several(snapshot)
    shown = text_of(watch.header(now))
    assert "val_acc (maximize), podium.dev/gpu-seconds (minimize)" in shown
    assert "Pareto front of 2 trials: digits-9 0.96 / 41.5, digits-1 0.81 / 20.25" in shown
    assert "best" not in shown


def test_the_table_marks_the_trials_of_the_front(snapshot: Snapshot) -> None:
    lines = text_of(trials_table(several(snapshot), "number")).splitlines()
    column = lines[0].index("FRONT")
    marked = {line.split()[0] for line in lines[1:] if line[column : column + 3] == "yes"}
    assert marked == {"digits-1", "digits-9"}
    assert "FRONT" not in text_of(trials_table(snapshot(600), "number"))


def test_the_report_lists_the_front_with_its_parameters_and_draws_two_objectives(snapshot: Snapshot) -> None:
    report = build(several(snapshot))
    html = page.render(report)
    assert html.count("<h2>Pareto front</h2>") == 1
    assert "12 trials by val_acc and podium.dev/gpu-seconds; 2 in the Pareto front" in html
    assert "20.25" in html
    assert report.best is None
    assert {line.name for line in report.trials if line.level == 0} == {"digits-1", "digits-9"}
    assert "Pareto front" not in page.render(build(snapshot(600)))


def test_three_objectives_are_listed_and_not_drawn(snapshot: Snapshot) -> None:
    three = [*PAIR, {"metric": "size", "direction": "minimize"}]
    report = build(several(snapshot, objectives=three))
    assert drawing(report.several) == ""
    assert "size (minimize)" in page.render(report)


def test_the_border_of_the_front_has_a_corner_between_two_neighbours() -> None:
    assert steps([(9.0, 5.0), (4.0, 2.0)]) == [(9.0, 5.0), (4.0, 5.0), (4.0, 2.0)]
    assert steps([]) == []


def test_the_summary_names_the_objectives_and_the_front(snapshot: Snapshot) -> None:
    report = build(several(snapshot))
    lines = summary.lines(report)
    assert "objectives   val_acc (maximize), podium.dev/gpu-seconds (minimize)" in lines
    assert any(line.startswith("front        Pareto front of 2 trials: digits-9") for line in lines)
    assert summary.last_line(report, "x.html").endswith("digits-1 0.81 / 20.25; report: x.html")


@pytest.mark.parametrize("later", [[], FRONT[:1]])
def test_a_line_is_printed_when_the_front_changes(snapshot: Snapshot, later: list[dict[str, Any]]) -> None:
    now = several(snapshot)
    other = snapshot(
        600, {"digits": {"spec": {"objective": None, "objectives": PAIR}, "status": {"paretoFront": later}}}
    )
    assert any("Pareto front of 2 trials" in line for line in watch.changes(other, now))
    assert not any("Pareto front" in line for line in watch.changes(now, now))


def test_programs_get_the_objectives_and_the_front(snapshot: Snapshot) -> None:
    now = several(snapshot)
    rows = {row["name"]: row["front"] for row in trials_data(now, "number")["items"]}
    assert rows["digits-9"] == [0.96, 41.5]
    assert rows["digits-2"] is None
    assert "front" not in trials_data(snapshot(600), "number")["items"][0]
    (row,) = jobs.data([now.job])["items"]
    assert row["objectives"] == PAIR
    assert row["paretoFront"] == FRONT
    assert row["best"] is None
    assert "metric" not in row
    assert "front of 2" in text_of(jobs.table([now.job], now.now))


def test_there_is_no_best_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"objective": None, "objectives": PAIR, "policy": {"name": "pareto"}}
    objects = search_at(600)
    search = next(one for one in objects if one["kind"] == "HyperParamJob")
    search["spec"] |= spec
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": objects}))
    assert run(["best", "--from-files", str(tmp_path)]) is Exit.FAILED
    error = capsys.readouterr().err
    assert "SeveralObjectives: job digits has several objectives (val_acc, podium.dev/gpu-seconds)" in error
    assert "`podium get trials digits` marks the trials of the Pareto front" in error


def test_a_forecast_of_several_objectives_is_refused_and_the_cure_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLE.read_text()
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert run(["plan", str(path), "--seeds", "1", "--step-seconds", "1"]) is Exit.FAILED
    error = capsys.readouterr().err
    assert f"SeveralObjectives: {path}: spec.objectives lists 2" in error
    cure = re.search(r"(objective: \{.*?\}) and (policy: \{.*?\}) instead", error)
    assert cure is not None
    job = yaml.safe_load(text)
    del job["spec"]["objectives"]
    job["spec"] |= yaml.safe_load(cure[1]) | yaml.safe_load(cure[2])
    path.write_text(yaml.safe_dump(job))
    assert run(["plan", str(path), "--seeds", "1", "--step-seconds", "1"]) is Exit.OK
    assert "under fifo" in capsys.readouterr().out


def test_a_replay_of_the_pareto_policy_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--policy", "pareto:warmup=2"]) is Exit.USAGE
    error = capsys.readouterr().err
    assert "PolicyForSeveralObjectives: --policy pareto:warmup=2: it ranks trials by several objectives" in error
    assert "choose one of: asha, " in error

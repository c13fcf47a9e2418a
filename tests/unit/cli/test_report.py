"""The report: figures, structure, and that nothing in it can reach out or run."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from podium_cli.main import run
from podium_cli.report import page
from podium_cli.report.simulation import TaskSection
from podium_cli.views import summary
from podium_views import charts, svg
from podium_views.job_snapshot import JobSnapshot
from podium_views.model import build, percentile
from podium_views.template import render

Snapshot = Callable[..., JobSnapshot]
EVIL = "<script>alert(1)</script>\"'&\x00\x1b"


class Structure(HTMLParser):
    """Elements by name, their attributes, and whether each that opens is closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def count(self, tag: str, class_: str | None = None) -> int:
        classes = [(attrs.get("class") or "").split() for name, attrs in self.found if name == tag]
        return sum(class_ is None or class_ in one for one in classes)


def read(html: str) -> Structure:
    structure = Structure()
    structure.feed(html)
    structure.close()
    assert structure.open == []
    return structure


def test_the_whole_report_of_a_finished_search(snapshot: Snapshot) -> None:
    report = build(snapshot(600))
    structure = read(page.render(report))
    assert structure.count("path", "curve") == 12 + 1  # a curve for each trial, and best so far
    assert structure.count("rect", "bar") == sum(len(lane.allocations) for lane in report.lanes)
    assert structure.count("rect", "lane") == 2
    assert structure.count("tr") == 13
    assert structure.count("svg") == 3 + 4  # curves, GPUs, best so far, one scatter plot for each parameter
    text = " ".join(structure.text)
    for text_ in ("digits-9", "0.9612", "12 / 12", "training", "switching", "idle", "node-a/0", "Completed"):
        assert text_ in text
    assert all(attrs.get("aria-label") for name, attrs in structure.found if name == "svg")
    assert any(attrs.get("lang") == "en" for name, attrs in structure.found if name == "html")


def test_nothing_is_loaded_and_nothing_can_run(snapshot: Snapshot) -> None:
    html = page.render(build(snapshot(600)))
    structure = read(html)
    names = {name for name, _ in structure.found}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"})
    for _, attrs in structure.found:
        assert not any(key.startswith("on") or key in ("src", "href", "xlink:href") for key in attrs)
    for reach in ("http:", "https:", "//", "url(", "@import", "javascript:"):
        assert reach not in html.replace("<!doctype html>", "")
    assert "default-src 'none'" in html


def test_the_report_links_to_the_live_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A token in the address is a secret, so it is left out."""
    file = tmp_path / "x.html"

    def shown(*words: str) -> str:
        assert run(["report", "--sample", "-o", str(file), *words]) == 0, capsys.readouterr().err
        return file.read_text()

    assert "Live page" not in shown()
    html = shown("--dashboard", "https://podium.example.com/gpu/?token=secret")
    assert 'href="https://podium.example.com/gpu/searches/default/digits"' in html
    assert "secret" not in html


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "podium.example.com", "http://", "https://user:secret@a", "http://["]
)
def test_an_address_that_is_none_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--sample", "--dashboard", address]) == 2
    assert "not the address of a dashboard" in capsys.readouterr().err


def test_a_command_for_the_live_page_is_shown_as_text(snapshot: Snapshot) -> None:
    html = page.render(build(snapshot(600)), "podium dashboard '<b>'")
    assert "Live page: <code>podium dashboard &#39;&lt;b&gt;&#39;</code>" in html


def test_all_text_of_users_and_trials_is_escaped(snapshot: Snapshot) -> None:
    """The test sets every string that a tenant or a trial can choose."""
    changes = {
        "digits": {
            "spec": {"objective": {"metric": EVIL}, "metrics": {"stepKey": EVIL}},
            "status": {"reason": EVIL, "message": EVIL, "best": {"parameters": {EVIL: EVIL}}},
        },
        "digits-9": {"spec": {"parameters": {"activation": EVIL}}, "status": {"reason": EVIL, "message": EVIL}},
        "node-a": {"status": {"driver": EVIL}},
    }
    html = page.render(build(snapshot(600, changes)))
    structure = read(html)
    assert structure.count("script") == 0
    assert "<script" not in html
    assert "\x00" not in html
    assert "\x1b" not in html
    assert "<script>alert(1)</script>" in "".join(structure.text)  # shown as text


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("schedule.html.j2", {"method": EVIL, "summary": EVIL, "gantt": svg.drawing(1, 1, EVIL, svg.text(0, 0, EVIL))}),
        (
            "simulation.html.j2",
            {
                "colours": 10,
                "tasks": [
                    TaskSection(
                        name=EVIL,
                        metric=EVIL,
                        heading=EVIL,
                        columns=[EVIL],
                        rows=[[EVIL, EVIL]],
                        policies=[EVIL],
                        stairs=svg.drawing(1, 1, EVIL, svg.title(EVIL)),
                        regret=svg.drawing(1, 1, EVIL),
                        overhead=svg.drawing(1, 1, EVIL),
                        gantts=[(EVIL, svg.drawing(1, 1, EVIL))],
                    )
                ],
            },
        ),
    ],
)
def test_the_other_pages_escape_text_too(template: str, values: dict[str, object]) -> None:
    html = render("podium_cli.report", template, **values)
    structure = read(html)
    assert structure.count("script") == 0
    assert "<script" not in html
    assert "\x00" not in html
    assert "\x1b" not in html
    assert "<script>alert(1)</script>" in "".join(structure.text)
    assert any("<script>" in (attrs.get("aria-label") or "") for _, attrs in structure.found)


def test_a_missing_value_of_a_template_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("podium_cli.report", "schedule.html.j2", method="heft")


def test_the_drawings_are_well_formed_xml(snapshot: Snapshot) -> None:
    report = build(snapshot(600))
    drawings = [charts.curves(report), charts.gantt(report), charts.best_so_far(report)]
    for drawing in [*drawings, *(drawn for _, drawn in charts.scatters(report))]:
        root = ElementTree.fromstring(drawing)
        width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
        for circle in root.iter("circle"):
            assert 0 <= float(circle.attrib["cx"]) <= width
            assert 0 <= float(circle.attrib["cy"]) <= height
        for rect in root.iter("rect"):
            assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width + 0.01


@pytest.mark.parametrize("elapsed", [0, 0.5, 3, 7, 60, 150])
def test_a_report_at_any_moment(snapshot: Snapshot, elapsed: float) -> None:
    report = build(snapshot(elapsed))
    read(page.render(report))
    assert any("still Running" in warning for warning in report.warnings)
    assert report.use.training >= 0
    assert "\n".join(summary.lines(report))


def test_a_job_without_trials(snapshot: Snapshot) -> None:
    bare = snapshot(0)
    empty = JobSnapshot(bare.job.model_copy(update={"status": type(bare.job.status)()}), (), (), bare.now)
    structure = read(page.render(build(empty)))
    assert structure.count("svg") == 0
    assert "No trial has reported val_acc yet." in " ".join(structure.text)


def test_gpu_seconds_add_up_to_the_time_of_the_gpus(snapshot: Snapshot) -> None:
    report = build(snapshot(600))
    assert report.use.total == pytest.approx(2 * report.period.span)
    held = sum(allocation.end - allocation.start for lane in report.lanes for allocation in lane.allocations)
    assert report.use.training + report.use.switching == pytest.approx(held)


def test_gpu_seconds_without_the_operators_sum(snapshot: Snapshot) -> None:
    reported = build(snapshot(600)).use
    counted = build(snapshot(600, {"digits": {"status": {"gpuSeconds": {"training": 0, "switching": 0}}}})).use
    assert counted.training == pytest.approx(reported.training)
    assert counted.switching == pytest.approx(reported.switching)


def test_a_gpu_has_one_holder_at_a_time(snapshot: Snapshot) -> None:
    for lane in build(snapshot(600)).lanes:
        for before, after in zip(lane.allocations, lane.allocations[1:], strict=False):
            assert before.end <= after.start + 1e-9


def test_best_so_far_only_gets_better(snapshot: Snapshot) -> None:
    values = [found.value for found in build(snapshot(600)).improvements]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(0.9612, abs=1e-4)


def test_minimizing_reverses_every_order(snapshot: Snapshot) -> None:
    flipped = {"digits": {"spec": {"objective": {"direction": "minimize"}}, "status": {"best": None}}}
    report = build(snapshot(600, flipped))
    values = [found.value for found in report.improvements]
    assert values == sorted(values, reverse=True)
    assert report.best is not None
    assert report.best.best == min(line.best for line in report.trials if line.best is not None)


def test_a_diverged_trial_does_not_flatten_the_others(snapshot: Snapshot) -> None:
    worst = -1.7976931348623157e308
    points = [{"step": 1, "value": 0.5, "time": 1768469410.0}, {"step": 2, "value": worst, "time": 1768469411.0}]
    changes = {"digits-2": {"status": {"curve": {"points": points}, "best": {"step": 2, "value": worst}}}}
    report = build(snapshot(600, changes))
    html = page.render(report)
    assert "diverged" in html
    assert "e+308" not in html
    assert "nan" not in charts.curves(report)


def test_missing_trials_and_long_histories_are_reported(snapshot: Snapshot) -> None:
    allocation = {"gpus": ["GPU-x"], "node": "n", "start": "2026-01-15T09:30:00Z", "end": "2026-01-15T09:30:01Z"}
    changes = {
        "digits": {"status": {"trials": {"created": 15}}},
        "digits-1": {"status": {"allocations": [allocation] * 512}},
    }
    warnings = build(snapshot(600, changes)).warnings
    assert any("3 of 15 trials were deleted: they are" in warning for warning in warnings)
    one = build(snapshot(600, {"digits": {"status": {"trials": {"created": 13}}}})).warnings
    assert one == ("1 of 13 trials was deleted: it is missing from every chart and sum.",)
    assert any("512" in warning for warning in warnings)


def test_the_summary(snapshot: Snapshot) -> None:
    report = build(snapshot(600))
    lines = summary.lines(report)
    heads = [line.split()[0] for line in lines]
    assert heads == ["job", "best", "parameters", "trials", "GPU-seconds", "suspensions"]
    assert lines[1].split()[1] == "digits-9"
    assert "p50" in lines[5]
    last = summary.last_line(report, "podium-report.html")
    assert last.startswith("best trial digits-9: val_acc 0.9612 at epoch 24 with lr=")
    assert last.endswith("; report: podium-report.html")


@pytest.mark.parametrize(
    ("values", "fraction", "expected"),
    [
        ([], 0.5, None),
        ([3.0], 0.99, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),
        (list(map(float, range(1, 101))), 0.99, 99.0),
    ],
)
def test_percentile_is_a_value_that_was_measured(values: list[float], fraction: float, expected: float | None) -> None:
    assert percentile(values, fraction) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (3, 3, [3]), (0.1, 0.98, [0.2, 0.4, 0.6, 0.8]), (-5, 5, [-4, -2, 0, 2, 4])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert svg.ticks(low, high) == expected


HUGE = 1.7e308


def test_drawn_values_may_be_as_large_as_floats() -> None:
    assert svg.value_range([-HUGE, 0.0, HUGE]) == (-sys.float_info.max, sys.float_info.max)
    assert svg.ticks(-HUGE, HUGE) == [-1e308, 0.0, 1e308]
    scale = svg.Scale(-HUGE, HUGE, 0.0, 100.0)
    assert [scale(at) for at in (-HUGE, 0.0, HUGE, math.inf)] == [0.0, 50.0, 100.0, 100.0]
    assert svg.Scale(0.0, 5e-324, 0.0, 100.0)(0.0) == 50.0
    assert svg.log_ticks(1e307, HUGE) == pytest.approx([1e307, 1e308])


def test_log_ticks() -> None:
    assert svg.log_ticks(1e-4, 1e-1) == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1])
    assert svg.log_ticks(0.02, 0.09) == pytest.approx([0.02, 0.05])


def test_outliers_do_not_flatten_the_rest() -> None:
    low, high = svg.value_range([0.1, 0.2, 0.3, 0.4, 0.5, 1e9])
    assert low < 0.1
    assert high < 10

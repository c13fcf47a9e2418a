"""Why a line yields no value: the reasons never contradict the reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.logs.explain import MAX_KEPT, MAX_SHOWN, ExplainedReader, reason_of, shown
from podium_core.schema.metrics.config import MetricsConfig


def config(form: str, **more: object) -> MetricsConfig:
    settings = {"metric": "val_acc", "direction": "maximize", "stepKey": "epoch", "container": "train", "format": form}
    return MetricsConfig.model_validate(settings | more)


@pytest.mark.parametrize(
    ("form", "line", "words"),
    [
        ("text", "val_acc=1,234 done", "val_acc is followed by '1,234 done', which is not a number with one meaning"),
        (
            "text",
            "best val_acc: 0.95",
            "val_acc is a best, target or earlier value on this line, not the value of a step",
        ),
        ("text", "val_acc went up", "val_acc is not followed by = or :"),
        ("json", "val_acc=0.5", "the line holds no JSON object; metrics.format is json"),
        ("json", '{"val_acc": 0.5', "the JSON object does not end on this line, or its brackets do not match"),
        ("json", '{"val_acc": "high"}', "val_acc is not a key of the JSON object, or its value is not a number: 'high"),
        ("huggingface", "{'val_acc': [1, 2]}", "val_acc is not a key of the dictionary, or its value is not a number"),
    ],
)
def test_the_reason_names_what_is_wrong(form: str, line: str, words: str) -> None:
    assert words in str(reason_of(line, config(form)))


def test_a_filter_that_misses_the_metric() -> None:
    assert "metrics.filter does not find val_acc" in str(
        reason_of("val_acc=0.5", config("text", filter=r"(?P<name>\w+) is (?P<value>.*)"))
    )


def test_a_line_without_the_metric_has_no_reason() -> None:
    assert reason_of("epoch 3 of 10", config("text")) is None
    assert reason_of("best_val_acc=high val_acc_top5=high", config("text")) is None, "these are other names"


def test_a_report_of_a_log() -> None:
    log = ["start", "epoch=1 val_acc=0.5", *["val_acc=high"] * 9, "", "epoch=2 val_acc=0.6", "end"]
    reader = ExplainedReader(config("text"))
    for line in log:
        reader(line)
    report = reader.report()
    assert report.lines == len(log)
    assert [(one.number, one.parsed[0].step, one.parsed[0].value) for one in report.read] == [(2, 1, 0.5), (13, 2, 0.6)]
    assert (report.read_count, report.lines) == (2, len(log))
    assert (report.unread_count, len(report.unread)) == (9, MAX_KEPT)
    assert report.last[-2:] == ("epoch=2 val_acc=0.6", "end")


@given(st.text(), st.sampled_from(["json", "huggingface", "text"]))
def test_a_line_is_shown_as_one_printable_line(text: str, form: str) -> None:
    assert shown(text).isprintable()
    assert len(shown(text)) <= MAX_SHOWN
    reason_of(f"{text}val_acc{text}", config(form))

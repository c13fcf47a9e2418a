"""Additional metrics from a trial's log to its status: what is kept of them, and that the objective never notices."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from agent_builders import pod
from hypothesis import example, given
from hypothesis import strategies as st

from podium_agent.report.trial_record import TrialRecord
from podium_agent.report.trial_status import position_from, to_status
from podium_core.attempts.trial_status import curve_from
from podium_core.attempts.usage_ledger import UsageLedger
from podium_core.curves.additional_metrics import Extreme, MetricSummary, from_status
from podium_core.curves.growing_curve import Curve, extend
from podium_core.curves.thinning import Grid
from podium_core.logs.line_reader import Reader, line_reader
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.schema.trial import TrialStatus
from podium_core.sources.batch import Batch, LogLine, Position

GRID = Grid(maximize=True)
NAMES = ("loss", "f1")
NAN = math.nan


def reads(form: str, additional: Sequence[str] = NAMES) -> Reader:
    about = {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "container": "train"}
    return line_reader(MetricsConfig.model_validate(about | {"format": form, "additional": additional}))


def lines_of(texts: Sequence[str]) -> list[LogLine]:
    return [LogLine(float(n), "stdout", text, n, n + 1) for n, text in enumerate(texts)]


def observed(form: str, *texts: str) -> dict[str, MetricSummary]:
    return {one.metric: one for one in extend(Curve(), lines_of(texts), reads(form), GRID).additional_metrics}


numbers = st.one_of(st.floats(-5, 5), st.integers(-2, 2).map(float), st.sampled_from([NAN, math.inf, -math.inf]))
records = st.fixed_dictionaries(
    {}, optional={"epoch": st.integers(0, 6), "acc": numbers, "loss": numbers, "f1": numbers}
)


def printed(record: dict[str, float], form: str) -> str:
    if form == "text":
        return " ".join(f"{name}={value}" for name, value in record.items())
    return json.dumps(record) if form == "json" else str(record)


FORMS = st.sampled_from(["json", "text", "huggingface"])
logs = st.tuples(FORMS, st.lists(records, max_size=12)).map(
    lambda log: (log[0], [printed(one, log[0]) for one in log[1]])
)


@given(logs)
def test_the_objectives_curve_is_the_same_whatever_else_is_read(log: tuple[str, list[str]]) -> None:
    form, texts = log
    alone = extend(Curve(), lines_of(texts), reads(form, ()), GRID)
    beside = extend(Curve(), lines_of(texts), reads(form), GRID)
    assert (beside.points, beside.last_step, beside.last_value) == (alone.points, alone.last_step, alone.last_value)
    assert (beside.step_pending, beside.current_step, beside.repeated, beside.diverged, beside.lines) == (
        (alone.step_pending, alone.current_step, alone.repeated, alone.diverged, alone.lines)
    )
    assert alone.additional_metrics == ()


@given(st.lists(st.tuples(st.integers(0, 9), numbers), min_size=1, max_size=20), FORMS)
def test_latest_lowest_and_highest_are_those_of_the_whole_log(values: list[tuple[int, float]], form: str) -> None:
    texts = [printed({"epoch": step, "loss": value}, form) for step, value in values]
    newest = -1
    counted = [(step, value) for step, value in values if step >= newest and (newest := step) >= 0]
    finite = [one for one in counted if math.isfinite(one[1])]
    found = observed(form, *texts)["loss"]
    assert repr((found.step, found.latest)) == repr((float(counted[-1][0]), float(counted[-1][1])))
    lowest = min(finite, key=lambda one: one[1], default=None)  # the first of several, as max
    highest = max(finite, key=lambda one: one[1], default=None)
    assert found.low == (None if lowest is None else Extreme(*lowest))
    assert found.high == (None if highest is None else Extreme(*highest))


@given(logs, st.sets(st.integers(0, 12)))
@example(("text", ["epoch=1", "acc=0.0", "epoch=0 f1=0.0 acc=0.0", "loss=0.0"]), {1, 2})  # the counter starts again
@example(("text", ["epoch=2", "epoch=2 f1=1.0 acc=0.0", "epoch=0 acc=0.0", "acc=0.0 f1=0.0"]), {1, 2})
@example(("text", ["epoch=1 acc=0.0", "acc=0.0", "epoch=2", "epoch=0 loss=0.0 acc=0.0", "acc=0.0 f1=0.0"]), {3})
def test_an_agent_that_dies_anywhere_changes_nothing(log: tuple[str, list[str]], deaths: set[int]) -> None:
    """Each begins with what the one before wrote: the status and, in it, the line to read on from."""
    form, texts = log
    lines, one = lines_of(texts), pod()
    status = TrialStatus()
    for until in [*sorted(deaths), len(lines)]:
        trial_record = TrialRecord(one, "n")
        position = position_from(status, one.uid, "train")
        trial_record.load(UsageLedger(), curve_from(status, None, continues=position != Position()), position)
        trial_record.add_lines(
            Batch(tuple(lines[position.offset : until]), Position("0.log", "f", until), False), reads(form), GRID
        )
        written = json.dumps(to_status(trial_record, UsageLedger(), "train", 0.0), allow_nan=False)
        status = TrialStatus.model_validate(json.loads(written))
    whole = extend(Curve(), lines, reads(form), GRID)
    assert repr(sorted(from_status(status.additional_metrics), key=repr)) == repr(
        sorted(whole.additional_metrics, key=repr)
    )
    assert [point.step for point in status.curve.points] == [point.step for point in whole.points]


@pytest.mark.parametrize(
    ("form", "texts", "step"),
    [
        ("json", ['{"acc": 1}', '{"loss": 2}'], 1),  # of the last value
        ("json", ['{"epoch": 7, "acc": 1, "loss": 2}'], 7),
        ("json", ['{"acc": 1, "loss": 2}', '{"acc": 1, "loss": 2}'], 2),  # counted with the objective
        ("json", ['{"loss": 2}'], 0),
        ("text", ["epoch=4", "loss=2", "acc=1"], 4),  # announced
        ("text", ["epoch=4", "acc=1", "loss=2"], 4),
    ],
)
def test_the_step_of_a_value_that_was_printed_without_one(form: str, texts: list[str], step: float) -> None:
    found = observed(form, *texts)["loss"]
    assert (found.step, found.latest) == (step, 2.0)


def test_steps_repeated_after_a_requeue_do_not_count_again() -> None:
    log = [{"epoch": n, "acc": 0.5, "loss": loss} for n, loss in ((1, 3.0), (2, 2.0), (3, 1.0), (1, 9.0), (3, 1.5))]
    found = observed("json", *map(json.dumps, log))["loss"]
    assert (found.step, found.latest, found.low, found.high) == (3.0, 1.5, Extreme(3.0, 1.0), Extreme(1.0, 3.0))


def test_announced_steps_repeated_after_a_requeue_do_not_count_again() -> None:
    texts = ["epoch=1", "loss=3", "acc=0.5", "epoch=2", "acc=0.6", "loss=2"]
    before = extend(Curve(), lines_of(texts), reads("text"), GRID)
    fresh = replace(before, awaiting_first_value=True, step_pending=None)
    again = extend(fresh, lines_of(("epoch=1", "loss=9", "acc=0.5", "loss=8")), reads("text"), GRID)
    assert again.additional_metrics == before.additional_metrics


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, NAN], {"latest": "nan", "min": 0.5, "minStep": 1.0, "max": 0.5, "maxStep": 1.0}),
        ([-math.inf], {"latest": "-inf"}),
        ([math.inf, 2.0], {"latest": 2.0, "min": 2.0, "minStep": 2.0, "max": 2.0, "maxStep": 2.0}),
    ],
)
def test_a_non_finite_value_is_reported_as_it_is(values: list[float], expected: dict[str, Any]) -> None:
    trial_record = TrialRecord(pod(), "n")
    texts = [json.dumps({"epoch": n, "loss": value}) for n, value in enumerate(values, start=1)]
    trial_record.load(UsageLedger(), Curve(), Position())
    trial_record.add_lines(Batch(tuple(lines_of(texts)), Position(), False), reads("json"), GRID)
    assert to_status(trial_record, UsageLedger(), "train", 0.0)["additionalMetrics"] == [
        {"metric": "loss", "step": float(len(values))} | expected
    ]
    assert trial_record.writing.version == 1, "worth a patch, although the objective said nothing"


def test_a_trial_without_additional_metrics_writes_none() -> None:
    """A CRD of an older version knows no such field, and the API server would refuse the whole status."""
    assert "additionalMetrics" not in to_status(TrialRecord(pod(), "n"), UsageLedger(), "train", 0.0)

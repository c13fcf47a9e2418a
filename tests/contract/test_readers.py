"""What every reader of a trial's output keeps to: the same record in its own spelling says the same, of the objective
and of additional metrics; other lines say nothing, and no line ends it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.curves.line_readers import AdditionalValue, ParsedLine, Reader, line_reader
from podium_core.schema.metrics_config import MetricsConfig

Record = Mapping[str, float]
SPELLED: dict[str, Callable[[Record], str]] = {
    "json": json.dumps,
    "huggingface": lambda record: str(dict(record)),
    "text": lambda record: ", ".join(f"{name}: {value}" for name, value in record.items()),
}
EACH = pytest.mark.parametrize("form", SPELLED)
NAMES = ("loss", "eval/f1")
NUMBERS = st.one_of(st.floats(), st.integers(-(10**20), 10**20))
RECORDS = st.fixed_dictionaries(
    {"epoch": st.integers(0, 10**6), "acc": NUMBERS},
    optional={"loss": NUMBERS, "eval/f1": NUMBERS, "lr": NUMBERS, "macc": NUMBERS},
)


def reads(form: str) -> Reader:
    about = {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "container": "train"}
    return line_reader(MetricsConfig.model_validate(about | {"format": form, "additional": NAMES}))


def said(seen: list[ParsedLine]) -> tuple[object, ...]:
    """To be compared: NaN is not equal to itself, and the order of additional metrics on a line means nothing."""
    return tuple(
        (repr(one.step), repr(one.value), sorted(one.additional, key=lambda o: o.metric).__repr__()) for one in seen
    )


@EACH
@given(record=RECORDS, before=st.sampled_from(["", "INFO train ", "33%|## | 1/3 [00:10<00:20]", "\r 7%\r"]))
def test_one_record_is_read_as_what_it_is(form: str, record: dict[str, float], before: str) -> None:
    step = float(record["epoch"])
    others = [AdditionalValue(name, step, float(record[name])) for name in NAMES if name in record]
    expected = [ParsedLine(step, float(record["acc"]), tuple(others))]
    assert said(reads(form)(before + SPELLED[form](record))) == said(expected)


@EACH
@given(st.one_of(st.text(), st.text("{}[]'\":,=acloss0123 .-\r", max_size=40)))
def test_no_line_ends_the_reader(form: str, line: str) -> None:
    for seen in reads(form)(line):
        assert (seen.step, seen.value, seen.additional) != (None, None, ()), "a line that says nothing gives nothing"
        assert all(other.metric in NAMES and isinstance(other.value, float) for other in seen.additional)


@EACH
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_read_as_what_it_is(form: str, value: float) -> None:
    (seen,) = reads(form)(SPELLED[form]({"epoch": 2, "acc": value, "loss": value}))
    assert repr((seen.value, seen.additional[0].value)) == repr((value, value))


@EACH
def test_many_metrics_on_a_line_are_no_more_than_were_asked_for(form: str) -> None:
    record = {"epoch": 1, "acc": 0.5} | {f"m{number}": 1.0 for number in range(10_000)} | {"loss": 2.0}
    (seen,) = reads(form)(SPELLED[form](record))
    assert seen == ParsedLine(1.0, 0.5, (AdditionalValue("loss", 1.0, 2.0),))

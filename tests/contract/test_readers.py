"""Contract of every reader of a trial's output.

The same record in any format yields the same objective and additional metrics. Other lines yield nothing, and no line
makes a reader fail.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.logs.line_reader import AdditionalValue, ParsedLine, Reader, line_reader
from podium_core.schema.metrics.config import MetricsConfig

Record = Mapping[str, float]
FORMATS: dict[str, Callable[[Record], str]] = {
    "json": json.dumps,
    "huggingface": lambda record: str(dict(record)),
    "text": lambda record: ", ".join(f"{name}: {value}" for name, value in record.items()),
}
EACH_FORMAT = pytest.mark.parametrize("form", FORMATS)
NAMES = ("loss", "eval/f1")
NUMBERS = st.one_of(st.floats(), st.integers(-(10**20), 10**20))
RECORDS = st.fixed_dictionaries(
    {"epoch": st.integers(0, 10**6), "acc": NUMBERS},
    optional={"loss": NUMBERS, "eval/f1": NUMBERS, "lr": NUMBERS, "macc": NUMBERS},
)


def make_reader(form: str) -> Reader:
    settings = {"metric": "acc", "direction": "maximize", "stepKey": "epoch", "container": "train"}
    return line_reader(MetricsConfig.model_validate(settings | {"format": form, "additional": NAMES}))


def comparable(seen: list[ParsedLine]) -> tuple[object, ...]:
    """Return values to compare: NaN is not equal to itself, and the order of additional metrics is irrelevant."""
    return tuple(
        (repr(one.step), repr(one.value), sorted(one.additional, key=lambda o: o.metric).__repr__()) for one in seen
    )


@EACH_FORMAT
@given(record=RECORDS, before=st.sampled_from(["", "INFO train ", "33%|## | 1/3 [00:10<00:20]", "\r 7%\r"]))
def test_a_record_is_read_with_its_step_and_values(form: str, record: dict[str, float], before: str) -> None:
    step = float(record["epoch"])
    others = [AdditionalValue(name, step, float(record[name])) for name in NAMES if name in record]
    expected = [ParsedLine(step, float(record["acc"]), tuple(others))]
    assert comparable(make_reader(form)(before + FORMATS[form](record))) == comparable(expected)


@EACH_FORMAT
@given(st.one_of(st.text(), st.text("{}[]'\":,=acloss0123 .-\r", max_size=40)))
def test_no_line_makes_the_reader_fail(form: str, line: str) -> None:
    for seen in make_reader(form)(line):
        assert (seen.step, seen.value, seen.additional) != (None, None, ()), "a line without values must yield nothing"
        assert all(other.metric in NAMES and isinstance(other.value, float) for other in seen.additional)


@EACH_FORMAT
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_read_as_such(form: str, value: float) -> None:
    (seen,) = make_reader(form)(FORMATS[form]({"epoch": 2, "acc": value, "loss": value}))
    assert repr((seen.value, seen.additional[0].value)) == repr((value, value))


@EACH_FORMAT
def test_only_the_requested_metrics_of_a_line_are_read(form: str) -> None:
    record = {"epoch": 1, "acc": 0.5} | {f"m{number}": 1.0 for number in range(10_000)} | {"loss": 2.0}
    (seen,) = make_reader(form)(FORMATS[form](record))
    assert seen == ParsedLine(1.0, 0.5, (AdditionalValue("loss", 1.0, 2.0),))

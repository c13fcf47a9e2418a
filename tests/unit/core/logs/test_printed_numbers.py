"""Numbers as scripts print them: read with their one meaning, or not at all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_core.logs.printed_numbers import LONGEST, number_of_text, printed_number

READ = [
    ("0.81", 0.81),
    ("0.81.", 0.81),
    ("0.81...", 0.81),
    ("0.81, loss", 0.81),
    ("0.81; next", 0.81),
    ("5. Next", 5.0),
    ("-1.5e-3", -1.5e-3),
    ("\u22120.5", -0.5),
    (".5", 0.5),
    ("0,73", 0.73),
    ("12,5 ", 12.5),
    ("1,2345", 1.2345),
    ("1,234.5", 1234.5),
    ("1.234,5", 1234.5),
    ("1,234,567", 1234567.0),
    ("1'234.5", 1234.5),
    ("1_000", 1000.0),
    ("1\u202f234,5", 1234.5),
    ("81%", 81.0),
    ("81 %", 81.0),
    ("12.5ms", 12.5),
    ("0.5s/it", 0.5),
    ("nan", math.nan),
    ("NaN.", math.nan),
    ("-inf", -math.inf),
    ("Infinity,", math.inf),
    ("np.float64(0.81)", 0.81),
    ("numpy.float32(nan)", math.nan),
    ("tensor(0.71, device='cuda:0')", 0.71),
    ("tensor([0.71], device='cuda:0')", 0.71),
    ("tensor(0.71, grad_fn=<NllLossBackward0>)", 0.71),
    ("Array(0.5, dtype=float32)", 0.5),
    ("Decimal('0.81')", 0.81),
    ("'0.81'", 0.81),
    ("[0.81]", 0.81),
    ("3 of 10", 3.0),
    ("0.5 / loss", 0.5),
    ("0.5 -> saved", 0.5),
    ("0.5 x 3", 0.5),
    ("0.5 m1: 0.6", 0.5),
    ("12.3ms 100", 12.3),
]
REFUSED = [
    "",
    "high",
    "nanoseconds",
    "nan_count",
    "infinite",
    "information",
    "1,234",  # decimal comma or thousands
    "1.234.567",  # a version or thousands
    "1 234.5",
    "1 234",
    "0,81,5",
    "0.5,0.6",
    "3/10",
    "10:30:00",
    "2026-11-26",
    "0x1F",
    "0xff",
    "1.2k",
    "5GiB",
    "5G",
    "0.5e",
    "10^3",
    "2*3",
    "0.5-0.7",
    "9912 / 10000",
    "0.345 --> 0.321",
    "0.345\u21920.321",
    "inf -> 0.321",
    "1.5 x 10^-3",
    "1.5 \u00d7 10\u207b\u00b3",
    "1m30s",
    "1h 2m",
    "1 min 30 s",
    "512 MB",
    "1.5 GiB",
    "0.5+0.2j",
    "[0.1, 0.2]",
    "tensor([0.1, 0.2])",
    "max(0.3, 0.5)",
    "'0.81",
    "3_a",
]


@pytest.mark.parametrize(("text", "value"), READ)
def test_a_number_with_one_meaning_is_read(text: str, value: float) -> None:
    found = printed_number(text)
    assert found is not None
    assert repr(found.value) == repr(value)


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_without_one_meaning_yields_no_number(text: str) -> None:
    assert printed_number(text) is None


@pytest.mark.parametrize(("text", "value"), [("3/10", 3.0), ("1,000", 1000.0), ("1,000,000", 1e6), ("00012: x", 12.0)])
def test_a_counter_may_show_its_end_and_separate_thousands(text: str, value: float) -> None:
    found = printed_number(text, counter=True)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize("text", ["0,73", "1,5", "2026-11-26", "10:30"])
def test_a_counter_has_no_decimal_comma(text: str) -> None:
    assert printed_number(text, counter=True) is None


@given(st.floats(allow_nan=False) | st.integers(-(10**15), 10**15))
def test_what_python_prints_is_read_back(value: float) -> None:
    for text in (str(value), f"{value} ", f"{value}, x"):
        found = printed_number(text)
        assert found is not None
        assert found.value == float(value)
    assert number_of_text(f" {value} ") == float(value)


@given(st.integers(1000, 10**12), st.integers(0, 99))
def test_thousands_with_decimals_are_never_cut(whole: int, part: int) -> None:
    found = printed_number(f"{whole:,}.{part:02d}")
    assert found is not None
    assert found.value == float(f"{whole}.{part:02d}")
    alone = printed_number(f"{whole:,}")
    assert alone is None or alone.value == whole


def test_a_text_longer_than_the_limit_yields_no_number() -> None:
    assert number_of_text("1" * (LONGEST + 1)) is None

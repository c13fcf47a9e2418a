"""CSV tables of other tools: separators, decimal marks, blank rows, and limits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from podium_core.tables.csv_table import MAX_ROW, Numbers, TableError, open_table

KNOWN = ("arrival", "duration")


def test_fields_are_stripped_and_empty_rows_skipped() -> None:
    table = open_table(["\ufeff Arrival ;duration\n", ";\n", "1 ; 2\n", "\n"], KNOWN)
    assert (table.names, table.separator, table.column("arrival")) == (("Arrival", "duration"), ";", 0)
    assert [(row.line, row.fields) for row in table.rows] == [(3, ("1", "2"))]


@pytest.mark.parametrize(
    ("first", "line"), [("a\n", "a\n"), ('"\n', "a\n"), ('"\n', '","\n')], ids=["rows", "field", "row of many fields"]
)
def test_an_endless_table_costs_bounded_memory(first: str, line: str) -> None:
    given = 0

    def endless() -> Iterator[str]:
        nonlocal given
        yield "arrival,duration\n"
        yield first
        while given < 3_000_000:
            given += 1
            yield line

    rows, refused = 0, ""
    try:
        for row in open_table(endless(), KNOWN).rows:
            assert sum(map(len, row.fields)) <= MAX_ROW
            rows += 1
            if rows > 1000:
                break
    except TableError as error:
        refused = str(error)
    assert first == "a\n" or "close each quotation mark" in refused
    assert given <= MAX_ROW


def test_one_table_has_one_decimal_mark() -> None:
    numbers = Numbers(";")
    assert [numbers(text) for text in ("1", "0,5", "1,5e-3", "-,5")] == [1.0, 0.5, 0.0015, -0.5]
    with pytest.raises(ValueError, match=r"'1\.234' and '0,5' are both in the table"):
        numbers("1.234")
    assert Numbers(";")("1.234") == 1.234


@pytest.mark.parametrize("text", ["0,5", "1.234,5", "1_000", "0x10", "", "1 000", "1e", "--1"])
def test_a_text_without_one_meaning_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number; write one such as 0\.5"):
        Numbers(",")(text)


@pytest.mark.parametrize("text", ["", "NA", "n/a", "NULL", "None", "-", "<NA>", "nan"])
def test_words_by_which_tools_write_no_value(text: str) -> None:
    assert math.isnan(Numbers(",").optional(text))


def test_a_repeated_name_is_refused_whatever_its_case() -> None:
    with pytest.raises(TableError, match="its header names duration more than once; give each column a name"):
        open_table(["arrival,duration, Duration"], KNOWN)
    assert open_table(["arrival,duration,,"], KNOWN).names == ("arrival", "duration", "", "")

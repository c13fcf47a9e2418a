"""Fuzz targets of the readers of metrics sources: what a trial writes or serves costs bounded work and never an error.

`make fuzz` runs 100,000 cases of each (`tools/fuzz.py`). The short form runs 200.
"""

from __future__ import annotations

import struct

from event_files import event, field, record
from fuzzing import fuzz
from hypothesis import strategies as st

from podium_core.logs.csv_rows import CsvReader
from podium_core.logs.event_records import MAX_VALUES, Event, RecordAssembler, masked_crc32c, parse_event
from podium_core.logs.readings import ready_line, ready_reader
from podium_core.logs.selectors import MAX_LABELS, parse_selector
from podium_core.schema.job import Direction
from podium_core.schema.metrics.config import MetricsConfig
from podium_core.sources.batch import LONGEST_LINE
from podium_core.sources.exposition import MAX_LINES, names_on, samples, value_of
from podium_core.sources.lines import LineAssembler

CSV = MetricsConfig.model_construct(
    metric="acc", direction=Direction.MAXIMIZE, step_key="step", format="csv", additional=("loss",)
)
PIECES = st.sampled_from([b"\n", b"\r", b"acc", b"{", b'"', b"\\", b"=", b",", b" ", b"}", b"1", b"e9", b"nan", b"\0"])
TEXT = st.lists(PIECES | st.binary(max_size=4), max_size=60).map(b"".join)
HEAD = struct.pack("<Q", 1 << 40)
LONG = HEAD + struct.pack("<I", masked_crc32c(HEAD))  # of a record that is skipped
RECORDS = st.sampled_from([event(1, acc=0.5), event(2, acc=0.75)[:-2], LONG, record(b"\x2a\x03\x0a\xff")])


def read_all(data: bytes, size: int) -> tuple[list[Event], int]:
    """Return the events of a file that is read in pieces, and the offset after the last whole record."""
    assembler = RecordAssembler()
    events: list[Event] = []
    while not assembler.damaged and assembler.wanted < len(data):
        events += assembler.feed(data[assembler.wanted : assembler.wanted + size])
    return events, assembler.safe


@fuzz(st.lists(RECORDS | st.binary(max_size=40) | st.binary(max_size=60).map(record), max_size=8).map(b"".join))
def test_event_files(data: bytes) -> None:
    events, safe = read_all(data, len(data) or 1)
    assert (events, safe) == read_all(data, 7)
    assert all(len(one.values) <= MAX_VALUES for one in events)


@fuzz(st.binary(max_size=80) | st.binary(max_size=80).map(lambda data: field(5, field(1, b"\x0a\x01a" + data))))
def test_events(data: bytes) -> None:
    parsed = parse_event(data)
    if parsed is not None:
        reported = ready_reader("a", ("b",))(ready_line(float(parsed.step), dict(parsed.values)))
        assert all(isinstance(one.value, float | None) for one in reported)


@fuzz(TEXT)
def test_pages(page: bytes) -> None:
    found = samples(page, {"acc"})
    assert len(found) <= MAX_LINES
    selector = parse_selector("acc")
    assert selector is not None
    value, why = value_of(selector, found)
    assert (value is None) == bool(why)
    assert len(names_on(page)) < 2000


@fuzz(TEXT)
def test_selectors(text: bytes) -> None:
    selector = parse_selector(text.decode(errors="replace"))
    assert selector is None or len(selector.labels) <= MAX_LABELS


@fuzz(TEXT, TEXT)
def test_tables(header: bytes, row: bytes) -> None:
    read = CsvReader(CSV)
    read(header.decode(errors="replace"))
    for one in (row, b"step,acc,loss", row):
        for parsed in read(one.decode(errors="replace")):
            assert isinstance(parsed.value, float | None)
            assert isinstance(parsed.step, float | None)


@fuzz(st.lists(TEXT, max_size=6))
def test_lines_of_files(pieces: list[bytes]) -> None:
    assembler, lines = LineAssembler(), []
    for piece in pieces:
        lines += assembler.feed(piece)
    data = b"".join(pieces)
    assert [line.text for line in lines] == [one.decode(errors="replace") for one in data.split(b"\n")[:-1]]
    assert all(data[line.start : line.end].endswith(b"\n") for line in lines)
    assert assembler.safe <= assembler.read == len(data) <= LONGEST_LINE

"""Event files as TensorBoard's own writers make them, cut at any byte, and damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from event_files import event, field, record, scalar, varint

from podium_core.logs.event_records import MAX_RECORD, Event, RecordAssembler, masked_crc32c, parse_event


def test_the_checksum_is_that_of_tensorboard() -> None:
    library = pytest.importorskip("tensorboard.compat.tensorflow_stub.pywrap_tensorflow")
    for data in (b"", b"123456789", bytes(range(256))):
        assert masked_crc32c(data) == library.masked_crc32c(data)


def test_files_of_tensorboards_own_writer_are_read(tmp_path: Path) -> None:
    """PyTorch and tensorboardX write floats; TensorFlow 2 and Keras write tensors of one number."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event as Message
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.tensorflow_stub.dtypes import as_dtype
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(tmp_path))
    plain = Summary(value=[Summary.Value(tag="acc", simple_value=0.5), Summary.Value(tag="loss", simple_value=2.0)])
    writer.add_event(Message(wall_time=5.0, step=3, summary=plain))
    for number, kind in enumerate(("float32", "float64", "int32", "int64", "float16")):
        tensor = make_tensor_proto(2, dtype=as_dtype(kind))
        writer.add_event(
            Message(wall_time=6.0, step=number, summary=Summary(value=[Summary.Value(tag=kind, tensor=tensor)]))
        )
    many = make_tensor_proto([1.0, 2.0])
    writer.add_event(Message(step=9, summary=Summary(value=[Summary.Value(tag="many", tensor=many)])))
    writer.close()
    (path,) = tmp_path.glob("*tfevents*")
    events = RecordAssembler().feed(path.read_bytes())
    assert events[0] == Event(5.0, 3, (("acc", 0.5), ("loss", 2.0)))
    assert [one.values for one in events[1:]] == [
        ((kind, 2.0),) for kind in ("float32", "float64", "int32", "int64", "float16")
    ]


@pytest.mark.parametrize("size", [1, 7, 60])
def test_a_file_that_grows_by_any_number_of_bytes(size: int) -> None:
    data = b"".join(event(step, acc=step / 8) for step in range(9))
    assembler, events = RecordAssembler(), []
    for start in range(0, len(data), size):
        assert assembler.wanted == start
        events += assembler.feed(data[start : start + size])
    assert [(one.step, one.values) for one in events] == [(step, (("acc", step / 8),)) for step in range(9)]
    assert assembler.safe == len(data)
    half = len(data) // 2
    first = RecordAssembler()
    before = first.feed(data[:half])
    again = RecordAssembler(first.safe)
    assert [*before, *again.feed(data[first.safe :])] == events, "another agent continues at the last whole record"


def test_a_long_record_is_skipped_without_reading_it() -> None:
    data = event(1, acc=0.5)
    head = struct.pack("<Q", MAX_RECORD + 1)
    assembler = RecordAssembler()
    assert len(assembler.feed(data + head + struct.pack("<I", masked_crc32c(head)))) == 1
    assert assembler.skipping
    assert assembler.wanted == len(data) + 12 + MAX_RECORD + 1 + 4
    assert assembler.feed(event(2, acc=0.75))[0].step == 2


@pytest.mark.parametrize("garbage", [b"\0" * 12, b"text, not events", event(1, acc=0.5)[:-1] + b"\0"])
def test_damaged_bytes_end_the_file(garbage: bytes) -> None:
    assembler = RecordAssembler()
    good = event(1, acc=0.5)
    assert len(assembler.feed(good + garbage + good)) == 1
    assert f"byte {len(good)} is damaged" in assembler.damaged
    assert assembler.safe == len(good)


@pytest.mark.parametrize(
    "message",
    [b"\xff" * 40, field(5, field(1, b"\x0a\xff")), field(5, b"\x07"), b"\x08" + b"\x80" * 11, field(5, field(1, b""))],
)
def test_messages_that_are_no_events_are_dropped(message: bytes) -> None:
    assert parse_event(message) is None
    assert RecordAssembler().feed(record(message) + event(1, acc=0.5))[0].step == 1


def test_negative_steps_and_long_tags() -> None:
    negative = b"\x10" + varint((1 << 64) - 1) + field(5, field(1, scalar("acc", 1.0)))
    parsed = parse_event(negative)
    assert parsed is not None
    assert parsed.step == -1
    assert parse_event(field(5, field(1, scalar("x" * 600, 1.0)))) is None

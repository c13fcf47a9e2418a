"""Scalars in TensorBoard's event files, read as they grow: bytes in, whole events out, in bounded memory.

A record is its length, the data, and a checksum of each (masked CRC-32C). The data is a protobuf message `Event`, of
which only the numbers are read. Records are longer than MAX_RECORD if they hold images or graphs; they are skipped.
The record at the end of a file that is being written may be incomplete: it waits for its other bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

HEADER = struct.Struct("<QI")  # length and its checksum
FOOTER = 4  # bytes of the data's checksum
MAX_RECORD = 1 << 16  # bytes of a record that is read; one with 1,000 scalars has about 50,000
MAX_SKIPPED = 1 << 40  # bytes of a record that is skipped; a longer one cannot be a record
MAX_VALUES = 4096  # scalars of one event
MAX_TAG = 512  # bytes of a tag


class NotAnEventFileError(ValueError):
    """The bytes are not records; the file is damaged from here on, or of another kind."""


class _UnreadableError(ValueError):
    """A message does not follow protobuf's encoding."""


@dataclass(frozen=True, slots=True)
class Event:
    """The scalars of one event, by tag."""

    time: float
    step: int
    values: tuple[tuple[str, float], ...]


class RecordAssembler:
    """Assembler of the records of one file from an offset on.

    `safe` is the offset after the last whole record. `damaged` tells why no further byte is read.
    """

    def __init__(self, offset: int = 0) -> None:
        self._rest = b""
        self.safe = offset
        self.skipping = False  # the last record was skipped, so that `safe` may lie behind the end of the file
        self.damaged = ""

    @property
    def wanted(self) -> int:
        """Return the offset of the next byte to feed; it jumps over records that are skipped."""
        return self.safe + len(self._rest)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these further bytes complete."""
        if self.damaged:
            return []
        self._rest += data
        events: list[Event] = []
        at = 0
        try:
            while len(self._rest) - at >= HEADER.size:
                length, checksum = HEADER.unpack_from(self._rest, at)
                if masked_crc32c(self._rest[at : at + 8]) != checksum or length > MAX_SKIPPED:
                    raise NotAnEventFileError(f"the record at byte {self.safe + at} is damaged")
                whole = HEADER.size + length + FOOTER
                if length > MAX_RECORD:
                    self.safe += at + whole  # the next bytes to read begin after it
                    self._rest = self._rest[at + whole :]
                    at = 0
                    self.skipping = True
                    continue
                self.skipping = False
                if len(self._rest) - at < whole:
                    break
                record = self._rest[at + HEADER.size : at + HEADER.size + length]
                (checksum,) = struct.unpack_from("<I", self._rest, at + HEADER.size + length)
                if masked_crc32c(record) != checksum:
                    raise NotAnEventFileError(f"the record at byte {self.safe + at} is damaged")
                at += whole
                event = parse_event(record)
                if event is not None:
                    events.append(event)
        except NotAnEventFileError as error:
            self.damaged = str(error)
        self.safe += at
        self._rest = self._rest[at:]
        return events


def parse_event(record: bytes) -> Event | None:
    """Return the scalars of a message `Event`; None without one, or for a message that cannot be read."""
    time, step, summaries = 0.0, 0, []
    try:
        for number, value in _fields(record):
            if number == 1 and isinstance(value, bytes) and len(value) == 8:
                (time,) = struct.unpack("<d", value)
            elif number == 2 and isinstance(value, int):
                step = value - (1 << 64) if value >= 1 << 63 else value
            elif number == 5 and isinstance(value, bytes):
                summaries.append(value)
        values: list[tuple[str, float]] = []
        for summary in summaries:
            for number, value in _fields(summary):
                if number == 1 and isinstance(value, bytes) and len(values) < MAX_VALUES:
                    scalar = _scalar(value)
                    if scalar is not None:
                        values.append(scalar)
    except _UnreadableError:
        return None
    return Event(time, step, tuple(values)) if values else None


def _scalar(message: bytes) -> tuple[str, float] | None:
    """Return the tag and number of a message `Summary.Value`; None if it holds no single number."""
    tag, number = b"", None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            tag = value
        elif field == 2 and isinstance(value, bytes) and len(value) == 4:
            (number,) = struct.unpack("<f", value)
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    if number is None or not 0 < len(tag) <= MAX_TAG:
        return None
    return tag.decode(errors="replace"), float(number)


_DTYPES = {  # of DataType, by number
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "<u1",
    5: "<i2",
    6: "<i1",
    9: "<i8",
    17: "<u2",
    19: "<f2",
    22: "<u4",
    23: "<u8",
}
_HALF = 19
_BFLOAT16 = 14
_VALUE_FIELDS = {5: "<f4", 6: "<f8"}  # float_val and double_val, packed or one by one


def _tensor(message: bytes) -> float | None:
    """Return the number of a message `TensorProto` with one element, as TensorFlow 2 and Keras write scalars."""
    kind, content, listed, integers = 0, b"", b"", []
    for field, value in _fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, bytes):
            if any(size != 1 for size in _sizes(value)):
                return None
        elif field == 4 and isinstance(value, bytes):
            content = value
        elif field in _VALUE_FIELDS and isinstance(value, bytes):
            listed += value[:16]
        elif field in (7, 10, 13, 16, 17):  # int_val, int64_val, half_val, uint32_val, uint64_val
            integers += [value] if isinstance(value, int) else [one for one, _ in _varints(value[:16])]
    if kind == _BFLOAT16:
        half = content if len(content) == 2 else struct.pack("<H", integers[0] & 0xFFFF) if len(integers) == 1 else b""
        return float(np.frombuffer(b"\0\0" + half, "<f4")[0]) if half else None
    dtype = _DTYPES.get(kind)
    if dtype is None:
        return None
    if content:
        return float(np.frombuffer(content, dtype)[0]) if len(content) == np.dtype(dtype).itemsize else None
    if listed:
        return float(np.frombuffer(listed, dtype)[0]) if len(listed) == np.dtype(dtype).itemsize else None
    if len(integers) != 1:
        return None
    if kind == _HALF:
        return float(np.frombuffer(struct.pack("<H", integers[0] & 0xFFFF), "<f2")[0])
    return float(integers[0] - (1 << 64) if integers[0] >= 1 << 63 else integers[0])


def _sizes(shape: bytes) -> Iterator[int]:
    """Yield the sizes in a message `TensorShapeProto`; a shape of unknown rank yields 0."""
    for field, value in _fields(shape):
        if field == 2 and isinstance(value, bytes):
            yield next((size for number, size in _fields(value) if number == 1 and isinstance(size, int)), 0)
        elif field == 3 and value:
            yield 0


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: a number for a varint, the bytes of all other types."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise _UnreadableError
        if at + length > len(message):
            raise _UnreadableError
        yield key >> 3, message[at : at + length]
        at += length


def _varints(packed: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value, at


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at this place, of at most 64 bits, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise _UnreadableError
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise _UnreadableError


def _table() -> tuple[int, ...]:
    """Return the table of CRC-32C (Castagnoli) by byte."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return tuple(table)


_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of a record's part, rotated as TFRecord files store it."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF

"""Writers of event files in TensorBoard's format, for tests."""

from __future__ import annotations

import struct
from pathlib import Path

from podium_core.logs.event_records import masked_crc32c


def record(data: bytes) -> bytes:
    """Return a record: its length, the data, and their checksums."""
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def field(number: int, content: bytes) -> bytes:
    """Return a protobuf field of bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def scalar(tag: str, value: float) -> bytes:
    """Return a message Summary.Value with a float."""
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def event(step: int, time: float = 1.0e9, **values: float) -> bytes:
    """Return the record of an event."""
    summary = b"".join(field(1, scalar(tag.replace("__", "/"), value)) for tag, value in values.items())
    return record(b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + field(5, summary))


def append(path: Path, data: bytes) -> None:
    """Append to a file, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)

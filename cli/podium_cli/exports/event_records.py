"""Records of TensorBoard's event files: protobuf messages with their length and checksums. Pure.

A record is what TensorFlow calls a TFRecord. Only the few messages that a curve and the plugin `hparams` need are
encoded, so that an export needs no package.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from podium_core.domain.snapshot import Scalar
from podium_core.logs.event_records import masked_crc32c

MAX_TAG_BYTES = 500  # fewer than the agent's reader takes
VERSION = "brain.Event:2"
SUCCESS, FAILURE = 1, 2  # of a session's end
_HPARAMS = "hparams"
_NO_TENSOR = bytes.fromhex("080112021200")  # of type float and shape [0], as the plugin writes it


def record(event: bytes) -> bytes:
    """Return an event with its length and checksums."""
    length = struct.pack("<Q", len(event))
    return b"".join((length, struct.pack("<I", masked_crc32c(length)), event, struct.pack("<I", masked_crc32c(event))))


def version_event(time: float) -> bytes:
    """Return the first event of a file."""
    return _double(1, time) + _bytes(3, VERSION.encode())


def scalar_event(time: float, step: int, tag: str, value: float) -> bytes:
    """Return an event with one number, in single precision."""
    return _summary_event(time, step, _bytes(1, tag_bytes(tag)) + _key(2, 5) + struct.pack("<f", _single(value)))


def session_start_event(time: float, name: str, parameters: Mapping[str, Scalar]) -> bytes:
    """Return the event by which the plugin `hparams` knows a run, its group and its parameters."""
    entries = b"".join(
        _bytes(1, _bytes(1, tag_bytes(key)) + _bytes(2, _value(value))) for key, value in parameters.items()
    )
    start = entries + _bytes(4, tag_bytes(name)) + _double(5, time)
    return _hparams_event(time, "_hparams_/session_start_info", _bytes(3, start))


def session_end_event(time: float, status: int) -> bytes:
    """Return the event by which the plugin `hparams` knows how a run ended."""
    return _hparams_event(time, "_hparams_/session_end_info", _bytes(4, _number(1, status) + _double(2, time)))


def tag_bytes(tag: str) -> bytes:
    """Return a tag in UTF-8, cut to MAX_TAG_BYTES at the end of a character."""
    encoded = tag.encode("utf-8", "replace")
    return encoded[:MAX_TAG_BYTES].decode("utf-8", "ignore").encode()


def _hparams_event(time: float, tag: str, content: bytes) -> bytes:
    plugin = _bytes(1, _bytes(1, _HPARAMS.encode()) + _bytes(2, content))
    return _summary_event(time, 0, _bytes(1, tag.encode()) + _bytes(9, plugin) + _bytes(8, _NO_TENSOR))


def _summary_event(time: float, step: int, value: bytes) -> bytes:
    return _double(1, time) + _number(2, step) + _bytes(5, _bytes(1, value))


def _value(value: Scalar) -> bytes:
    """Return a message `google.protobuf.Value`."""
    if isinstance(value, bool):
        return _number(4, int(value))
    if isinstance(value, str):
        return _bytes(3, value.encode("utf-8", "replace"))
    return _double(2, float(value))


def _single(value: float) -> float:
    """Return the nearest number of single precision; infinity beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _key(field, 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

"""Scalars in one folder of TensorBoard's event files, read record by record in bounded memory.

A record is its length, the data and checksums. TensorBoard's own package verifies and parses them; it is not a
dependency of Podium. `event_files` calls it.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from podium_core.domain.phrases import count
from podium_core.tables.csv_table import shown
from podium_simulator.traces.trace import MAX_EVALUATIONS, TraceError

MAX_TAGS = 10_000  # names of scalars that one run keeps
MAX_RECORD = 1 << 22  # bytes of a record that may hold scalars
PLUGIN = "scalars"  # of TensorFlow 2 and Keras, which write scalars as tensors


@dataclass(slots=True)
class Points:
    """Values of one tag by step; a later event of a step replaces the earlier one.

    `events`: how many values were read. `not_scalar`: the first tensor that is not one number, with its shape and step.
    """

    by_step: dict[int, tuple[float, float]] = field(default_factory=dict)  # wall time, value
    events: int = 0
    not_scalar: str = ""


@dataclass(slots=True)
class Run:
    """One folder with event files: `name` is its path in `folder`.

    `started`: wall time of its first event, infinite if it has none. `broken`: the files that are cut off or damaged,
    each with its number of complete records. `empty`: whether no event could be read, although the files hold bytes.
    """

    folder: str
    name: str
    started: float = math.inf
    tags: dict[str, Points] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    empty: bool = False

    @property
    def where(self) -> str:
        """Return the run as errors name it."""
        return f"{self.folder}: run {self.name}"


@dataclass(frozen=True, slots=True)
class _Library:
    """The parts of TensorBoard's package that verify records and parse events."""

    checksum: Callable[[bytes], int]
    event: Any
    undecodable: type[Exception]
    ndarray: Callable[[Any], Any]


def load(folder: Path, name: Path, files: Sequence[Path], wanted: Callable[[str], bool]) -> Run:
    """Return the run of this name, with the values of the wanted tags and the names of all scalars."""
    library = _library(folder)
    run = Run(folder.name, str(name))
    plugins: dict[str, bool] = {}  # whether a tag belongs to the plugin; only its first event states it
    events = 0
    for path in files:
        for event in _events(path, run, library):
            events += 1
            if math.isinf(run.started):
                run.started = event.wall_time
            for value in event.summary.value:
                _take(run, event, value, (library, plugins, wanted))
    run.empty = not events and any(path.stat().st_size for path in files)
    return run


def _library(folder: Path) -> _Library:
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        text = "TensorBoard's event files need TensorBoard: pip install 'kube-podium[tensorboard]'"
        raise TraceError(f"{folder.name}: {text}, or give a CSV with trial, step, value and seconds") from None
    return _Library(masked_crc32c, Event, DecodeError, make_ndarray)


def _events(path: Path, run: Run, library: _Library) -> Iterator[Any]:
    """Yield the events of one file up to its end or to the first record that is cut off or damaged."""
    complete = 0
    with path.open("rb") as file:
        try:
            for record in _records(file, library):
                event = library.event.FromString(record)
                complete += 1
                yield event
        except (EOFError, library.undecodable):
            run.broken.append(f"{run.name}/{path.name} after {count(complete, 'record')}")


def _records(file: IO[bytes], library: _Library) -> Iterator[bytes]:
    """Yield the records up to MAX_RECORD bytes; a longer one holds an image or a graph. Raises EOFError."""
    size = os.fstat(file.fileno()).st_size
    while header := file.read(12):
        if len(header) < 12 or library.checksum(header[:8]) != struct.unpack("<I", header[8:])[0]:
            raise EOFError
        (length,) = struct.unpack("<Q", header[:8])
        if length > MAX_RECORD:
            if file.tell() + length + 4 > size:
                raise EOFError
            file.seek(length + 4, os.SEEK_CUR)
            continue
        data, checksum = file.read(length), file.read(4)
        if len(checksum) < 4 or library.checksum(data) != struct.unpack("<I", checksum)[0]:
            raise EOFError
        yield data


def _take(run: Run, event: Any, value: Any, how: tuple[_Library, dict[str, bool], Callable[[str], bool]]) -> None:
    """Add a value of an event to the run if it is a scalar."""
    library, plugins, wanted = how
    tag, kind = value.tag, value.WhichOneof("value")
    if kind == "tensor":
        plugin = value.metadata.plugin_data.plugin_name
        if plugin or tag not in plugins:
            plugins[tag] = plugin == PLUGIN
    if kind != "simple_value" and not (kind == "tensor" and plugins[tag]):
        return
    if tag not in run.tags and len(run.tags) >= MAX_TAGS:
        raise TraceError(f"{run.where}: more than {MAX_TAGS} scalars; log fewer, or give a CSV")
    points = run.tags.setdefault(tag, Points())
    if not wanted(tag):
        return
    number = value.simple_value if kind == "simple_value" else _scalar(value.tensor, library)
    if isinstance(number, str):
        points.not_scalar = points.not_scalar or f"{number} at step {event.step}"
        return
    points.events += 1
    points.by_step[event.step] = (event.wall_time, float(number))
    if event.wall_time < run.started:
        run.started = event.wall_time
    if len(points.by_step) > MAX_EVALUATIONS:
        text = f"more than {MAX_EVALUATIONS} values of {shown(tag)}"
        raise TraceError(f"{run.where}: {text}; keep every tenth, or give a CSV")


def _scalar(tensor: Any, library: _Library) -> float | str:
    """Return the number of a tensor, or what it is instead. Its size is checked before memory is taken for it."""
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    if tensor.tensor_shape.unknown_rank or any(size != 1 for size in shape):
        return f"a tensor of shape {shown(shape)}"
    try:
        array = library.ndarray(tensor)
        return float(array.reshape(())) if array.dtype.kind not in "SUO" else "a text"
    except (TypeError, ValueError, KeyError):
        return "a tensor without a number"

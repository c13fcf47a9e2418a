"""A search as a TensorBoard folder: one run for each trial, with its curve and its hyper-parameters.

A second export of a running search appends the new values, so an open TensorBoard shows them. A file whose values are
not those of the trial any more, because work was repeated, is written again.
"""

from __future__ import annotations

import struct
from pathlib import Path

from podium_cli.exports.event_records import (
    FAILURE,
    SUCCESS,
    record,
    scalar_event,
    session_end_event,
    session_start_event,
    tag_bytes,
    version_event,
)
from podium_cli.exports.names import clean, file_name
from podium_cli.exports.search import ExportedSearch, ExportedTrial, latest_whole_steps, whole_steps
from podium_cli.exports.target import Target, claim_folder, replace, writing
from podium_core.domain.phase import TrialPhase
from podium_core.logs.event_records import RecordAssembler

FILE = "events.out.tfevents.0000000001.podium"
END_FILE = "events.out.tfevents.0000000002.podium"  # TensorBoard reads the files of a run by name
CHUNK = 1 << 20  # bytes
Written = dict[tuple[str, int], float]  # value by tag and step


class TensorBoardFolder(Target):
    """A folder with one run for each trial."""

    def __init__(self, path: Path, search: ExportedSearch, *, force: bool) -> None:
        super().__init__()
        claim_folder(path, force, "tensorboard", search)
        self._path = path
        self._search = search

    def add(self, trial: ExportedTrial) -> None:
        """Write one trial, or append what is new."""
        points = whole_steps(trial.points)
        self.omitted_values += len(trial.points) - len(points)
        metric = tag_bytes(clean(self._search.metric)).decode()
        wanted = {(metric, int(p.step)): (trial.time_of(p), p.value) for p in points}
        last = trial.time_of(points[-1]) if points else trial.begin
        for one in latest_whole_steps(trial):
            wanted[tag_bytes(clean(one.metric)).decode(), int(one.step)] = (last, one.value)
        run = self._path / file_name(trial.name)
        with writing(run):
            run.mkdir(exist_ok=True)
            self._write(run, trial, wanted)
        self.trials += 1
        self.values += len(points)

    def _write(self, run: Path, trial: ExportedTrial, wanted: dict[tuple[str, int], tuple[float, float]]) -> None:
        path = run / FILE
        there, size = _read(path)
        metric = tag_bytes(clean(self._search.metric)).decode()
        reached = max((step for tag, step in there if tag == metric), default=-1)
        known = {key: value for key, (_, value) in wanted.items() if key[0] == metric and key[1] <= reached}
        if size and all(key in there and _same(there[key], value) for key, value in known.items()):
            fresh = {key: given for key, given in wanted.items() if key not in there}
            with path.open("r+b") as file:
                file.truncate(size)  # a record that an interrupted export left incomplete
                file.seek(size)
                file.write(_scalars(fresh))
        else:
            name = clean(trial.name)
            first = record(version_event(trial.begin))
            start = record(session_start_event(trial.begin, name, _cleaned(trial)))
            replace(path, first + start + _scalars(wanted))
        if trial.final:
            ended = trial.ended if trial.ended is not None else trial.begin
            status = FAILURE if trial.phase is TrialPhase.FAILED else SUCCESS
            replace(run / END_FILE, record(version_event(ended)) + record(session_end_event(ended, status)))
        else:
            (run / END_FILE).unlink(missing_ok=True)


def _cleaned(trial: ExportedTrial) -> dict[str, str | bool | int | float]:
    return {clean(name): value for name, value in trial.parameters.items()}


def _scalars(values: dict[tuple[str, int], tuple[float, float]]) -> bytes:
    return b"".join(record(scalar_event(time, step, tag, value)) for (tag, step), (time, value) in values.items())


def _read(path: Path) -> tuple[Written, int]:
    """Return the values in a file, and how many bytes of it are whole records; none without the file."""
    values: Written = {}
    assembler = RecordAssembler()
    try:
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                for event in assembler.feed(data):
                    values |= {(tag, event.step): value for tag, value in event.values}
    except FileNotFoundError:
        return {}, 0
    return values, 0 if assembler.damaged else assembler.safe


def _same(written: float, value: float) -> bool:
    """Return whether a number is the written one, in single precision."""
    try:
        return struct.pack("<f", written) == struct.pack("<f", value)
    except OverflowError:
        return written in (float("inf"), float("-inf"))

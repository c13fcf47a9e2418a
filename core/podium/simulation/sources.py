"""Learning curves from wherever they are: our JSON lines, CSV tables, TensorBoard folders. One recording a source.

Called by `podium simulate` and `podium plan`. `Reading` holds what a table cannot say itself: which way is better, and
the name of the metric.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from podium.curves.wire import diverged, to_wire
from podium.domain.snapshot import Scalar
from podium.simulation.event_files import Say, event_files, is_event_file, read_events, unheard
from podium.simulation.recorded import RecordedTrial, Recording, RecordingError, check_length, load, open_text

COLUMNS = ("trial", "step", "value", "seconds")
KINDS = "JSON lines (.jsonl, .jsonl.gz), CSV tables (.csv, .csv.gz) and folders with TensorBoard's event files"
BEYOND = "\0beyond"  # the key of fields that the header does not name; no CSV column is called so


@dataclass(frozen=True, slots=True)
class Reading:
    """`metric`: the TensorBoard tag, or the name to show for a CSV's values; JSON lines say both themselves."""

    maximize: bool = True
    metric: str | None = None


def read_all(paths: Iterable[Path], reading: Reading, say: Say = unheard) -> tuple[Recording, ...]:
    """`say` is told what was left out. Raises RecordingError, OSError where a path cannot be read."""
    found: list[Recording] = []
    for path in paths:
        if path.is_dir():
            found += _read_folder(path, reading, say)
        elif _is_csv(path):
            found.append(read_csv(path, reading))
        else:
            found.append(_read_lines(path))
    for recording in found:
        if all(diverged(value) for trial in recording.trials for value in trial.values):
            text = f"not one of its values of {recording.metric} is a finite number: there is nothing to rank by"
            raise RecordingError(f"{recording.task}: {text}; name curves with values")
    return tuple(found)


def asks_for_goal(paths: Iterable[Path]) -> bool:
    """Is one of them curves that do not say themselves which way is better?"""
    return any(_is_csv(path) or (path.is_dir() and (_tables(path) or event_files(path))) for path in paths)


def _read_folder(folder: Path, reading: Reading, say: Say) -> list[Recording]:
    """Its runs, or its files of curves: both at once would be two searches, of which nobody said which one is meant."""
    lines, tables, events = _lines(folder), _tables(folder), event_files(folder)
    if events and (lines or tables):
        text = f"it holds {(lines + tables)[0].name} and TensorBoard's {events[0].relative_to(folder)}, two kinds"
        raise RecordingError(f"{folder.name}: {text}; name the files, or a subfolder that has the runs alone")
    if events:
        return [read_events(folder, reading.metric, reading.maximize, say)]
    return [*(load(file) for file in lines), *(read_csv(file, reading) for file in tables)]


def _read_lines(path: Path) -> Recording:
    if is_event_file(path):
        text = f"an event file of TensorBoard; name its folder, {path.parent}"
        raise RecordingError(f"{path.name}: {text}, or that of all runs")
    try:
        return load(path)
    except RecordingError as error:
        if _is_lines(path):
            raise
        raise RecordingError(f"{error}; files that are read: {KINDS}") from None


def _lines(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if _is_lines(file))


def _tables(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if _is_csv(file))


def _is_lines(path: Path) -> bool:
    return ".jsonl" in path.name.lower()


def _is_csv(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_csv(path: Path, reading: Reading) -> Recording:
    """A header with `trial`, `step`, `value`, `seconds` (of training, cumulative), one line an evaluation, in any
    order; further columns are hyper-parameters. A value that is empty, NaN or infinite counts as not finite.
    """
    try:
        with open_text(path, "utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey=BEYOND)
            rows, header = list(reader), reader.fieldnames or []
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordingError(f"{path.name}: no CSV table ({error}); save it as UTF-8 with commas") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordingError(f"{path.name}: no whole gzip file ({error}); copy it again, or unpack it") from None
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        text = f"its header ({','.join(header)[:80]}) has no {', '.join(missing)}" if header else "no header"
        raise RecordingError(f"{path.name}: {text}; the first line must name {','.join(COLUMNS)}, with commas between")
    if not rows:
        raise RecordingError(f"{path.name}: a header and no line; give one line an evaluation")
    trials: dict[str, list[tuple[float, float, float]]] = {}
    hparams: dict[str, dict[str, Scalar]] = {}
    for number, row in enumerate(rows, start=2):
        trials.setdefault(row["trial"], []).append(_row(row, reading.maximize, f"{path.name}, line {number}"))
        given = {k: _scalar(v) for k, v in row.items() if k not in COLUMNS and v}
        hparams.setdefault(row["trial"], given)
    made = [_trial(name, points, hparams[name], f"{path.name}, trial {name}") for name, points in trials.items()]
    stem = path.name[: path.name.lower().rindex(".csv")]
    return Recording(stem, stem.partition("-")[0], reading.metric or "value", reading.maximize, None, tuple(made))


def _row(row: dict[str, str], maximize: bool, where: str) -> tuple[float, float, float]:
    if BEYOND in row:
        raise RecordingError(f"{where}: more fields than the header names; quote those with a comma, write 0.5 for 0,5")
    if not row["trial"]:
        raise RecordingError(f"{where}: trial is empty; give each trial a name or a number")
    try:
        step, seconds = float(row["step"]), float(row["seconds"])
    except (TypeError, ValueError):
        raise RecordingError(f"{where}: step and seconds must be numbers") from None
    if not (math.isfinite(step) and math.isfinite(seconds)):
        raise RecordingError(f"{where}: step and seconds must be finite numbers")
    try:
        value = float(row["value"] or math.nan)
    except ValueError:
        text = f"value {row['value']!r} is no number; leave it empty where there was none"
        raise RecordingError(f"{where}: {text}") from None
    return step, seconds, to_wire(value, maximize)


def _trial(
    name: str, points: Sequence[tuple[float, float, float]], hparams: dict[str, Scalar], where: str
) -> RecordedTrial:
    ordered = sorted(points)
    steps, seconds, values = (tuple(column) for column in zip(*ordered, strict=True))
    for field, column in (("step", steps), ("seconds", seconds)):
        if any(b <= a for a, b in pairwise(column)):
            raise RecordingError(f"{where}: {field} must increase with every evaluation; is a line there twice?")
    if seconds[0] <= 0.0:
        raise RecordingError(f"{where}: the first evaluation is at {seconds[0]:g} seconds; training took time, give it")
    check_length(seconds[-1], where)
    return RecordedTrial(name, MappingProxyType(hparams), seconds, values, steps)


def _scalar(text: str) -> Scalar:
    try:
        return float(text)
    except ValueError:
        return text

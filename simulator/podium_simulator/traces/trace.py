"""Recorded learning curves of real training runs: one task per file, gzip or plain JSON lines.

The first line is the header: task, metric, goal, target, and the number of trials that were left out. Each further line
is a trial. It has the cumulative training seconds, the step and the validation value of every evaluation (null where a
value was not finite). The summaries of its additional metrics are those of the trial's status.
"""

from __future__ import annotations

import errno
import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from pydantic import ValidationError

from podium_core.curves.additional_metrics import MetricSummary, from_status, to_status
from podium_core.curves.non_finite import diverged, to_wire
from podium_core.domain.snapshot import Scalar
from podium_core.schema.trial import AdditionalMetric

GOALS = ("maximize", "minimize")
MAX_SECONDS = 1e8  # of a trial, three years: sums of 64 of them still resolve microseconds
MAX_LEFT_OUT = 10**9  # trials: a number that fits into headings
EVALUATION_SECONDS = 60.0  # for tasks without recorded wall time, whose seconds count evaluations


class TraceError(ValueError):
    """The file does not have the format; the message names file, line and cure."""

    code = "InvalidRecording"


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """One trial. `seconds` strictly increase, one entry per evaluation.

    A value that was not finite is the worst finite double.
    """

    name: str
    hparams: Mapping[str, Scalar]
    seconds: tuple[float, ...]
    values: tuple[float, ...]
    steps: tuple[float, ...] = ()  # of each evaluation; empty where none were recorded
    additional_metrics: tuple[
        MetricSummary, ...
    ] = ()  # summaries of additional metrics: not curves, and no policy uses them

    @property
    def length(self) -> float:
        return self.seconds[-1]


@dataclass(frozen=True, slots=True)
class Trace:
    """Curves of one task.

    `family` groups tasks of one source: the part of the file's name before the first dash.
    """

    task: str
    family: str
    metric: str
    maximize: bool
    target: float | None
    trials: tuple[RecordedTrial, ...]
    left_out: int = 0  # further trials of the search, whose final values are unknown

    @property
    def goal(self) -> str:
        return "maximize" if self.maximize else "minimize"

    def distinct(self) -> Trace:
        """Return the trace with only the first trial of each configuration: a search does not repeat itself."""
        seen: dict[str, RecordedTrial] = {}
        for trial in self.trials:
            seen.setdefault(json.dumps(dict(trial.hparams), sort_keys=True), trial)
        return replace(self, trials=tuple(seen.values()))


def is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def refuse_devices(path: Path) -> None:
    """Raise OSError for a device such as /dev/zero: reading it to its end would fill the memory."""
    if path.is_char_device():
        raise OSError(errno.EINVAL, "a device, which has no end", str(path))


def open_text(path: Path, encoding: str = "utf-8", newline: str | None = None) -> IO[str]:
    """Open a file for reading, unpacked where its name ends in .gz. Raises OSError."""
    refuse_devices(path)
    opener = gzip.open if is_packed(path) else open
    return opener(path, "rt", encoding=encoding, newline=newline)


def load(path: Path) -> Trace:
    """Return the trace in one file. Raises TraceError."""
    with open_text(path) as file:
        try:
            return parse(file, path.name)
        except UnicodeDecodeError as error:
            raise TraceError(f"{path.name}: not UTF-8 text ({error.reason}); save it as JSON lines") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TraceError(f"{path.name}: not a complete gzip file ({error}); copy it again, or unpack it") from None


def load_all(paths: Iterable[Path]) -> tuple[Trace, ...]:
    """Return the traces in these files and folders, in the order of their names."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
    return tuple(load(file) for file in files)


def bundled_trace() -> Trace:
    """Return the trace of Podium's own example (examples/digits), which is part of the package."""
    with resources.as_file(resources.files("podium_simulator") / "data" / "digits-example.jsonl.gz") as path:
        return load(path)


def parse(lines: Iterable[str], name: str) -> Trace:
    records = [_record(line, name, number) for number, line in enumerate(lines, start=1) if line.strip()]
    if len(records) < 2:
        raise TraceError(f"{name}: {len(records)} lines; a header and at least one trial are needed")
    header = records[0]
    lacking = [key for key in ("task", "metric", "goal") if not isinstance(header.get(key), str)]
    if lacking or header["goal"] not in GOALS:
        text = f"without {', '.join(lacking)}" if lacking else f"with goal {header['goal']!r}"
        raise TraceError(f"{name}: a header {text}; give task, metric, and goal: maximize or minimize")
    if not isinstance(target := header.get("target"), int | float | None) or not _finite(target):
        raise TraceError(f"{name}: target is {target!r}; give a number, or null for none")
    left_out = header.get("left_out", 0)
    if type(left_out) is not int or not 0 <= left_out <= MAX_LEFT_OUT:
        text = f"left_out is {left_out!r}; give how many trials of the search are not in the file, 0 to {MAX_LEFT_OUT}"
        raise TraceError(f"{name}: {text}, or no left_out for none")
    # "no wall time recorded: seconds = evaluation index"
    scale = EVALUATION_SECONDS if "no wall time" in str(header.get("note")) else 1.0
    maximize = header["goal"] == "maximize"
    trials = tuple(
        _trial(record, maximize, scale, f"{name}, line {i}") for i, record in enumerate(records[1:], start=2)
    )
    family = name.partition(".")[0].partition("-")[0]
    return Trace(header["task"], family, header["metric"], maximize, target, trials, left_out)


def _record(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}, line {number}: not JSON ({error}); give JSON lines, one object a line") from None
    if not isinstance(record, dict):
        raise TraceError(f"{name}, line {number}: {record!r} is not a JSON object")
    return record


def _trial(record: dict[str, Any], maximize: bool, scale: float, where: str) -> RecordedTrial:
    missing = [key for key in ("trial", "seconds", "value") if key not in record]
    if missing:
        raise TraceError(f"{where}: no {', '.join(missing)}; see the format in docs/reference/curve-files.md")
    if not isinstance(hparams := record.get("hparams", {}), dict):
        raise TraceError(f"{where}: hparams is {hparams!r}; give an object of names and values, or leave it out")
    try:
        seconds = tuple(float(s) * scale for s in _array(record["seconds"]))
        values = tuple(to_wire(math.nan if v is None else float(v), maximize) for v in _array(record["value"]))
    except (TypeError, ValueError):
        raise TraceError(f"{where}: seconds and value must be arrays of numbers (value: or null)") from None
    except OverflowError:
        text = "a number of seconds or value is beyond 1.8e308; write null for a value that is not finite"
        raise TraceError(f"{where}: {text}") from None
    if not seconds or len(seconds) != len(values):
        raise TraceError(f"{where}: {len(seconds)} times and {len(values)} values; give one of each an evaluation")
    if not (seconds[0] > 0.0 and seconds[-1] < math.inf and all(b > a for a, b in pairwise(seconds))):
        raise TraceError(f"{where}: seconds must be above 0, finite, and increase from evaluation to evaluation")
    check_length(seconds[-1], where)
    return RecordedTrial(
        str(record["trial"]),
        MappingProxyType({name: _scalar(value) for name, value in hparams.items()}),
        seconds,
        values,
        _steps(record, seconds, where),
        _additional_metrics(record, where),
    )


def check_length(seconds: float, where: str) -> None:
    """Raise TraceError for a trial that is too long."""
    if seconds > MAX_SECONDS:
        text = f"{seconds:g} seconds are more than three years; give {MAX_SECONDS:g} at most, in seconds of training"
        raise TraceError(f"{where}: {text}")


def _array(given: object) -> list[Any]:
    """Return the list; a text is a sequence of digits as well, so it raises TypeError."""
    if not isinstance(given, list):
        raise TypeError(given)
    return given


def _scalar(value: Any) -> Scalar:
    """Return a scalar that policies can compare; other values become their JSON text.

    So do integers that no float can represent.
    """
    if isinstance(value, list | dict) or (isinstance(value, int) and not _finite(value)):
        return json.dumps(value, sort_keys=True)
    scalar: Scalar = value
    return scalar


def _finite(value: float | None) -> bool:
    try:
        return value is None or math.isfinite(value)
    except OverflowError:  # an integer that no float can represent
        return False


def _steps(record: dict[str, Any], seconds: tuple[float, ...], where: str) -> tuple[float, ...]:
    try:
        steps = tuple(float(step) for step in _array(record.get("step") or []))
    except (TypeError, ValueError, OverflowError):
        raise TraceError(f"{where}: step must be an array of numbers, one an evaluation") from None
    sound = len(steps) == len(seconds) and all(map(math.isfinite, steps)) and all(b > a for a, b in pairwise(steps))
    if steps and not sound:
        raise TraceError(f"{where}: {len(steps)} steps; give one an evaluation, each above the one before, or none")
    if steps and steps[0] < 0.0:
        raise TraceError(f"{where}: step is {steps[0]:g}, less than 0; give the steps since the trial began")
    return steps


def _additional_metrics(record: dict[str, Any], where: str) -> tuple[MetricSummary, ...]:
    try:
        return from_status([AdditionalMetric.model_validate(one) for one in record.get("observations") or ()])
    except (ValidationError, TypeError):
        raise TraceError(f"{where}: observations must be as in a trial's status, or left out") from None


def trace_lines(trace: Trace) -> Iterator[str]:
    """Return the lines that `parse` reads back as the same trace; a value that was not finite is null."""
    header = {"task": trace.task, "metric": trace.metric, "goal": trace.goal, "target": trace.target}
    if trace.left_out:
        header["left_out"] = trace.left_out
    yield json.dumps(header)
    for trial in trace.trials:
        values = [None if diverged(v) else v for v in trial.values]
        line = {"trial": trial.name, "hparams": dict(trial.hparams), "seconds": list(trial.seconds), "value": values}
        if trial.steps:
            line["step"] = list(trial.steps)
        if trial.additional_metrics:
            summaries = to_status(trial.additional_metrics)
            line["observations"] = [one.model_dump(by_alias=True, exclude_none=True) for one in summaries]
        yield json.dumps(line)

"""Recorded learning curves of real training runs: one task per file, gzip or plain JSON lines.

The first line is the header: task, metric, goal, target, and the number of trials that were left out. Each further line
is a trial. It has the cumulative training seconds, the step and the validation value of every evaluation (null where a
value was not finite). The summaries of its additional metrics are those of the trial's status.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from podium_core.curves.additional_metrics import MetricSummary, from_status, to_status
from podium_core.curves.non_finite import diverged, to_wire
from podium_core.domain.phrases import one_line
from podium_core.domain.snapshot import Scalar
from podium_core.schema.storable import is_text
from podium_core.schema.trial import AdditionalMetric
from podium_core.tables.csv_table import shown
from podium_core.tables.text_file import TextFileError, text_lines

GOALS = ("maximize", "minimize")
MAX_SECONDS = 1e8  # of a trial, three years: sums of 64 of them still resolve microseconds
MAX_EVALUATIONS = 2_000_000  # of one file
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that may be half of a surrogate pair
ARRAYS = "seconds, value and step must be arrays of numbers, one an evaluation (value: or null)"
MAX_LEFT_OUT = 10**9  # trials: a number that fits into headings
EVALUATION_SECONDS = 60.0  # for tasks without recorded wall time, whose seconds count evaluations


class TraceError(ValueError):
    """The file does not have the format; the message names file, line and cure."""

    code = "InvalidCurves"

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


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


def load(path: Path) -> Trace:
    """Return the trace in one file. Raises TraceError."""
    try:
        return parse(text_lines(path), path.name)
    except TextFileError as error:
        raise TraceError(str(error)) from None


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
    """Return the trace in these lines. Raises TraceError with the line and the cure."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    records = ((number, _record(line, name, number)) for number, line in numbered)
    _, first = next(records, (0, None))
    header = {} if first is None else first
    if first is not None:
        _check_header(header, name)
    # "no wall time recorded: seconds = evaluation index"
    scale = EVALUATION_SECONDS if "no wall time" in str(header.get("note")) else 1.0
    maximize = header.get("goal") == "maximize"
    trials: list[RecordedTrial] = []
    evaluations = 0
    for number, record in records:
        trial = _trial(record, maximize, scale, f"{name}, line {number}")
        trials.append(trial)
        evaluations += len(trial.values)
        if evaluations > MAX_EVALUATIONS:
            text = f"more than {MAX_EVALUATIONS} evaluations; keep every tenth of each trial"
            raise TraceError(f"{name}, line {number}: {text}")
    if not trials:
        raise TraceError(f"{name}: {int(first is not None)} lines; a header and at least one trial are needed")
    family = name.partition(".")[0].partition("-")[0]
    left_out, target = header.get("left_out", 0), header.get("target")
    return Trace(header["task"], family, header["metric"], maximize, target, tuple(trials), left_out)


def _check_header(header: Mapping[str, Any], name: str) -> None:
    lacking = [key for key in ("task", "metric", "goal") if not isinstance(header.get(key), str)]
    if lacking or header["goal"] not in GOALS:
        text = f"without {', '.join(lacking)}" if lacking else f"with goal {shown(header['goal'])}"
        raise TraceError(f"{name}: a header {text}; give task, metric, and goal: maximize or minimize")
    target = header.get("target")
    if isinstance(target, bool) or not isinstance(target, int | float | None) or not _finite(target):
        raise TraceError(f"{name}: target is {shown(target)}; give a number, or null for none")
    left_out = header.get("left_out", 0)
    if type(left_out) is not int or not 0 <= left_out <= MAX_LEFT_OUT:
        text = f"give how many trials of the search are not in the file, 0 to {MAX_LEFT_OUT}, or no left_out for none"
        raise TraceError(f"{name}: left_out is {shown(left_out)}; {text}")


def _record(line: str, name: str, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}, line {number}: not JSON ({error}); give JSON lines, one object a line") from None
    if not isinstance(record, dict):
        raise TraceError(f"{name}, line {number}: {shown(record)} is not a JSON object; give one object a line")
    if _HALF.search(line) and not is_text(json.dumps(record, ensure_ascii=False)):
        text = "half of a surrogate pair (\\ud800 to \\udfff), which is not a character; write the whole character"
        raise TraceError(f"{name}, line {number}: {text}")
    return record


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shown(repeated)} is there twice")
    return record


def _trial(record: dict[str, Any], maximize: bool, scale: float, where: str) -> RecordedTrial:
    missing = [key for key in ("trial", "seconds", "value") if key not in record]
    if missing:
        raise TraceError(f"{where}: no {', '.join(missing)}; see the format in docs/reference/curve-files.md")
    if not isinstance(hparams := record.get("hparams", {}), dict):
        raise TraceError(f"{where}: hparams is {shown(hparams)}; give an object of names and values, or leave it out")
    if isinstance(trial := record["trial"], bool) or not isinstance(trial, str | int | float):
        raise TraceError(f"{where}: trial is {shown(trial)}; give a name or a number")
    seconds = tuple(number * scale for number in _numbers(record, "seconds", where))
    values = tuple(to_wire(number, maximize) for number in _numbers(record, "value", where))
    if not seconds or len(seconds) != len(values):
        raise TraceError(f"{where}: {len(seconds)} times and {len(values)} values; give one of each an evaluation")
    if not (seconds[0] > 0.0 and seconds[-1] < math.inf and all(b > a for a, b in pairwise(seconds))):
        raise TraceError(f"{where}: seconds must be above 0, finite, and increase from evaluation to evaluation")
    check_length(seconds[-1], where)
    return RecordedTrial(
        str(trial),
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


def _numbers(record: Mapping[str, Any], key: str, where: str) -> tuple[float, ...]:
    """Return the numbers of an array; null is not finite, which only a value may be."""
    given = record[key]
    if not isinstance(given, list):
        raise TraceError(f"{where}: {key} is {shown(given)}; {ARRAYS}")
    numbers: list[float] = []
    for position, one in enumerate(given):
        if one is None and key == "value":
            numbers.append(math.nan)
            continue
        try:
            if isinstance(one, bool):  # Python reads true as 1
                raise TypeError(one)
            numbers.append(float(one))
        except (TypeError, ValueError):
            raise TraceError(f"{where}: {key}[{position}] is {shown(one)}; {ARRAYS}") from None
        except OverflowError:
            text = f"{key}[{position}] is beyond 1.8e308; give a smaller number, or null for a value"
            raise TraceError(f"{where}: {text}") from None
    return tuple(numbers)


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
    steps = _numbers(record, "step", where) if record.get("step") else ()
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

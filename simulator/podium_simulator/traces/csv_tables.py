"""CSV tables as traces: one line per evaluation. `sources` calls it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from podium_core.curves.non_finite import to_wire
from podium_core.domain.phrases import count, one_line
from podium_core.domain.snapshot import Scalar
from podium_core.tables.csv_table import Numbers, Row, Table, TableError, named, open_table, shown, unnamed
from podium_core.tables.text_file import TextFileError, text_lines
from podium_simulator.traces.event_files import Report, ignore
from podium_simulator.traces.trace import MAX_EVALUATIONS, RecordedTrial, Trace, TraceError, check_length

METRIC = "value"  # name of a table's metric, which no option changes
COLUMNS = ("trial", "step", METRIC, "seconds")
MAX_NAMED = 5  # columns that a report names
Evaluation = tuple[float, float, float]  # step, seconds, value


@dataclass(slots=True)
class _Read:
    """What the rows of one trial hold: its evaluations, and the first value of each further column."""

    points: list[Evaluation] = field(default_factory=list)
    further: dict[str, str] = field(default_factory=dict)


def is_table(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_table(path: Path, maximize: bool, report: Report = ignore) -> Trace:
    """Return the trace in a CSV table.

    The header names `trial`, `step`, `value` and `seconds` (of training, cumulative); lines are evaluations in any
    order. Further columns are hyper-parameters if they have one value a trial. A value that is empty, NaN or infinite
    counts as not finite. No trial has trained at 0 seconds, so a replay cannot use a value there. `report` receives
    what was left out. Raises TraceError.
    """
    try:
        table = open_table(text_lines(path), COLUMNS)
        trials, left_out, numbers = _trials(table, maximize, path.name)
    except (TableError, TextFileError) as error:
        where = (
            f"{path.name}, line {error.line}: " if isinstance(error, TableError) and error.line else f"{path.name}: "
        )
        raise TraceError(str(error) if isinstance(error, TextFileError) else f"{where}{error}") from None
    if left_out:
        shown_names = ", ".join(left_out[:MAX_NAMED]) + (", ..." if len(left_out) > MAX_NAMED else "")
        text = f"left out {count(len(left_out), 'column')} without a name or with several values in one trial"
        report(one_line(f"{path.name}: {text}: {shown_names}"))
    kept_out = frozenset(left_out)
    made = [
        _trial(name, read, _hparams(read, kept_out, numbers), f"{path.name}, trial {name}")
        for name, read in trials.items()
    ]
    rows, kept = sum(len(read.points) for read in trials.values()), sum(len(trial.values) for trial in made)
    if kept < rows:
        text = f"{kept} of {rows} evaluations were read; at 0 seconds, before any training: {rows - kept}"
        report(one_line(f"{path.name}: {text}"))
    stem = path.name[: path.name.lower().rindex(".csv")]
    return Trace(stem, stem.partition("-")[0], METRIC, maximize, None, tuple(made))


def _trials(table: Table, maximize: bool, name: str) -> tuple[dict[str, _Read], list[str], Numbers]:
    """Return what each trial's rows hold, the columns beside the hyper-parameters, and the reader of numbers."""
    columns = _columns(table)
    further = {at: one for at, one in enumerate(table.names) if at not in columns and not unnamed(one)}
    indexes = [at for at, one in enumerate(table.names) if unnamed(one)]
    numbers = Numbers(table.separator)
    trials: dict[str, _Read] = {}
    changing: dict[str, None] = {}
    for total, row in enumerate(table.rows, start=1):
        if total > MAX_EVALUATIONS:
            raise TraceError(f"{name}: more than {MAX_EVALUATIONS} evaluations; keep every tenth of each trial")
        trial, *texts = named(table, row, columns)
        if not trial:
            raise TableError("trial is empty; give each trial a name or a number", row.line)
        read = trials.setdefault(trial, _Read())
        read.points.append(_evaluation(texts, numbers, maximize, row.line))
        for at, column in _filled(row, further):
            if read.further.setdefault(column, row.fields[at]) != row.fields[at]:
                changing[column] = None
        changing |= {table.names[at] or f"column {at + 1}": None for at, _ in _filled(row, dict.fromkeys(indexes, ""))}
    if not trials:
        raise TableError("a header and no line; give one line an evaluation")
    return trials, list(changing), numbers


def _columns(table: Table) -> tuple[int, ...]:
    positions = [table.column(name) for name in COLUMNS]
    missing = [name for name, at in zip(COLUMNS, positions, strict=True) if at is None]
    if missing:
        header = table.separator.join(table.names)[:80]
        text = f"its header ({header}) has no {', '.join(missing)}" if header else "no header"
        raise TableError(f"{text}; the first line must name {','.join(COLUMNS)}, with commas between")
    return tuple(at for at in positions if at is not None)


def _filled(row: Row, columns: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Yield the columns of which the row has a value."""
    return ((at, name) for at, name in columns.items() if at < len(row.fields) and row.fields[at])


def _evaluation(texts: Sequence[str], numbers: Numbers, maximize: bool, line: int) -> Evaluation:
    """Return the evaluation with these texts of step, value and seconds."""
    step_text, value_text, seconds_text = texts
    found: dict[str, float] = {}
    for name, text, meant in (("step", step_text, "steps"), ("seconds", seconds_text, "seconds of training")):
        try:
            number = numbers(text)
        except ValueError as error:
            raise TableError(f"{name}: {error}: step and seconds must be numbers", line) from None
        if not math.isfinite(number):
            raise TableError(f"{name} is {shown(text)}; step and seconds must be finite numbers", line)
        if number < 0.0:
            since = f"give the {meant} since the trial began"
            raise TableError(f"{name} is {text}, less than 0; {since}", line)
        found[name] = number
    try:
        value = numbers.optional(value_text)
    except ValueError as error:
        raise TableError(f"value {error}, or leave it empty where there was none", line) from None
    return found["step"], found["seconds"], to_wire(value, maximize)


def _hparams(read: _Read, left_out: Collection[str], numbers: Numbers) -> dict[str, Scalar]:
    return {name: _scalar(text, numbers) for name, text in read.further.items() if name not in left_out}


def _trial(name: str, read: _Read, hparams: dict[str, Scalar], where: str) -> RecordedTrial:
    ordered = sorted(read.points)
    for before, after in pairwise(ordered):
        _check_order(before, after, where)
    trained = [point for point in ordered if point[1] > 0.0]
    if not trained:
        raise TraceError(f"{where}: every evaluation is at 0 seconds; training took time, give it")
    steps, seconds, values = (tuple(column) for column in zip(*trained, strict=True))
    check_length(seconds[-1], where)
    return RecordedTrial(name, MappingProxyType(hparams), seconds, values, steps)


def _check_order(before: Evaluation, after: Evaluation, where: str) -> None:
    """Raise TraceError unless `after` may follow `before`, which has the smaller step."""
    if after[0] == before[0]:
        raise TraceError(f"{where}: step {_precise(after[0])} is there twice; keep one line of each step")
    if after[1] <= before[1] and before[1] > 0.0:
        earlier = f"{_precise(before[1])} at step {_precise(before[0])}"
        text = f"seconds are {earlier}, {_precise(after[1])} at step {_precise(after[0])}"
        text += " and must increase with the step; give those since the trial began, not those of one step"
        raise TraceError(f"{where}: {text}")


def _precise(number: float) -> str:
    """Format a number so that two times of one day, in seconds since 1970, differ."""
    return f"{number:.12g}"


def _scalar(text: str, numbers: Numbers) -> Scalar:
    """Return a hyper-parameter: a number where the text is one, with the decimal mark of the table."""
    given = text.replace(",", ".") if numbers.comma and text.count(",") == 1 else text
    try:
        return float(given)
    except ValueError:
        return text

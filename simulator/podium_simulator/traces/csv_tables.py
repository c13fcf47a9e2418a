"""CSV tables as traces: one line per evaluation. `sources` calls it."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from podium_core.curves.non_finite import to_wire
from podium_core.domain.snapshot import Scalar
from podium_simulator.traces.event_files import Report, ignore
from podium_simulator.traces.trace import RecordedTrial, Trace, TraceError, check_length, open_text

METRIC = "value"  # name of a table's metric, which no option changes
COLUMNS = ("trial", "step", METRIC, "seconds")
BEYOND = "\0beyond"  # key of fields that the header does not name; no CSV column has this name
Evaluation = tuple[float, float, float]  # step, seconds, value


def is_table(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_table(path: Path, maximize: bool, report: Report = ignore) -> Trace:
    """Return the trace in a CSV table.

    The header names `trial`, `step`, `value` and `seconds` (of training, cumulative); lines are evaluations in any
    order. Further columns are hyper-parameters. A value that is empty, NaN or infinite counts as not finite. No trial
    has trained at 0 seconds, so a replay cannot use a value there: `report` receives the number of such lines. Raises
    TraceError.
    """
    rows = _rows(path)
    trials: dict[str, list[Evaluation]] = {}
    hparams: dict[str, dict[str, Scalar]] = {}
    for number, row in enumerate(rows, start=2):
        trials.setdefault(row["trial"], []).append(_evaluation(row, maximize, f"{path.name}, line {number}"))
        given = {k: _scalar(v) for k, v in row.items() if k not in COLUMNS and v}
        hparams.setdefault(row["trial"], given)
    made = [_trial(name, points, hparams[name], f"{path.name}, trial {name}") for name, points in trials.items()]
    untrained = len(rows) - sum(len(trial.values) for trial in made)
    if untrained:
        kept = len(rows) - untrained
        report(
            f"{path.name}: {kept} of {len(rows)} evaluations were read; at 0 seconds, before any training: {untrained}"
        )
    stem = path.name[: path.name.lower().rindex(".csv")]
    return Trace(stem, stem.partition("-")[0], METRIC, maximize, None, tuple(made))


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with open_text(path, "utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey=BEYOND)
            rows, header = list(reader), reader.fieldnames or []
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path.name}: not a CSV table ({error}); save it as UTF-8 with commas") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path.name}: not a complete gzip file ({error}); copy it again, or unpack it") from None
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        text = f"its header ({','.join(header)[:80]}) has no {', '.join(missing)}" if header else "no header"
        raise TraceError(f"{path.name}: {text}; the first line must name {','.join(COLUMNS)}, with commas between")
    # A spreadsheet ends its lines with commas: columns without a name and usually without a value.
    again = [name for name, times in Counter(header).items() if name and times > 1]
    if again:
        text = f"its header names {', '.join(again)} more than once; give each column a name of its own"
        raise TraceError(f"{path.name}: {text}, or leave one out")
    if not rows:
        raise TraceError(f"{path.name}: a header and no line; give one line an evaluation")
    return rows


def _evaluation(row: dict[str, str], maximize: bool, where: str) -> Evaluation:
    if BEYOND in row:
        raise TraceError(f"{where}: more fields than the header names; quote those with a comma, write 0.5 for 0,5")
    if not row["trial"]:
        raise TraceError(f"{where}: trial is empty; give each trial a name or a number")
    try:
        step, seconds = float(row["step"]), float(row["seconds"])
    except (TypeError, ValueError):
        raise TraceError(f"{where}: step and seconds must be numbers") from None
    if not (math.isfinite(step) and math.isfinite(seconds)):
        raise TraceError(f"{where}: step and seconds must be finite numbers")
    for field, number, meant in (("step", step, "steps"), ("seconds", seconds, "seconds of training")):
        if number < 0.0:
            text = f"{field} is {row[field]}, less than 0; give the {meant} since the trial began"
            raise TraceError(f"{where}: {text}")
    try:
        value = float(row[METRIC] or math.nan)
    except ValueError:
        text = f"value {row[METRIC]!r} is not a number; leave it empty where there was none"
        raise TraceError(f"{where}: {text}") from None
    return step, seconds, to_wire(value, maximize)


def _trial(name: str, points: Sequence[Evaluation], hparams: dict[str, Scalar], where: str) -> RecordedTrial:
    ordered = sorted(points)
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


def _scalar(text: str) -> Scalar:
    try:
        return float(text)
    except ValueError:
        return text

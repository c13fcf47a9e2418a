"""Learning curves from all sources: JSON lines, CSV tables, TensorBoard folders. One trace per source.

`podium simulate` and `podium plan` call it. `ReadOptions` holds what a source may not contain: which direction is
better, and which of several metrics to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podium_core.curves.non_finite import diverged
from podium_core.tables.text_file import is_packed
from podium_simulator.traces.csv_tables import is_table, read_table
from podium_simulator.traces.event_files import Report, event_files, ignore, is_event_file, read_events
from podium_simulator.traces.trace import Trace, TraceError, load

KINDS = "JSON lines (.jsonl, .jsonl.gz), CSV tables (.csv, .csv.gz) and folders with TensorBoard's event files"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for sources that do not describe themselves.

    `maximize`: direction of CSV tables and TensorBoard folders. `metric`: tag to read from TensorBoard folders; that of
    a CSV table is always `value`. JSON lines contain both.
    """

    maximize: bool = True
    metric: str | None = None


def read_all(paths: Iterable[Path], options: ReadOptions, report: Report = ignore) -> tuple[Trace, ...]:
    """Return the traces of all paths.

    `report` receives what was left out. Raises TraceError, and OSError where a path cannot be read.
    """
    traces: list[Trace] = []
    for path in paths:
        for source, trace in _read(path, options, report):
            if all(diverged(value) for trial in trace.trials for value in trial.values):
                text = f"not one of its values of {trace.metric} is a finite number: there is nothing to rank by"
                raise TraceError(f"{source.name}: {text}; name curves with values")
            traces.append(trace)
    return tuple(traces)


def needs_goal(paths: Iterable[Path]) -> bool:
    """Return whether a path has curves that do not state which direction is better."""
    return any(is_table(path) or (path.is_dir() and (_tables(path) or event_files(path))) for path in paths)


def needs_metric(paths: Iterable[Path]) -> bool:
    """Return whether a path is a TensorBoard folder; only these may hold several metrics."""
    return any(path.is_dir() and event_files(path) for path in paths)


def reads_as_lines(path: Path) -> bool:
    """Return whether a file of this name with plain JSON lines would be read as such."""
    return not (is_table(path) or is_event_file(path) or is_packed(path))


def _read(path: Path, options: ReadOptions, report: Report) -> Iterator[tuple[Path, Trace]]:
    """Return each trace with its file or folder."""
    if path.is_dir():
        yield from _read_folder(path, options, report)
    elif is_table(path):
        yield path, read_table(path, options.maximize, report)
    else:
        yield path, _read_lines(path)


def _read_folder(folder: Path, options: ReadOptions, report: Report) -> Iterator[tuple[Path, Trace]]:
    """Return a folder's runs or its curve files. Both kinds at once are ambiguous and raise TraceError."""
    lines, tables, events = _lines(folder), _tables(folder), event_files(folder)
    if events and (lines or tables):
        text = f"it holds {(lines + tables)[0].name} and TensorBoard's {events[0].relative_to(folder)}, two kinds"
        raise TraceError(f"{folder.name}: {text}; name the files, or a subfolder that has the runs alone")
    if events:
        yield folder, read_events(folder, options.metric, options.maximize, report)
    for file in lines:
        yield file, load(file)
    for file in tables:
        yield file, read_table(file, options.maximize, report)


def _read_lines(path: Path) -> Trace:
    if is_event_file(path):
        text = f"an event file of TensorBoard; name its folder, {path.parent}"
        raise TraceError(f"{path.name}: {text}, or that of all runs")
    try:
        return load(path)
    except TraceError as error:
        if _is_lines(path):
            raise
        raise TraceError(f"{error}; files that are read: {KINDS}") from None


def _lines(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if _is_lines(file))


def _tables(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if is_table(file))


def _is_lines(path: Path) -> bool:
    return ".jsonl" in path.name.lower() and not is_table(path)

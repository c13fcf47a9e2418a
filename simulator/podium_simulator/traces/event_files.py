"""TensorBoard folders as traces: each folder with event files below the given one is a trial, or a series of one.

It reads scalars as PyTorch, Lightning and tensorboardX write them, and as TensorFlow 2 and Keras do (tensors of the
plugin "scalars"). `event_records` reads the files, `event_series` decides which runs count. Called by `sources`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from types import MappingProxyType

from podium_core.curves.non_finite import to_wire
from podium_core.domain.phrases import count, one_line
from podium_core.tables.csv_table import shown_name
from podium_simulator.traces.event_records import Points, Run, load
from podium_simulator.traces.event_series import AmbiguousSeriesError, choose, prefix_of, series_of
from podium_simulator.traces.trace import MAX_EVALUATIONS, RecordedTrial, Trace, TraceError, check_length

PATTERN = "*tfevents*"
MAX_NAMES = 3  # of runs in a report
MAX_FILES = 100_000  # event files of one folder
Report = Callable[[str], None]


def ignore(text: str) -> None:
    """Ignore a report."""


def event_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(PATTERN) if path.is_file())


def is_event_file(path: Path) -> bool:
    return path.match(PATTERN)


def read_events(folder: Path, metric: str | None, maximize: bool, report: Report = ignore) -> Trace:
    """Return the trace in a folder of runs.

    `metric`: tag of the scalar; None where all runs have only one. Time is wall time since a trial's first event, so a
    paused trial looks longer than it trained. Of several series of one trial, such as `train` and `validation` of
    Keras, one counts. `report` receives what was left out. Raises TraceError.
    """
    runs = _runs(folder, metric)
    tag, asked = _tag(folder, runs, metric)
    having = {run.name: run for run in runs if tag in run.tags}
    names = {run.name for run in runs}
    try:
        choice = choose(having, tag, asked, names)
    except AmbiguousSeriesError as error:
        raise TraceError(f"{folder.name}: {error}") from None
    started: dict[str, float] = {}  # of each trial: a folder of a series may begin with its first value
    for run in runs:
        trial = choice.trial_of.get(run.name, run.name)
        started[trial] = min(started.get(trial, math.inf), run.started)
    trials = [_trial(having[name], tag, maximize, started[choice.trial_of[name]], report) for name in choice.runs]
    parents = set(choice.trial_of.values())
    without = [run.name for run in runs if tag not in run.tags and not run.empty and run.name not in parents]
    empty = [run.name for run in runs if run.empty]
    if empty or without:
        why = [f"without {shown_name(tag)}: {_names(without)}"] if without else []
        why += [f"no event could be read of: {_names(empty)}"] if empty else []
        every = len(trials) + len(without) + len(empty)
        report(one_line(f"{folder.name}: {len(trials)} of {every} runs were read; {'; '.join(why)}"))
    if choice.left_out:
        text = f"{count(len(choice.left_out), 'further series', 'further series')} of the same trials left out"
        report(one_line(f"{folder.name}: {text}: {_names(choice.left_out)}"))
    broken = [one for run in runs for one in run.broken if not run.empty]
    if broken:
        text = f"{count(len(broken), 'file')} cut off or damaged, read up to there"
        report(one_line(f"{folder.name}: {text}: {_names(broken)}"))
    return Trace(folder.name, folder.name.partition("-")[0], tag, maximize, None, tuple(trials))


def _runs(folder: Path, metric: str | None) -> list[Run]:
    """Return all runs, with the values of tags that may be meant."""
    files: dict[Path, list[Path]] = {}
    for number, path in enumerate(event_files(folder)):
        if number >= MAX_FILES:
            raise TraceError(f"{folder.name}: more than {MAX_FILES} event files; name a subfolder")
        files.setdefault(path.parent, []).append(path)
    first: list[str] = []

    def wanted(tag: str) -> bool:
        if metric is not None:
            return tag == metric or metric.replace("/", "_").startswith(prefix_of(tag))
        if not first:
            first.append(tag)
        return tag == first[0]

    runs: list[Run] = []
    total = 0
    for path in sorted(files):
        runs.append(load(folder, path.relative_to(folder), files[path], wanted))
        total += sum(len(points.by_step) for points in runs[-1].tags.values())
        if total > MAX_EVALUATIONS:
            raise TraceError(f"{folder.name}: more than {MAX_EVALUATIONS} values; name a subfolder")
    return runs


def _tag(folder: Path, runs: Sequence[Run], metric: str | None) -> tuple[str, str | None]:
    """Return the tag to read, and the series that the user named, as `acc_val` names one of `acc`."""
    tags = sorted({tag for run in runs for tag in run.tags})
    known = f"{', '.join(map(shown_name, tags[:8]))}{', ...' if len(tags) > 8 else ''}"
    empty = [run.name for run in runs if run.empty]
    if not tags and empty:
        text = f"no event could be read of {_names(empty)}: the files are broken, or of another kind; copy them again"
        raise TraceError(f"{folder.name}: {text}, or give a CSV with trial, step, value and seconds")
    if not tags:
        text = f"its {len(runs)} runs hold no scalar; log the metric as one, or give a CSV"
        raise TraceError(f"{folder.name}: {text} with trial, step, value and seconds")
    if metric is None and len(tags) > 1:
        raise TraceError(f"{folder.name}: {len(tags)} scalars ({known}); name one with --metric")
    if metric is None or metric in tags:
        return metric or tags[0], None
    names = {run.name for run in runs}
    for tag in tags:
        suffix = metric.replace("/", "_").removeprefix(prefix_of(tag))
        if any(series_of(run.name, tag, names)[1] == suffix for run in runs if tag in run.tags):
            return tag, suffix
    text = f"no run has a scalar {metric!r}; name one of these with --metric: {known}"
    raise TraceError(f"{folder.name}: {text}")


def _names(runs: Sequence[str]) -> str:
    return f"{', '.join(runs[:MAX_NAMES])}{f' and {len(runs) - MAX_NAMES} more' if len(runs) > MAX_NAMES else ''}"


def _trial(run: Run, tag: str, maximize: bool, trial_started: float, report: Report) -> RecordedTrial:
    """Return the trial of a run. `trial_started`: wall time of its first event.

    Steps that were reached before a crash and not again after it are left out: their times lie before those of lower
    steps. Converted files and runs of one event have a value at the very beginning. The time before it
    is taken to be as long as between two values.
    """
    where, points = run.where, _checked(run, tag)
    kept = points[:1]
    kept += [point for point, before in zip(points[1:], _latest(points), strict=False) if point[1] > before]
    if 2 * len(kept) < len(points):
        text = f"{len(points)} values of {tag}, only {len(kept)} of them later than those of lower steps"
        raise TraceError(f"{where}: {text}; keep each trial's event files in a folder of their own")
    left_out = run.tags[tag].events - len(kept)
    if left_out:
        text = f"{count(left_out, 'value')} of {shown_name(tag)} at steps that came again, or were lost in a restart"
        report(one_line(f"{where}: left out {text}; log a step that never restarts"))
    gaps = [after[1] - before[1] for before, after in pairwise(kept)]
    first = min(trial_started, run.started)
    started = first if kept[0][1] > first else kept[0][1] - (median(gaps) if gaps else 1.0)
    steps, seconds, values = zip(
        *((float(s), wall - started, to_wire(v, maximize)) for s, wall, v in kept), strict=True
    )
    check_length(seconds[-1], f"{where}, scalar {shown_name(tag)}")
    return RecordedTrial(run.name, MappingProxyType({}), seconds, values, steps)


def _checked(run: Run, tag: str) -> list[tuple[int, float, float]]:
    """Return a run's values as (step, wall time, value) by step; raise TraceError where they make no curve."""
    given: Points = run.tags[tag]
    where = f"{run.where}: scalar {shown_name(tag)}"
    if given.not_scalar:
        text = f"{where} is {given.not_scalar}, which is not one number; log one number a step"
        raise TraceError(f"{text}, or name another scalar with --metric")
    if given.events > 1 and len(given.by_step) == 1:
        step = next(iter(given.by_step))
        text = f"all its {given.events} values are at step {step}"
        raise TraceError(f"{where}: {text}; log each value with its step, such as global_step of add_scalar")
    points = sorted((step, wall, value) for step, (wall, value) in given.by_step.items())
    if points[0][0] < 0:
        raise TraceError(f"{where}: step is {points[0][0]}, less than 0; give the steps since the trial began")
    wrong = next((step for step, wall, _ in points if not math.isfinite(wall)), None)
    if wrong is not None:
        raise TraceError(f"{where}: the wall time of step {wrong} is not a finite number; write the file again")
    return points


def _latest(points: Iterable[tuple[int, float, float]]) -> Iterator[float]:
    """Return the latest time up to each point."""
    return accumulate((wall for _, wall, _ in points), max)

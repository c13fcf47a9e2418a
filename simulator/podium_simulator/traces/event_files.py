"""TensorBoard folders as traces: each folder with event files below the given one is a trial.

Read with TensorBoard's own package, which is not a dependency of Podium: an error names it where it is missing. Called
by `sources`. It reads scalars as PyTorch, Lightning and tensorboardX write them, and as TensorFlow 2 and Keras do
(tensors of the plugin "scalars").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from podium_core.curves.non_finite import to_wire
from podium_simulator.traces.trace import RecordedTrial, Trace, TraceError

PATTERN = "*tfevents*"
TRAINING, VALIDATION = "train", "validation"  # Keras writes two runs per trial, with the same tags
MAX_NAMES = 3  # of runs in a report
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Run:
    """One run.

    `started`: wall time of its first event. `scalars`: (wall time, value) by tag and step. `broken`: its files hold
    bytes, but no event could be read.
    """

    name: str
    started: float
    scalars: Mapping[str, Mapping[int, tuple[float, float]]]
    broken: bool = False


def ignore(text: str) -> None:
    """Ignore a report."""


def event_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob(PATTERN))


def is_event_file(path: Path) -> bool:
    return path.match(PATTERN)


def read_events(folder: Path, metric: str | None, maximize: bool, report: Report = ignore) -> Trace:
    """Return the trace in a folder of runs.

    `metric`: tag of the scalar; None where all runs have only one. Time is wall time since a run's first event, so a
    paused run looks longer than it trained. Of two runs `train` and `validation` in one folder, which is how Keras
    writes a trial, the latter counts. `report` receives the names of runs that were left out. Raises TraceError.
    """
    folders = sorted({path.parent for path in event_files(folder)})
    runs = [_load(run, str(run.relative_to(folder))) for run in folders]
    tags = sorted({tag for run in runs for tag in run.scalars})
    known = f"{', '.join(tags[:8])}{', ...' if len(tags) > 8 else ''}"
    broken = [run.name for run in runs if run.broken]
    if not tags and broken:
        text = f"no event could be read of {_names(broken)}: the files are broken, or of another kind; copy them again"
        raise TraceError(f"{folder.name}: {text}, or give a CSV with trial, step, value and seconds")
    if not tags:
        text = f"its {len(runs)} runs hold no scalar; log the metric as one, or give a CSV"
        raise TraceError(f"{folder.name}: {text} with trial, step, value and seconds")
    if metric is None and len(tags) > 1:
        raise TraceError(f"{folder.name}: {len(tags)} scalars ({known}); name one with --metric")
    tag = metric or tags[0]
    if tag not in tags:
        raise TraceError(f"{folder.name}: no run has a scalar {tag!r}; name one of these with --metric: {known}")
    chosen = {run.name: run for run in runs if tag in run.scalars}
    trials = [_trial(run, tag, maximize) for name, run in chosen.items() if _validation_run(name) not in chosen]
    without = [run.name for run in runs if tag not in run.scalars and not run.broken]
    without = [name for name in without if _validation_run(name) not in chosen]
    if broken or without:
        why = [f"without {tag}: {_names(without)}"] if without else []
        why += [f"no event could be read of: {_names(broken)}"] if broken else []
        every = len(trials) + len(without) + len(broken)
        report(f"{folder.name}: {len(trials)} of {every} runs were read; {'; '.join(why)}")
    return Trace(folder.name, folder.name.partition("-")[0], tag, maximize, None, tuple(trials))


def _names(runs: Sequence[str]) -> str:
    return f"{', '.join(runs[:MAX_NAMES])}{f' and {len(runs) - MAX_NAMES} more' if len(runs) > MAX_NAMES else ''}"


def _validation_run(name: str) -> str | None:
    """Return the name of the run that counts instead of this one, if it exists."""
    path = Path(name)
    return str(path.with_name(VALIDATION)) if path.name == TRAINING else None


def _load(folder: Path, name: str) -> _Run:
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        text = "TensorBoard's event files need TensorBoard: pip install 'kube-podium[tensorboard]'"
        raise TraceError(f"{folder.name}: {text}, or give a CSV with trial, step, value and seconds") from None
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})  # 0 = all of them
    try:
        accumulator.Reload()
    except DecodeError:  # complete records of another kind
        return _Run(name, 0.0, {}, broken=True)
    # A step that was repeated after a restart counts once: a later event replaces the earlier one.
    points_by_tag = {
        tag: {event.step: (event.wall_time, float(event.value)) for event in accumulator.Scalars(tag)}
        for tag in accumulator.Tags()["scalars"]
    }
    for tag in _scalar_tensors(accumulator):
        events = accumulator.Tensors(tag)
        points_by_tag[tag] = {
            event.step: (event.wall_time, float(make_ndarray(event.tensor_proto))) for event in events
        }
    first = min((wall for points in points_by_tag.values() for wall, _ in points.values()), default=0.0)
    try:
        started = min(first, accumulator.FirstEventTimestamp())
    except ValueError:  # no event: the run has just started, or its files hold something else
        return _Run(name, first, points_by_tag, broken=any(path.stat().st_size for path in folder.glob(PATTERN)))
    return _Run(name, started, points_by_tag)


def _scalar_tensors(accumulator: Any) -> list[str]:
    try:
        return list(accumulator.PluginTagToContent("scalars"))
    except KeyError:
        return []


def _trial(run: _Run, tag: str, maximize: bool) -> RecordedTrial:
    """Return the trial of a run.

    Steps that were reached before a crash and not again after it are left out: their times lie before those of lower
    steps. Converted files and runs of one event have a value at the very beginning. The time before it
    is taken to be as long as between two values.
    """
    points = sorted((step, wall, value) for step, (wall, value) in run.scalars[tag].items())
    kept = points[:1]
    kept += [point for point, before in zip(points[1:], _latest(points), strict=False) if point[1] > before]
    if 2 * len(kept) < len(points):
        text = f"{len(points)} values of {tag}, only {len(kept)} of them later than those of lower steps"
        raise TraceError(f"run {run.name}: {text}; keep each trial's event files in a folder of their own")
    gaps = [after[1] - before[1] for before, after in pairwise(kept)]
    started = run.started if kept[0][1] > run.started else kept[0][1] - (median(gaps) if gaps else 1.0)
    steps, seconds, values = zip(
        *((float(s), wall - started, to_wire(v, maximize)) for s, wall, v in kept), strict=True
    )
    return RecordedTrial(run.name, MappingProxyType({}), seconds, values, steps)


def _latest(points: Iterable[tuple[int, float, float]]) -> Iterator[float]:
    """Return the latest time up to each point."""
    return accumulate((wall for _, wall, _ in points), max)

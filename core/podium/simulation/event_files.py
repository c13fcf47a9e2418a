"""TensorBoard folders as recordings: each folder with event files below the one named is a trial.

Read with TensorBoard's own package, which is no dependency of Podium: a clear refusal says so where it is missing.
Called by `sources`. Read are scalars as PyTorch and Lightning write them, not TensorFlow 2's, which are tensors.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

from podium.curves.wire import to_wire
from podium.simulation.recorded import RecordedTrial, Recording, RecordingError

PATTERN = "*tfevents*"


def holds_events(folder: Path) -> bool:
    return any(True for _ in folder.rglob(PATTERN))


def read_events(folder: Path, metric: str | None, maximize: bool) -> Recording:
    """`metric`: the scalar's tag; None where all runs have only one. Time is wall time since a run's first event, so a
    run that was paused looks longer than it trained. Raises RecordingError.
    """
    runs = sorted({path.parent for path in folder.rglob(PATTERN)})
    loaded = [(str(run.relative_to(folder)), _load(run)) for run in runs]
    tags = sorted({tag for _, run in loaded for tag in run.Tags()["scalars"]})
    if metric is None and len(tags) != 1:
        raise RecordingError(f"{folder.name}: {len(tags)} scalars ({', '.join(tags[:8])}); name one with --metric")
    tag = metric or tags[0]
    trials = tuple(found for name, run in loaded if (found := _trial(name, run, tag, maximize)) is not None)
    if not trials:
        raise RecordingError(f"{folder.name}: no run has a scalar {tag!r}; there are: {', '.join(tags[:8]) or 'none'}")
    return Recording(folder.name, folder.name.partition("-")[0], tag, maximize, None, trials)


def _load(run: Path) -> Any:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        text = "TensorBoard's event files need the package tensorboard, which Podium does not bring; pip install it"
        raise RecordingError(f"{run.name}: {text}, or give a CSV with trial, step, value and seconds") from None
    accumulator = EventAccumulator(str(run), size_guidance={"scalars": 0})  # 0 = all of them
    accumulator.Reload()
    return accumulator


def _trial(name: str, run: Any, tag: str, maximize: bool) -> RecordedTrial | None:
    if tag not in run.Tags()["scalars"]:
        return None
    begun = run.FirstEventTimestamp()
    points = {event.step: event for event in run.Scalars(tag)}  # what was done again after a restart counts once
    kept: list[tuple[float, float, float]] = []
    for step, event in sorted(points.items()):
        seconds = event.wall_time - begun
        if seconds > (kept[-1][1] if kept else 0.0):
            kept.append((float(step), seconds, to_wire(event.value, maximize)))
    if not kept:
        return None
    steps, seconds_, values = (tuple(column) for column in zip(*kept, strict=True))
    return RecordedTrial(name, MappingProxyType({}), seconds_, values, steps)

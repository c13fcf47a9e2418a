"""Every published cell beside ours, with its error; cells that the model was fitted on are marked.

Errors: of rates and counts relative; of missed deadlines the difference as a share (12 % against 10 % is 0.02), because
most published values are near 0. Called by `figures` and by the benchmark.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from podium_realtime.model import published
from podium_realtime.record.metrics import Summary
from podium_realtime.simulation import scenarios
from podium_realtime.simulation.calibration import SGPRS_CELLS, UNMANAGED_CELLS
from podium_realtime.simulation.scenarios import Machine, Setting

COUNTS = tuple(range(20, 31))  # of tasks, in SGPRS' figures
ZERO = 0.001  # fewer misses than this are none: the published values have one decimal of a percent
BATCHES = (2, 4, 10)


class Kind(Enum):
    RATE = "fps"
    MISSED = "missed"
    COUNT = "tasks"


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    kind: Kind
    published: float
    ours: float
    fitted: bool

    @property
    def error(self) -> float:
        if self.kind is Kind.MISSED:
            return abs(self.ours - self.published)
        return abs(self.ours / self.published - 1.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One curve of the paper's figures: a summary for each number of tasks."""

    label: str
    points: dict[int, Summary]

    @property
    def last_zero(self) -> int:
        """The largest number of tasks up to which no deadline was missed; 0 where the first one already missed."""
        found = 0
        for count in sorted(self.points):
            if self.points[count].missed >= ZERO:
                break
            found = count
        return found


def series(label: str, counts: Sequence[int], run: Callable[[int], Summary]) -> Series:
    return Series(label, {count: run(count) for count in counts})


def sgprs_series(
    machine: Machine, contexts: int, oversubscription: float, counts: Sequence[int], setting: Setting
) -> Series:
    label = f"SGPRS {contexts} contexts x {oversubscription:g}"
    return series(label, counts, lambda count: scenarios.sgprs(machine, contexts, oversubscription, count, setting))


def sgprs_cells(rows: Sequence[tuple[published.SgprsRow, Series]]) -> Iterator[Cell]:
    """SGPRS' table from series that hold at least the published numbers of tasks."""
    for row, found in rows:
        name = f"SGPRS {row.contexts} contexts x {row.oversubscription:g}"
        fitted = (row.contexts, row.oversubscription) in SGPRS_CELLS
        yield Cell(f"{name}: tasks without a miss", Kind.COUNT, row.last_zero, found.last_zero, False)
        for count, percent in row.missed.items():
            ours = found.points[count].missed
            yield Cell(f"{name}: missed at {count}", Kind.MISSED, percent / 100.0, ours, fitted and count == 30)
        yield Cell(f"{name}: fps at 30", Kind.RATE, row.fps_at_30, found.points[30].fps, fitted)


def unmanaged_cells(machine: Machine, setting: Setting) -> Iterator[Cell]:
    for contexts, row in published.UNMANAGED.items():
        for networks, fps in row.items():
            ours = scenarios.unmanaged(machine, contexts, networks, setting)
            name = f"unmanaged {contexts} context{'s' * (contexts > 1)}: fps of {networks} networks"
            yield Cell(name, Kind.RATE, fps, ours, (contexts, networks) in UNMANAGED_CELLS)


def device_cells(machine: Machine, setting: Setting) -> Iterator[Cell]:
    """The DARIS repository's rates and misses, and the rate behind the end of the speed-up curve."""
    synchronous = 1e6 / published.RESNET18_MICROSECONDS[published.DEVICE_SMS]
    yield Cell(
        "one stream, synchronous: fps", Kind.RATE, synchronous, scenarios.single_stream(machine, 1, setting), True
    )
    pipelined = scenarios.single_stream(machine, 2, setting)
    yield Cell("one stream, launched ahead: fps", Kind.RATE, published.SINGLE_STREAM_FPS, pipelined, True)
    best = max(scenarios.batched(machine, most, setting) for most in BATCHES)
    yield Cell("best batched: fps", Kind.RATE, published.BEST_BATCHED_FPS, best, True)
    found = scenarios.daris(machine, setting=setting)
    yield Cell("DARIS: fps", Kind.RATE, published.DARIS_FPS, found.all.fps, True)
    for name, ours in (("high", found.high.accepted_missed), ("low", found.low.accepted_missed)):
        yield Cell(f"DARIS: missed, {name} priority", Kind.MISSED, published.DARIS_MISSED[name], ours, False)


def median_error(cells: Sequence[Cell]) -> float:
    """Of the cells that were not fitted."""
    return statistics.median(cell.error for cell in cells if not cell.fitted)

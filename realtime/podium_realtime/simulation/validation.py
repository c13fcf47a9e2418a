"""Validation of the simulator: every published value beside the simulated one, with the error.

Errors of rates and counts are relative. Errors of miss ratios are absolute (12 % instead of 10 % is 0.02), because most
published ratios are near 0. Values used for calibration are marked.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from podium_realtime.model import published
from podium_realtime.results.metrics import Summary
from podium_realtime.simulation import scenarios
from podium_realtime.simulation.calibration import SGPRS_FIT, UNMANAGED_FIT
from podium_realtime.simulation.scenarios import HarnessModel, SimulationSettings

COUNTS = tuple(range(20, 31))  # numbers of tasks in the SGPRS figures
MISS_TOLERANCE = 0.001  # lower miss ratios count as none: published values have one decimal of a percent
BATCHES = (2, 4, 10)


class Quantity(Enum):
    """Quantities that published values measure."""

    RATE = "fps"
    MISSED = "missed"
    COUNT = "tasks"


@dataclass(frozen=True, slots=True)
class ValidationPoint:
    """A published value and its simulated counterpart."""

    name: str
    quantity: Quantity
    published_value: float
    simulated_value: float
    used_in_fit: bool

    @property
    def error(self) -> float:
        """Absolute error of a miss ratio, relative error of other values."""
        if self.quantity is Quantity.MISSED:
            return abs(self.simulated_value - self.published_value)
        return abs(self.simulated_value / self.published_value - 1.0)


@dataclass(frozen=True, slots=True)
class FigureSeries:
    """One curve of a figure: the metrics for each number of tasks."""

    label: str
    points: dict[int, Summary]

    @property
    def max_tasks_without_miss(self) -> int:
        """The largest number of tasks up to which no deadline was missed; 0 if the first point has misses."""
        largest = 0
        for count in sorted(self.points):
            if self.points[count].missed >= MISS_TOLERANCE:
                break
            largest = count
        return largest


def sweep_tasks(label: str, counts: Sequence[int], run: Callable[[int], Summary]) -> FigureSeries:
    """Run the experiment for each number of tasks."""
    return FigureSeries(label, {count: run(count) for count in counts})


def sgprs_series(
    model: HarnessModel,
    contexts: int,
    oversubscription: float,
    counts: Sequence[int],
    settings: SimulationSettings,
) -> FigureSeries:
    """Simulate one curve of SGPRS."""
    label = f"SGPRS {contexts} contexts x {oversubscription:g}"
    return sweep_tasks(label, counts, lambda count: scenarios.sgprs(model, contexts, oversubscription, count, settings))


def sgprs_points(rows: Sequence[tuple[published.SgprsRow, FigureSeries]]) -> Iterator[ValidationPoint]:
    """Compare the SGPRS table with series that contain at least the published numbers of tasks."""
    for row, series in rows:
        name = f"SGPRS {row.contexts} contexts x {row.oversubscription:g}"
        in_fit = (row.contexts, row.oversubscription) in SGPRS_FIT
        yield ValidationPoint(
            f"{name}: tasks without a miss",
            Quantity.COUNT,
            row.max_tasks_without_miss,
            series.max_tasks_without_miss,
            False,
        )
        for count, percent in row.missed.items():
            missed = series.points[count].missed
            yield ValidationPoint(
                f"{name}: missed at {count}", Quantity.MISSED, percent / 100.0, missed, in_fit and count == 30
            )
        yield ValidationPoint(f"{name}: fps at 30", Quantity.RATE, row.fps_at_30, series.points[30].fps, in_fit)


def unmanaged_points(model: HarnessModel, settings: SimulationSettings) -> Iterator[ValidationPoint]:
    """Compare the rates of networks without a scheduler."""
    for contexts, row in published.UNMANAGED.items():
        for networks, fps in row.items():
            simulated = scenarios.unmanaged(model, contexts, networks, settings)
            name = f"unmanaged {contexts} context{'s' * (contexts > 1)}: fps of {networks} networks"
            yield ValidationPoint(name, Quantity.RATE, fps, simulated, (contexts, networks) in UNMANAGED_FIT)


def device_points(model: HarnessModel, settings: SimulationSettings) -> Iterator[ValidationPoint]:
    """Compare the rates and miss ratios of the DARIS repository, and the end of the speed-up curve."""
    synchronous = 1e6 / published.RESNET18_MICROSECONDS[published.DEVICE_SMS]
    simulated = scenarios.single_stream(model, 1, settings)
    yield ValidationPoint("one stream, synchronous: fps", Quantity.RATE, synchronous, simulated, True)
    simulated = scenarios.single_stream(model, 2, settings)
    yield ValidationPoint(
        "one stream, launched ahead: fps", Quantity.RATE, published.SINGLE_STREAM_FPS, simulated, True
    )
    best = max(scenarios.batched(model, max_batch, settings) for max_batch in BATCHES)
    yield ValidationPoint("best batched: fps", Quantity.RATE, published.BEST_BATCHED_FPS, best, True)
    daris = scenarios.daris(model, settings=settings)
    yield ValidationPoint("DARIS: fps", Quantity.RATE, published.DARIS_FPS, daris.overall.fps, True)
    for name, missed in (("high", daris.high.accepted_missed), ("low", daris.low.accepted_missed)):
        expected = published.DARIS_MISSED[name]
        yield ValidationPoint(f"DARIS: missed, {name} priority", Quantity.MISSED, expected, missed, False)


def median_error(points: Sequence[ValidationPoint]) -> float:
    """Return the median error of the values that were not used for calibration."""
    return statistics.median(point.error for point in points if not point.used_in_fit)

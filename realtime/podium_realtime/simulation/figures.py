"""Figures 3 and 4 of the SGPRS paper: missed deadlines and total frames a second by number of tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_realtime.model.errors import RealtimeError
from podium_realtime.simulation import scenarios, validation
from podium_realtime.simulation.scenarios import HarnessModel, SimulationSettings
from podium_realtime.simulation.validation import FigureSeries


@dataclass(frozen=True, slots=True)
class FigureData:
    """The curves of one figure.

    `series`: SGPRS in the order of `oversubscriptions`, the naive baseline, launch-ahead.
    """

    contexts: int
    oversubscriptions: tuple[float, ...]
    series: tuple[FigureSeries, ...]


def simulate_figure(
    model: HarnessModel,
    contexts: int,
    oversubscriptions: Sequence[float],
    counts: Sequence[int],
    settings: SimulationSettings,
    report: Callable[[str], None] = lambda line: None,
) -> FigureData:
    """Simulate all curves of a figure; each point takes about a second.

    `counts`: numbers of tasks.
    `report`: receives a line for each curve.
    """
    curves = []
    for factor in oversubscriptions:
        curves.append(validation.sgprs_series(model, contexts, factor, counts, settings))
        report(_without_miss(curves[-1]))
    label = f"naive {contexts} contexts"
    curves.append(validation.sweep_tasks(label, counts, lambda n: scenarios.naive(model, contexts, n, settings)))
    report(_without_miss(curves[-1]))
    label = "launch-ahead (Podium)"
    curves.append(validation.sweep_tasks(label, counts, lambda n: scenarios.launch_ahead(model, n, settings)))
    report(_without_miss(curves[-1]))
    return FigureData(contexts, tuple(oversubscriptions), tuple(curves))


def table(figure: FigureData) -> list[str]:
    """Return a Markdown table with a row for each number of tasks and "missed % / fps" for each curve."""
    head = " | ".join(series.label for series in figure.series)
    lines = [f"| tasks | {head} |", f"| ---: |{' ---: |' * len(figure.series)}"]
    for count in sorted(figure.series[0].points):
        points = [series.points[count] for series in figure.series]
        values = " | ".join(f"{100 * point.missed:.1f} / {point.fps:.0f}" for point in points)
        lines.append(f"| {count} | {values} |")
    return lines


def plot(figures: Sequence[FigureData], path: Path) -> None:
    """Draw two panels for each figure into a file. Raises RealtimeError if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RealtimeError("PlotsMissing", "--plot", "needs matplotlib: pip install 'kube-podium[plots]'") from error
    canvas = Figure(figsize=(11, 4.2 * len(figures)), layout="constrained")
    axes = canvas.subplots(len(figures), 2, squeeze=False)
    for row, figure in zip(axes, figures, strict=True):
        for series in figure.series:
            counts = sorted(series.points)
            style = "--" if series.label.startswith("naive") else "-"
            row[0].plot(counts, [100 * series.points[n].missed for n in counts], style, marker=".", label=series.label)
            row[1].plot(counts, [series.points[n].fps for n in counts], style, marker=".", label=series.label)
        row[0].set(xlabel="tasks (ResNet-18, 30 fps)", ylabel="missed deadlines, %")
        row[1].set(xlabel="tasks (ResNet-18, 30 fps)", ylabel="total frames a second")
        row[0].set_title(f"{figure.contexts} contexts, simulated")
        row[0].legend(fontsize="small")
        for panel in row:
            panel.grid(alpha=0.3)
    canvas.savefig(path, dpi=110)


def _without_miss(series: FigureSeries) -> str:
    return f"{series.label}: no miss up to {series.max_tasks_without_miss} tasks"

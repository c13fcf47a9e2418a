"""The paper's figures 3 and 4: missed deadlines and total frames a second against the number of tasks.

`sweep` computes them (2 and 3 contexts, over-subscription 1.0, 1.5, 2.0, the naive baseline and ours beside), `table`
prints them, `plot` draws them. Called by `podium realtime simulate` and by the benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_realtime.model.refusal import RealtimeError
from podium_realtime.simulation import cells, scenarios
from podium_realtime.simulation.cells import Series
from podium_realtime.simulation.scenarios import Machine, Setting


@dataclass(frozen=True, slots=True)
class Scenario:
    """One figure: SGPRS by over-subscription, the naive baseline, ours."""

    contexts: int
    oversubscriptions: tuple[float, ...]
    series: tuple[Series, ...]  # SGPRS in the order of oversubscriptions, naive, ahead


def sweep(
    machine: Machine,
    contexts: int,
    oversubscriptions: Sequence[float],
    counts: Sequence[int],
    setting: Setting,
    report: Callable[[str], None] = lambda line: None,
) -> Scenario:
    """About a second of computing for each point."""
    found = []
    for factor in oversubscriptions:
        found.append(cells.sgprs_series(machine, contexts, factor, counts, setting))
        report(f"{found[-1].label}: no miss up to {found[-1].last_zero} tasks")
    found.append(
        cells.series(f"naive {contexts} contexts", counts, lambda n: scenarios.naive(machine, contexts, n, setting))
    )
    report(f"{found[-1].label}: no miss up to {found[-1].last_zero} tasks")
    found.append(cells.series("launch-ahead (ours)", counts, lambda n: scenarios.ahead(machine, n, setting)))
    report(f"{found[-1].label}: no miss up to {found[-1].last_zero} tasks")
    return Scenario(contexts, tuple(oversubscriptions), tuple(found))


def table(scenario: Scenario) -> list[str]:
    """Markdown: a row for each number of tasks, "missed % / fps" for each series."""
    head = " | ".join(series.label for series in scenario.series)
    found = [f"| tasks | {head} |", f"| ---: |{' ---: |' * len(scenario.series)}"]
    for count in sorted(scenario.series[0].points):
        points = [series.points[count] for series in scenario.series]
        found.append(f"| {count} | " + " | ".join(f"{100 * one.missed:.1f} / {one.fps:.0f}" for one in points) + " |")
    return found


def plot(scenarios_found: Sequence[Scenario], path: Path) -> None:
    """Writes a picture, two panels for each scenario. Raises RealtimeError where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RealtimeError("PlotsMissing", "--plot", "needs matplotlib: pip install 'kube-podium[plots]'") from error
    figure = Figure(figsize=(11, 4.2 * len(scenarios_found)), layout="constrained")
    axes = figure.subplots(len(scenarios_found), 2, squeeze=False)
    for row, scenario in zip(axes, scenarios_found, strict=True):
        for series in scenario.series:
            counts = sorted(series.points)
            style = "--" if series.label.startswith("naive") else "-"
            row[0].plot(counts, [100 * series.points[n].missed for n in counts], style, marker=".", label=series.label)
            row[1].plot(counts, [series.points[n].fps for n in counts], style, marker=".", label=series.label)
        row[0].set(xlabel="tasks (ResNet-18, 30 fps)", ylabel="missed deadlines, %")
        row[1].set(xlabel="tasks (ResNet-18, 30 fps)", ylabel="total frames a second")
        row[0].set_title(f"{scenario.contexts} contexts, simulated")
        row[0].legend(fontsize="small")
        for panel in row:
            panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)

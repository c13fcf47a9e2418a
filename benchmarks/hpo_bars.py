"""The bars of issue 7 against what was measured: each line says whether it holds. Called by bench_hpo, which counts
those of the first number of GPUs; for further ones the same table is information.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Figures = Mapping[str, Mapping[str, float]]  # policy or family -> figure -> value
SET_FOR = 4  # GPUs
RIVALS = (
    "fifo",
    "round_robin",
    "slaq",
    "hermes",
    "best_so_far",
    "median_stop",
    "median_stop_suspend",
    "asha",
    "asha_stop",
    "hyperband",
    "hyperband_stop",
    "hyperband_async",
    "hyperband_async_stop",
    "pop",
    "pop_suspend",
)


@dataclass(frozen=True, slots=True)
class Bar:
    """`least`: the floor, `ambition` beyond it; with `at_most` both are upper bounds."""

    family: str
    figure: str
    text: str
    least: float
    ambition: float
    at_most: bool = False

    def holds(self, value: float) -> bool:
        return value <= self.least if self.at_most else value >= self.least

    def reaches(self, value: float) -> bool:
        return value <= self.ambition if self.at_most else value >= self.ambition

    def shown(self, value: float) -> str:
        """Three digits, or as many as it takes for the text to stand on the value's side of the bar and the ambition:
        0.01049 against 0.01 is 0.0105, 0.010004 is not 0.01.
        """
        judged = self.holds(value), self.reaches(value)
        texts = (f"{value:.{digits}g}" for digits in range(3, 17))
        alike = (text for text in texts if (self.holds(float(text)), self.reaches(float(text))) == judged)
        return next(alike, repr(value))


BARS = (
    Bar("taskset", "b", "(b) against fifo", 3.2, 4.04),
    Bar("taskset", "b_round_robin", "(b) against round_robin", 7.0, 9.0),
    Bar("taskset", "b_slaq", "(b) against slaq", 3.2, 4.04),
    Bar("taskset", "b_worst", "(b) against fifo, worst single run", 0.6, 0.6),
    Bar("taskset", "c", "(c) against fifo", 3.7, 5.0),
    Bar("algoperf", "a", "(a) against fifo", 1.0, 1.25),
    Bar("algoperf", "b", "(b) against fifo", 1.3, 1.6),
    Bar("algoperf", "c", "(c) against fifo", 1.0, 1.15),
    Bar("algoperf", "a_worst_task", "(a) against fifo, worst task", 0.5, 0.9),
    *(
        Bar(family, f"{metric}_over_best_rival", f"({metric}) against the best rival of this metric", 0.95, 1.10)
        for family in ("taskset", "algoperf")
        for metric in "abc"
    ),
    *(Bar(family, "switch_share", "share of switches", 0.01, 0.01, True) for family in ("taskset", "algoperf")),
    *(Bar(family, "wait", "longest wait in H, mean of runs", 8.0, 4.0, True) for family in ("taskset", "algoperf")),
    *(Bar(family, "lost_by_floor", "(b) lost by the floor", 0.05, 0.05, True) for family in ("taskset", "algoperf")),
    *(Bar(family, "lost_at_30s", "(b) lost at 30 s + 30 s", 0.10, 0.04, True) for family in ("taskset", "algoperf")),
)
# shown below the bar of the first figure, without a bar of its own: a mean is no maximum
BESIDE = {"wait": ("wait_worst", "longest wait in H, worst single run")}


@dataclass(frozen=True, slots=True)
class Table:
    """Markdown lines, and how many of how many bars hold."""

    lines: tuple[str, ...]
    held: int
    of: int


def bars_report(figures: Mapping[str, Figures], costs: Figures, outcome: dict[str, object]) -> str:
    """Markdown; `figures` and `costs` by family, as measured: rounded ones would be judged wrongly."""
    table = bars_table(figures, costs)
    outcome["bars"] = {"held": table.held, "of": table.of}
    said = f"\n{table.held} of {table.of} bars hold.\n"
    return "\n".join(["## The bars\n", *table.lines, said]) if table.of else ""


def bars_beside(figures: Mapping[str, Figures], costs: Figures, gpus: int) -> str:
    """Markdown: the same table for a further number of GPUs, as information."""
    table = bars_table(figures, costs)
    head = f"## For information: the same with {gpus} GPUs\n"
    said = f"The bars were set for {SET_FOR} GPUs: these lines are not counted among those that hold.\n"
    return "\n".join([head, said, *table.lines, ""]) if table.of else ""


def bars_table(figures: Mapping[str, Figures], costs: Figures) -> Table:
    """One line a bar that was measured, and those of `BESIDE`."""
    lines = ["| family | envelope | measured | bar (ambition) | holds |", "| --- " * 5 + "|"]
    held = total = 0
    for bar in BARS:
        value = _value(bar, figures, costs)
        if value is None:
            continue
        total += 1
        held += bar.holds(value)
        said = "ambition" if bar.reaches(value) else "yes" if bar.holds(value) else "**no**"
        sign = "at most" if bar.at_most else "at least"
        goal = f"{sign} {bar.least:g} ({bar.ambition:g})"
        lines.append(f"| {bar.family} | {bar.text} | {bar.shown(value)} | {goal} | {said} |")
        figure, text = BESIDE.get(bar.figure, ("", ""))
        if figure:
            worst = figures[bar.family]["envelope"][figure]
            lines.append(f"| {bar.family} | {text} | {worst:.3g} | no bar | information |")
    return Table(tuple(lines), held, total)


def _value(bar: Bar, figures: Mapping[str, Figures], costs: Figures) -> float | None:
    table = figures.get(bar.family, {})
    ours = table.get("envelope")
    if ours is None:
        return None
    if bar.figure.endswith("_over_best_rival"):
        metric = bar.figure[0]
        best = best_rival(table, metric)
        return None if best is None or metric not in ours else ours[metric] / best
    return ours.get(bar.figure, costs.get(bar.family, {}).get(bar.figure))


def best_rival(table: Figures, metric: str) -> float | None:
    """The highest ratio against fifo of all rivals but the oracle; fifo itself has 1."""
    found: Iterable[float] = [1.0 if n == "fifo" else table[n].get(metric, 0.0) for n in RIVALS if n in table]
    return max(found, default=None)

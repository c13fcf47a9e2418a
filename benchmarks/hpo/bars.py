"""The bars of bench_hpo: the limits that the envelope's figures have to keep.

bench_hpo counts the bars of its first number of GPUs. For further numbers the same table is information.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks.hpo.runs import MAIN_METRICS

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
_OVER_BEST_RIVAL = "_over_best_rival"


@dataclass(frozen=True, slots=True)
class Bar:
    """One limit: `least` is required, `ambition` lies beyond it. With `at_most` both are upper bounds."""

    family: str
    figure: str
    text: str
    least: float
    ambition: float
    at_most: bool = False

    def holds(self, value: float) -> bool:
        """Return whether `value` keeps the bar."""
        return value <= self.least if self.at_most else value >= self.least

    def reaches(self, value: float) -> bool:
        """Return whether `value` reaches the ambition."""
        return value <= self.ambition if self.at_most else value >= self.ambition

    def shown(self, value: float) -> str:
        """Return `value` with three digits, or with as many as the verdict needs.

        The text lies on the same side of the bar and of the ambition as the value: against a bar of 0.01, the value
        0.01049 is shown as 0.0105 and 0.010004 is not shown as 0.01.
        """
        verdict = self.holds(value), self.reaches(value)
        texts = (f"{value:.{digits}g}" for digits in range(3, 17))
        faithful = (text for text in texts if (self.holds(float(text)), self.reaches(float(text))) == verdict)
        return next(faithful, repr(value))


_FAMILIES = ("taskset", "algoperf")
_GUARD = "time_to_best lost by the starvation guard"
BARS = (
    Bar("taskset", "time_to_best", "time_to_best against fifo", 3.2, 4.04),
    Bar("taskset", "time_to_best_vs_round_robin", "time_to_best against round_robin", 7.0, 9.0),
    Bar("taskset", "time_to_best_vs_slaq", "time_to_best against slaq", 3.2, 4.04),
    Bar("taskset", "time_to_best_worst", "time_to_best against fifo, worst single run", 0.6, 0.6),
    Bar("taskset", "mean_regret", "mean_regret against fifo", 3.7, 5.0),
    Bar("algoperf", "time_to_target", "time_to_target against fifo", 1.0, 1.25),
    Bar("algoperf", "time_to_best", "time_to_best against fifo", 1.3, 1.6),
    Bar("algoperf", "mean_regret", "mean_regret against fifo", 1.0, 1.15),
    Bar("algoperf", "time_to_target_worst_task", "time_to_target against fifo, worst task", 0.5, 0.9),
    *(
        Bar(family, f"{metric}{_OVER_BEST_RIVAL}", f"{metric} against the best rival of this metric", 0.95, 1.10)
        for family in _FAMILIES
        for metric in MAIN_METRICS
    ),
    *(Bar(family, "switch_share", "share of switches", 0.01, 0.01, True) for family in _FAMILIES),
    *(Bar(family, "wait", "longest wait in H, mean of runs", 8.0, 4.0, True) for family in _FAMILIES),
    *(Bar(family, "lost_by_guard", _GUARD, 0.05, 0.05, True) for family in _FAMILIES),
    *(Bar(family, "lost_at_30s", "time_to_best lost at 30 s + 30 s", 0.10, 0.04, True) for family in _FAMILIES),
)
# shown below the bar of the first figure, without a bar of its own: a mean hides its maximum
BESIDE = {"wait": ("wait_worst", "longest wait in H, worst single run")}


@dataclass(frozen=True, slots=True)
class BarsTable:
    """Markdown lines; `held` of `total` bars hold."""

    lines: tuple[str, ...]
    held: int
    total: int


def bars_report(figures: Mapping[str, Figures], costs: Figures, outcome: dict[str, object]) -> str:
    """Return the bars as Markdown, and add their count to `outcome`.

    `figures` and `costs` are given by family, as measured: rounded ones would be judged wrongly.
    """
    table = bars_table(figures, costs)
    outcome["bars"] = {"held": table.held, "of": table.total}
    summary = f"\n{table.held} of {table.total} bars hold.\n"
    return "\n".join(["## The bars\n", *table.lines, summary]) if table.total else ""


def bars_beside(figures: Mapping[str, Figures], costs: Figures, gpus: int) -> str:
    """Return the same table for a further number of GPUs as Markdown, for information."""
    table = bars_table(figures, costs)
    head = f"## For information: the same with {gpus} GPUs\n"
    note = f"The bars were set for {SET_FOR} GPUs: these lines are not counted among those that hold.\n"
    return "\n".join([head, note, *table.lines, ""]) if table.total else ""


def bars_table(figures: Mapping[str, Figures], costs: Figures) -> BarsTable:
    """Return one line for each bar that was measured, and the lines of `BESIDE`."""
    lines = ["| family | envelope | measured | bar (ambition) | holds |", "| --- " * 5 + "|"]
    held = total = 0
    for bar in BARS:
        value = _value(bar, figures, costs)
        if value is None:
            continue
        total += 1
        held += bar.holds(value)
        verdict = "ambition" if bar.reaches(value) else "yes" if bar.holds(value) else "**no**"
        sign = "at most" if bar.at_most else "at least"
        limit = f"{sign} {bar.least:g} ({bar.ambition:g})"
        lines.append(f"| {bar.family} | {bar.text} | {bar.shown(value)} | {limit} | {verdict} |")
        figure, text = BESIDE.get(bar.figure, ("", ""))
        if figure:
            worst = figures[bar.family]["envelope"][figure]
            lines.append(f"| {bar.family} | {text} | {worst:.3g} | no bar | information |")
    return BarsTable(tuple(lines), held, total)


def _value(bar: Bar, figures: Mapping[str, Figures], costs: Figures) -> float | None:
    table = figures.get(bar.family, {})
    envelope = table.get("envelope")
    if envelope is None:
        return None
    if bar.figure.endswith(_OVER_BEST_RIVAL):
        metric = bar.figure.removesuffix(_OVER_BEST_RIVAL)
        best = best_rival(table, metric)
        return None if best is None or metric not in envelope else envelope[metric] / best
    return envelope.get(bar.figure, costs.get(bar.family, {}).get(bar.figure))


def best_rival(table: Figures, metric: str) -> float | None:
    """Return the highest ratio against fifo of all rivals (fifo's own is 1).

    The result is None where no rival was measured.
    """
    ratios: Iterable[float] = [1.0 if n == "fifo" else table[n].get(metric, 0.0) for n in RIVALS if n in table]
    return max(ratios, default=None)

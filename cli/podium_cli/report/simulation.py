"""Report of simulated searches as one HTML file, with all policies side by side.

The drawings show the first search of each file, the table shows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from podium_cli.views import system as system_view
from podium_simulator.replay.samples import Sample
from podium_simulator.system.results.comparison import SearchResult, SystemComparison
from podium_simulator.system.results.outcome import TRAINING, Outcome
from podium_views import charts, formatting, svg
from podium_views.model import LEVELS, AllocationBar, Lane
from podium_views.svg import element
from podium_views.template import render as render_template

COLOURS = 10  # number of colours for policies in page.css
LETTER_WIDTH = 6.4  # approximate, in a label


@dataclass(frozen=True, slots=True)
class TaskSection:
    """All that the page shows about the searches of one file of curves."""

    name: str
    metric: str
    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    policies: Sequence[str]
    stairs: Markup
    regret: Markup
    overhead: Markup
    gantts: Sequence[tuple[str, Markup]]


def render(comparisons: Sequence[SystemComparison]) -> str:
    """Return the page; the same curves and options give the same file."""
    return render_template(
        "podium_cli.report",
        "simulation.html.j2",
        tasks=[_task(comparison) for comparison in comparisons],
        colours=COLOURS,
    )


def _task(comparison: SystemComparison) -> TaskSection:
    names = system_view.fastest_first(comparison)
    firsts = [comparison.runs[name][0] for name in names]
    sample, metric = comparison.samples[0], comparison.trace.metric
    span = max(run.outcome.makespan for run in firsts)
    return TaskSection(
        name=comparison.trace.task,
        metric=metric,
        heading=system_view.heading(comparison),
        columns=system_view.columns(comparison),
        rows=system_view.rows(comparison),
        policies=names,
        stairs=_stairs(firsts, metric, span),
        regret=_bars(firsts, "regret"),
        overhead=_bars(firsts, "overhead"),
        gantts=[(run.policy, _gantt(run, sample, span)) for run in firsts],
    )


def _stairs(runs: Sequence[SearchResult], metric: str, span: float) -> Markup:
    """Draw the best value so far over time, with a line for each policy."""
    height = 320.0
    # the first values of a training are far from the rest and would flatten the chart
    low, high = svg.value_range([value for run in runs for _, value in run.improvements])
    x = svg.Scale(0.0, span, charts.LEFT, charts.WIDTH - charts.RIGHT)
    y = svg.Scale(low, high, height - charts.BOTTOM, charts.TOP)
    parts = [*charts.grid_y(y, metric), *charts.time_grid(x, span, height)]
    for place, run in reversed(list(enumerate(runs))):
        points: list[tuple[float, float]] = []
        for time, value in run.improvements:
            if points:
                points.append((x(time), points[-1][1]))
            points.append((x(time), y(value)))
        if not points:
            continue
        end = (x(run.outcome.makespan), points[-1][1])
        about = f"{run.policy}: best {metric} {formatting.number(run.score.best)}"
        about += f", job ended after {formatting.duration(run.outcome.makespan)}"
        parts.append(
            element(
                "g",
                svg.title(about),
                svg.path([*points, end], class_="hit"),
                svg.path([*points, end], class_=f"curve p{place % COLOURS}"),
                element("circle", cx=end[0], cy=end[1], r=3, class_=f"dot p{place % COLOURS}"),
                class_="series",
            )
        )
    label = f"Best {metric} so far by time, {formatting.count(len(runs), 'policy', 'policies')}"
    return svg.drawing(charts.WIDTH, height, label, *parts)


def _bars(runs: Sequence[SearchResult], what: str) -> Markup:
    """Draw a horizontal bar for each policy."""
    left, row = max(92.0, 8.0 + LETTER_WIDTH * max(len(run.policy) for run in runs)), 20.0
    width = left + 268.0
    values = [run.score.regret if what == "regret" else run.score.overhead for run in runs]
    height = charts.TOP + row * len(runs) + charts.BOTTOM
    x = svg.Scale(0.0, max([*values, 1e-9]), left, width - 56.0)
    parts: list[Markup] = []
    for place, (run, value) in enumerate(zip(runs, values, strict=True)):
        top = charts.TOP + row * place
        label = f"{100 * value:.1f} %" if what == "overhead" else formatting.number(value, 3)
        parts += [
            svg.text(left - 8, top + 14, run.policy, class_="label end"),
            element(
                "rect",
                x=left,
                y=top + 3,
                width=max(x(value) - left, 0.75),
                height=row - 6,
                class_=f"bar p{place % COLOURS}",
            ),
            svg.text(x(value) + 6, top + 14, label, class_="tick"),
        ]
    name = "mean regret over fifo's time" if what == "regret" else "GPU time not spent on training"
    parts.append(svg.text(left, height - 16, name, class_="axis"))
    return svg.drawing(width, height, f"{name}, {formatting.count(len(runs), 'policy', 'policies')}", *parts)


def _gantt(run: SearchResult, sample: Sample, span: float) -> Markup:
    levels = quality_levels(sample)
    lanes = [Lane(gpu, tuple(_allocations(run.outcome, gpu, levels))) for gpu in run.outcome.gpus]
    return charts.lanes(lanes, span, lane_height=30.0)


def quality_levels(sample: Sample) -> tuple[int, ...]:
    """Return the level of each trial: 0 is the best of the sample, 1 to 5 are equal parts by best value."""
    order = sorted(range(len(sample.trials)), key=lambda i: (i != sample.winner, -sample.best_of(sample.trials[i]), i))
    levels = [0] * len(order)
    for place, number in enumerate(order[1:]):
        levels[number] = 1 + place * (LEVELS - 1) // max(1, len(order) - 1)
    return tuple(levels)


def _allocations(outcome: Outcome, gpu: str, levels: Sequence[int]) -> list[AllocationBar]:
    """Return a bar for each allocation, from the start or resumption to the end of the suspension."""
    bars: list[AllocationBar] = []
    mine = sorted((span for span in outcome.spans if span.gpu == gpu), key=lambda span: (span.start, span.end))
    for span in mine:
        last = bars[-1] if bars else None
        if last is not None and last.number == span.number and last.end == span.start and span.use in _SAME_ALLOCATION:
            bars[-1] = AllocationBar(last.trial, last.number, last.level, last.start, span.end, lasting=False)
        else:
            bars.append(
                AllocationBar(span.trial.name, span.number, levels[span.number], span.start, span.end, lasting=False)
            )
    return bars


_SAME_ALLOCATION = frozenset({"loading", TRAINING, "suspending", "saving"})

"""Report of simulated searches as one HTML file, with all policies side by side.

The drawings show the first search of each file, the table shows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_cli.report import charts, svg
from podium_cli.report.markup import Markup, element, escaped, join
from podium_cli.report.model import LEVELS, AllocationBar, Lane
from podium_cli.report.page import card, chart, page_head
from podium_cli.views import formatting
from podium_cli.views import system as system_view
from podium_simulator.replay.samples import Sample
from podium_simulator.system.comparison import SearchResult, SystemComparison
from podium_simulator.system.outcome import TRAINING, Outcome

GANTT = "A bar has the number of its trial. Its colour is the quality of the completed trial."
STAIRS = "Each line is one policy; a dot marks where its search ended. Point at a line for its name."

COLOURS = 10  # number of colours for policies in page.css
LETTER_WIDTH = 6.4  # approximate, in a label


def render(contests: Sequence[SystemComparison]) -> str:
    """Return the page; the same curves and options give the same file."""
    title = "Simulated searches - Podium"
    header = element(
        "header",
        element("p", escaped("Podium · the whole system simulated on recorded learning curves"), class_="kicker"),
        element("h1", escaped("Comparison of policies")),
    )
    sections = join(_task(contest) for contest in contests)
    footer = element("footer", escaped("Written by podium simulate. The same curves and options give the same file."))
    body = element("body", element("main", header, sections, footer))
    return f"<!doctype html>\n{element('html', page_head(title), body, lang='en')}\n"


def _task(contest: SystemComparison) -> Markup:
    names = system_view.fastest_first(contest)
    firsts = [contest.runs[name][0] for name in names]
    pool, metric = contest.samples[0], contest.trace.metric
    span = max(run.outcome.makespan for run in firsts)
    return join(
        (
            card(
                element("h2", escaped(contest.trace.task)),
                element("p", escaped(system_view.heading(contest)), class_="soft"),
                _table(contest),
            ),
            chart(f"Best {metric} so far", _stairs(firsts, pool, metric, span), legend=_names(names), note=STAIRS),
            card(
                element("h2", escaped("Regret and overhead")),
                element("p", escaped("First search. Shorter bars are better."), class_="soft"),
                element("div", _bars(firsts, "regret"), _bars(firsts, "overhead"), class_="smalls"),
            ),
            *(
                chart(
                    f"{run.policy}: holder of each GPU over time",
                    _gantt(run, pool, span),
                    note=GANTT if place == 0 else "",
                )
                for place, run in enumerate(firsts)
            ),
        )
    )


def _table(contest: SystemComparison) -> Markup:
    heads = [
        element("th", escaped(name.capitalize()), scope="col", class_="" if name == "POLICY" else "n")
        for name in system_view.columns(contest)
    ]
    rows = [
        element("tr", join(element("td", escaped(cell), class_="n" if at else "name") for at, cell in enumerate(row)))
        for row in system_view.rows(contest)
    ]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return element("div", table, class_="scroll")


def _names(names: Sequence[str]) -> Markup:
    items = [
        element("li", element("i", class_=f"p{place % COLOURS}"), escaped(name)) for place, name in enumerate(names)
    ]
    return element("ul", *items, class_="legend")


def _stairs(runs: Sequence[SearchResult], pool: Sample, metric: str, span: float) -> Markup:
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


def _gantt(run: SearchResult, pool: Sample, span: float) -> Markup:
    levels = quality_levels(pool)
    lanes = [Lane(gpu, tuple(_allocations(run.outcome, gpu, levels))) for gpu in run.outcome.gpus]
    return charts.lanes(lanes, span, lane_height=30.0)


def quality_levels(pool: Sample) -> tuple[int, ...]:
    """Return the level of each trial: 0 is the best of the sample, 1 to 5 are equal parts by best value."""
    order = sorted(range(len(pool.trials)), key=lambda i: (i != pool.winner, -pool.best_of(pool.trials[i]), i))
    found = [0] * len(order)
    for place, number in enumerate(order[1:]):
        found[number] = 1 + place * (LEVELS - 1) // max(1, len(order) - 1)
    return tuple(found)


def _allocations(outcome: Outcome, gpu: str, levels: Sequence[int]) -> list[AllocationBar]:
    """Return a bar for each allocation, from the start or resumption to the end of the suspension."""
    found: list[AllocationBar] = []
    mine = sorted((span for span in outcome.spans if span.gpu == gpu), key=lambda span: (span.start, span.end))
    for span in mine:
        last = found[-1] if found else None
        if last is not None and last.number == span.number and last.end == span.start and span.use in _SAME_ALLOCATION:
            found[-1] = AllocationBar(last.trial, last.number, last.level, last.start, span.end, lasting=False)
        else:
            found.append(
                AllocationBar(span.trial.name, span.number, levels[span.number], span.start, span.end, lasting=False)
            )
    return found


_SAME_ALLOCATION = frozenset({"loading", TRAINING, "suspending", "saving"})

"""Simulated searches as one HTML file: all policies side by side. Same head, style and escaping as `podium report`.

Called by `podium simulate --report`. Its drawings are of the first search of each file, its table of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium_cli.report import charts, svg
from podium_cli.report.markup import Markup, element, join, words
from podium_cli.report.model import LEVELS, Hold, Lane
from podium_cli.report.page import card, chart, page_head
from podium_cli.views import formatting as texts
from podium_cli.views import system as system_view
from podium_simulator.replay.samples import Sample
from podium_simulator.system.comparison import SearchResult, SystemComparison
from podium_simulator.system.outcome import TRAINING, Outcome

GANTT = "Numbers are those of the trials; the colour says how good a trial becomes when it is trained to its end."
STAIRS = "Each line is one policy; a dot marks where its search ended. Point at a line for its name."

COLOURS = 10  # of policies, in page.css
LETTER = 6.4  # its width in a label, about


def render(contests: Sequence[SystemComparison]) -> str:
    title = "Simulated searches - Podium"
    header = element(
        "header",
        element("p", words("Podium · the whole system simulated on recorded learning curves"), class_="kicker"),
        element("h1", words("What each policy would have done")),
    )
    sections = join(_task(contest) for contest in contests)
    footer = element("footer", words("Written by podium simulate. The same curves and options give the same file."))
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
                element("h2", words(contest.trace.task)),
                element("p", words(system_view.heading(contest)), class_="soft"),
                _table(contest),
            ),
            chart(f"Best {metric} so far", _stairs(firsts, pool, metric, span), legend=_names(names), note=STAIRS),
            card(
                element("h2", words("Regret and overhead")),
                element("p", words("Of the first search. Shorter is better in both."), class_="soft"),
                element("div", _bars(firsts, "regret"), _bars(firsts, "overhead"), class_="smalls"),
            ),
            *(
                chart(f"{run.policy}: who held each GPU", _gantt(run, pool, span), note=GANTT if place == 0 else "")
                for place, run in enumerate(firsts)
            ),
        )
    )


def _table(contest: SystemComparison) -> Markup:
    heads = [
        element("th", words(name.capitalize()), scope="col", class_="" if name == "POLICY" else "n")
        for name in system_view.columns(contest)
    ]
    rows = [
        element("tr", join(element("td", words(cell), class_="n" if at else "name") for at, cell in enumerate(row)))
        for row in system_view.rows(contest)
    ]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return element("div", table, class_="scroll")


def _names(names: Sequence[str]) -> Markup:
    items = [element("li", element("i", class_=f"p{place % COLOURS}"), words(name)) for place, name in enumerate(names)]
    return element("ul", *items, class_="legend")


def _stairs(runs: Sequence[SearchResult], pool: Sample, metric: str, span: float) -> Markup:
    """The best value known at each moment, one line a policy."""
    height = 320.0
    # the first values are far off where training begins: they would flatten what matters
    low, high = svg.reach([value for run in runs for _, value in run.improvements])
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
        about = f"{run.policy}: best {metric} {texts.number(run.score.best)}"
        about += f", all done after {texts.duration(run.outcome.makespan)}"
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
    label = f"Best {metric} so far by time, {texts.count(len(runs), 'policy', 'policies')}"
    return svg.picture(charts.WIDTH, height, label, *parts)


def _bars(runs: Sequence[SearchResult], what: str) -> Markup:
    """A horizontal bar a policy."""
    left, row = max(92.0, 8.0 + LETTER * max(len(run.policy) for run in runs)), 20.0
    width = left + 268.0
    values = [run.score.regret if what == "regret" else run.score.overhead for run in runs]
    height = charts.TOP + row * len(runs) + charts.BOTTOM
    x = svg.Scale(0.0, max([*values, 1e-9]), left, width - 56.0)
    parts: list[Markup] = []
    for place, (run, value) in enumerate(zip(runs, values, strict=True)):
        top = charts.TOP + row * place
        told = f"{100 * value:.1f} %" if what == "overhead" else texts.number(value, 3)
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
            svg.text(x(value) + 6, top + 14, told, class_="tick"),
        ]
    name = "mean regret over fifo's time" if what == "regret" else "GPU time not spent on training"
    parts.append(svg.text(left, height - 16, name, class_="axis"))
    return svg.picture(width, height, f"{name}, {texts.count(len(runs), 'policy', 'policies')}", *parts)


def _gantt(run: SearchResult, pool: Sample, span: float) -> Markup:
    levels = grades(pool)
    lanes = [Lane(gpu, tuple(_holds(run.outcome, gpu, levels))) for gpu in run.outcome.gpus]
    return charts.lanes(lanes, span, lane_height=30.0)


def grades(pool: Sample) -> tuple[int, ...]:
    """0 for the pool's best trial, then 1 to 5 in equal parts by the best value; by trial number."""
    order = sorted(range(len(pool.trials)), key=lambda i: (i != pool.winner, -pool.best_of(pool.trials[i]), i))
    found = [0] * len(order)
    for place, number in enumerate(order[1:]):
        found[number] = 1 + place * (LEVELS - 1) // max(1, len(order) - 1)
    return tuple(found)


def _holds(outcome: Outcome, gpu: str, levels: Sequence[int]) -> list[Hold]:
    """One bar a stay: from the start or resumption to the end of the suspension."""
    found: list[Hold] = []
    mine = sorted((span for span in outcome.spans if span.gpu == gpu), key=lambda span: (span.start, span.end))
    for span in mine:
        last = found[-1] if found else None
        if last is not None and last.number == span.number and last.end == span.start and span.use in _GOES_ON:
            found[-1] = Hold(last.trial, last.number, last.level, last.start, span.end, lasting=False)
        else:
            found.append(Hold(span.trial.name, span.number, levels[span.number], span.start, span.end, lasting=False))
    return found


_GOES_ON = frozenset({"loading", TRAINING, "suspending", "saving"})

"""Report as one HTML file without scripts, links or external fonts. All text of users and trials is escaped."""

from __future__ import annotations

from datetime import datetime
from importlib import resources

from podium_cli.report import charts
from podium_cli.report.markup import NONE, Markup, element, escaped, join
from podium_cli.report.model import LEVELS, JobReport, TrialRow
from podium_cli.views import formatting

POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # the browser refuses every external resource
TEXTS = ("Trial", "Phase", "Parameters")
FIGURES = ("Best", "Steps", "GPU-seconds", "Suspensions", "Suspend + resume", "Lost work")


def page_head(title: str) -> Markup:
    """Return the head of a page, with its style and a policy that forbids the browser to load anything."""
    style = Markup(resources.files("podium_cli.report").joinpath("page.css").read_text(encoding="utf-8"))
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", escaped(title)),
        element("style", style),
    )


def render(report: JobReport) -> str:
    """Return the report as one HTML file."""
    head = page_head(f"{report.name} - Podium report")
    sections = (
        _header(report),
        _headline(report),
        _tiles(report),
        _use(report),
        chart("Learning curves", charts.curves(report), legend=_legend(report)),
        chart("Holder of each GPU over time", charts.gantt(report), legend=_legend(report), note=GANTT_NOTE),
        chart(f"Best {report.metric} so far", charts.best_so_far(report)),
        _scatters(report),
        _table(report),
        element("footer", escaped(f"Written {_moment(report.made)} by podium report.")),
    )
    return f"<!doctype html>\n{element('html', head, element('body', element('main', *sections)), lang='en')}\n"


GANTT_NOTE = "A bar is one GPU allocation, with the number of its trial. In a gap no trial of this job held the GPU."


def _header(report: JobReport) -> Markup:
    kicker = f"Podium report · namespace {report.namespace} · {report.algorithm} search · policy {report.policy}"
    why = ": ".join(part for part in (report.reason, report.message) if part)
    return element(
        "header",
        element("p", escaped(kicker), class_="kicker"),
        element("h1", escaped(report.name), element("span", escaped(report.phase), class_="phase")),
        element("p", escaped(why), class_="soft") if why else NONE,
        *(element("p", escaped(warning), class_="warning", role="note") for warning in report.warnings),
    )


def _headline(report: JobReport) -> Markup:
    best = report.best
    if best is None:
        return card(element("p", element("b", escaped(f"No trial has reported {report.metric} yet."))))
    aim = "maximize" if report.maximize else "minimize"
    where = f" at {report.step_key} {formatting.step(best.best_step)}, {best.phase}"
    figure = element(
        "div",
        element("p", escaped(f"best {report.metric} ({aim})"), class_="soft"),
        element("p", escaped(formatting.number(best.best)), class_="value"),
    )
    chips = [
        element(
            "li", element("span", escaped(f"{name} "), class_="soft"), element("b", escaped(formatting.scalar(given)))
        )
        for name, given in best.parameters
    ]
    trial = element(
        "div",
        element("p", element("b", escaped(best.name)), element("span", escaped(where), class_="soft")),
        element("ul", *chips, class_="chips"),
    )
    return card(element("div", figure, trial, class_="headline"))


def _tiles(report: JobReport) -> Markup:
    use, switches = report.use, report.switches
    tiles = (
        ("Trials ended", f"{report.done} / {report.max_trials}", f"{len(report.trials)} created"),
        ("Duration", formatting.duration(report.span), f"from {_moment(report.origin)}"),
        ("GPUs", str(len(report.lanes)), f"{formatting.number(use.total / 3600, 3)} GPU-hours in total"),
        ("Suspensions", str(switches.count), f"{formatting.duration(use.switching)} of GPU time in total"),
        (
            "Suspend + resume",
            formatting.duration(switches.p50),
            f"median of {switches.recorded}; p99 {formatting.duration(switches.p99)}",
        ),
    )
    shown = (
        element(
            "div",
            element("dt", escaped(name)),
            element("dd", escaped(big)),
            element("dd", escaped(small)),
            class_="tile",
        )
        for name, big, small in tiles
    )
    return element("dl", *shown, class_="tiles")


def _use(report: JobReport) -> Markup:
    """Draw GPU-seconds by use as a stacked bar. Its legend has the figures, so screen readers skip the bar."""
    use, total = report.use, report.use.total or 1.0
    uses = (("training", use.training), ("switching", use.switching), ("idle", use.idle))
    bar = [element("span", class_=name, style=f"flex: {seconds / total:.5f}") for name, seconds in uses if seconds > 0]
    items = [
        element(
            "li",
            element("i", class_=name),
            escaped(f"{name} {formatting.number(seconds)} GPU-seconds ({100 * seconds / total:.1f} %)"),
        )
        for name, seconds in uses
    ]
    return card(
        element("h2", escaped("How the GPUs’ time was used")),
        element("div", *bar, class_="use", aria_hidden="true"),
        element("ul", *items, class_="legend"),
        element("p", escaped("Idle: no trial of this job held the GPU."), class_="soft"),
    )


def _legend(report: JobReport) -> Markup:
    others = [element("i", class_=f"b{level}") for level in range(1, LEVELS)]
    others_text = escaped(f"other trials, from good to bad by their best {report.metric}")
    best = element("li", element("i", class_="b0"), escaped("best trial"))
    return element("ul", best, element("li", *others, others_text), class_="legend")


def chart(title: str, drawing: Markup, *, legend: Markup = NONE, note: str = "") -> Markup:
    """Return a card with a title, a drawing and optional legend and note; nothing without a drawing."""
    if not drawing:
        return NONE
    footnote = element("p", escaped(note), class_="soft") if note else NONE
    return card(element("h2", escaped(title)), legend, element("div", drawing, class_="scroll wide"), footnote)


def _scatters(report: JobReport) -> Markup:
    drawn = [element("div", drawing) for _, drawing in charts.scatters(report)]
    if not drawn:
        return NONE
    return card(
        element("h2", escaped("Parameters and results")),
        element("p", escaped(f"Best {report.metric} of each trial."), class_="soft"),
        element("div", *drawn, class_="smalls"),
    )


def _table(report: JobReport) -> Markup:
    columns = [("", TEXTS), ("n", (*FIGURES, *report.additional_metrics)), ("", ("Why",))]
    heads = [element("th", escaped(name), scope="col", class_=kind) for kind, names in columns for name in names]
    rows = [_row(line, is_best=report.best is not None and line.name == report.best.name) for line in report.trials]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return card(element("h2", escaped("Trials")), element("div", table, class_="scroll"))


def _row(line: TrialRow, *, is_best: bool) -> Markup:
    cells = (
        ("name", line.name),
        ("", line.phase),
        ("p", formatting.parameters(dict(line.parameters))),
        ("n", formatting.number(line.best)),
        ("n", formatting.step(line.last_step)),
        ("n", formatting.number(line.gpu_seconds)),
        ("n", str(line.suspensions)),
        ("n", formatting.duration(line.switch_seconds) if line.suspensions else formatting.NOTHING),
        ("n", formatting.count(round(line.lost_steps), "step") if line.lost_steps else formatting.NOTHING),
        *(("n", value) for value in line.additional_metrics),
        ("why", line.why),
    )
    return element(
        "tr",
        join(element("td", escaped(content), class_=kind) for kind, content in cells),
        class_="best" if is_best else "",
    )


def card(*children: Markup) -> Markup:
    """Return a section of the page."""
    return element("section", *children, class_="card")


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"

"""The report as one HTML file: no script, no link, no outside font; what users and trials wrote is escaped (markup)."""

from __future__ import annotations

from datetime import datetime
from importlib import resources

from podium_cli.report import charts
from podium_cli.report.markup import NONE, Markup, element, join, words
from podium_cli.report.model import LEVELS, JobReport, TrialLine
from podium_cli.views import formatting as texts

POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # the browser itself refuses anything from elsewhere
TEXTS = ("Trial", "Phase", "Parameters")
FIGURES = ("Best", "Steps", "GPU-seconds", "Suspensions")


def page_head(title: str) -> Markup:
    """What every page of ours begins with: its style is in it, and the browser loads nothing else."""
    style = Markup(resources.files("podium_cli.report").joinpath("page.css").read_text(encoding="utf-8"))
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", words(title)),
        element("style", style),
    )


def render(report: JobReport) -> str:
    head = page_head(f"{report.name} - Podium report")
    sections = (
        _header(report),
        _headline(report),
        _tiles(report),
        _use(report),
        chart("Learning curves", charts.curves(report), legend=_legend(report)),
        chart("Who held each GPU, and when", charts.gantt(report), legend=_legend(report), note=GANTT_NOTE),
        chart(f"Best {report.metric} so far", charts.best_so_far(report)),
        _scatters(report),
        _table(report),
        element("footer", words(f"Written {_moment(report.made)} by podium report.")),
    )
    return f"<!doctype html>\n{element('html', head, element('body', element('main', *sections)), lang='en')}\n"


GANTT_NOTE = "Numbers are those of the trials. A gap is time in which no trial of this job held the GPU."


def _header(report: JobReport) -> Markup:
    kicker = f"Podium report · namespace {report.namespace} · {report.algorithm} search · policy {report.policy}"
    told = ": ".join(part for part in (report.reason, report.message) if part)
    return element(
        "header",
        element("p", words(kicker), class_="kicker"),
        element("h1", words(report.name), element("span", words(report.phase), class_="phase")),
        element("p", words(told), class_="soft") if told else NONE,
        *(element("p", words(warning), class_="warning", role="note") for warning in report.warnings),
    )


def _headline(report: JobReport) -> Markup:
    best = report.best
    if best is None:
        return card(element("p", element("b", words(f"No trial has reported {report.metric} yet."))))
    aim = "maximize" if report.maximize else "minimize"
    where = f" at {report.step_key} {texts.step(best.best_step)}, {best.phase}"
    figure = element(
        "div",
        element("p", words(f"best {report.metric} ({aim})"), class_="soft"),
        element("p", words(texts.number(best.best)), class_="value"),
    )
    chips = [
        element("li", element("span", words(f"{name} "), class_="soft"), element("b", words(texts.scalar(given))))
        for name, given in best.parameters
    ]
    who = element(
        "div",
        element("p", element("b", words(best.name)), element("span", words(where), class_="soft")),
        element("ul", *chips, class_="chips"),
    )
    return card(element("div", figure, who, class_="headline"))


def _tiles(report: JobReport) -> Markup:
    use, switches = report.use, report.switches
    tiles = (
        ("Trials done", f"{report.done} / {report.max_trials}", f"{len(report.trials)} started"),
        ("Took", texts.duration(report.span), f"from {_moment(report.origin)}"),
        ("GPUs", str(len(report.lanes)), f"{texts.number(use.total / 3600, 3)} GPU-hours in all"),
        ("Suspensions", str(switches.count), f"{texts.duration(use.switching)} of GPU time in all"),
        (
            "Cost of one, out and in",
            texts.duration(switches.p50),
            f"p99 {texts.duration(switches.p99)}, {switches.recorded} on record",
        ),
    )
    shown = (
        element(
            "div", element("dt", words(name)), element("dd", words(big)), element("dd", words(small)), class_="tile"
        )
        for name, big, small in tiles
    )
    return element("dl", *shown, class_="tiles")


def _use(report: JobReport) -> Markup:
    """A stacked bar of how the GPUs' time was used; its legend has the figures, so screen readers skip it."""
    use, total = report.use, report.use.total or 1.0
    shares = (("training", use.training), ("switching", use.switching), ("idle", use.idle))
    bar = [
        element("span", class_=name, style=f"flex: {seconds / total:.5f}") for name, seconds in shares if seconds > 0
    ]
    items = [
        element(
            "li",
            element("i", class_=name),
            words(f"{name} {texts.number(seconds)} GPU-seconds ({100 * seconds / total:.1f} %)"),
        )
        for name, seconds in shares
    ]
    return card(
        element("h2", words("How the GPUs’ time was used")),
        element("div", *bar, class_="use", aria_hidden="true"),
        element("ul", *items, class_="legend"),
        element("p", words("Idle means held by no trial of this job."), class_="soft"),
    )


def _legend(report: JobReport) -> Markup:
    others = [element("i", class_=f"b{level}") for level in range(1, LEVELS)]
    told = words(f"the others, from good to bad by their best {report.metric}")
    best = element("li", element("i", class_="b0"), words("best trial"))
    return element("ul", best, element("li", *others, told), class_="legend")


def chart(title: str, drawing: Markup, *, legend: Markup = NONE, note: str = "") -> Markup:
    if not drawing:
        return NONE
    told = element("p", words(note), class_="soft") if note else NONE
    return card(element("h2", words(title)), legend, element("div", drawing, class_="scroll wide"), told)


def _scatters(report: JobReport) -> Markup:
    drawn = [element("div", drawing) for _, drawing in charts.scatters(report)]
    if not drawn:
        return NONE
    return card(
        element("h2", words("Parameters and what they gave")),
        element("p", words(f"Best {report.metric} of each trial."), class_="soft"),
        element("div", *drawn, class_="smalls"),
    )


def _table(report: JobReport) -> Markup:
    columns = [("", TEXTS), ("n", (*FIGURES, *report.further)), ("", ("Why",))]
    heads = [element("th", words(name), scope="col", class_=kind) for kind, names in columns for name in names]
    rows = [_row(line, is_best=report.best is not None and line.name == report.best.name) for line in report.trials]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return card(element("h2", words("Trials")), element("div", table, class_="scroll"))


def _row(line: TrialLine, *, is_best: bool) -> Markup:
    cells = (
        ("name", line.name),
        ("", line.phase),
        ("p", texts.parameters(dict(line.parameters))),
        ("n", texts.number(line.best)),
        ("n", texts.step(line.last_step)),
        ("n", texts.number(line.gpu_seconds)),
        ("n", str(line.suspensions)),
        *(("n", value) for value in line.further),
        ("why", line.why),
    )
    return element(
        "tr",
        join(element("td", words(content), class_=kind) for kind, content in cells),
        class_="best" if is_best else "",
    )


def card(*children: Markup) -> Markup:
    return element("section", *children, class_="card")


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"

"""Drawing of the importance of the parameters: a bar for each."""

from __future__ import annotations

from markupsafe import Markup

from podium_dashboard.background.runner import Result
from podium_dashboard.background.tasks import Importances
from podium_dashboard.pages.page import Fragment, fragment
from podium_views import charts, formatting, svg
from podium_views.svg import element

LINE, TOP, MAX_BARS = 30.0, 6.0, 20
LEFT, VALUE = 190.0, 60.0  # room for the names and for the shares


def importance_card(result: Result | None) -> Fragment:
    """Return the card with the bars, or with the reason for which there are none."""
    drawing, note = charts.NONE, "It is being computed ..." if result is None else result.problem
    if result is not None and isinstance(result.value, Importances):
        drawing = importance_bars(result.value)
        note = f"By PED-ANOVA: where the best tenth of {formatting.count(result.value.trials, 'ended trial')} lies."
    return fragment("importance", "importance.html.j2", drawing=drawing, note=note)


def importance_bars(found: Importances) -> Markup:
    """Draw the parameters, the most important first."""
    shown = found.shares[:MAX_BARS]
    height = 2 * TOP + LINE * len(shown)
    x = svg.Scale(0.0, max(1e-9, shown[0][1]), LEFT, charts.WIDTH - VALUE)
    parts: list[Markup] = []
    for place, (name, share) in enumerate(shown):
        top = TOP + place * LINE
        percent = f"{100 * share:.0f} %"
        bar = element("rect", x=LEFT, y=top + 5, width=max(1.0, x(share) - LEFT), height=LINE - 10, class_="bar l2")
        short = name if len(name) <= 26 else name[:25] + "…"
        parts.append(element("g", svg.title(f"{name}: {percent}"), bar, class_="series"))
        parts.append(svg.text(LEFT - 8, top + LINE / 2 + 4, short, class_="label end"))
        parts.append(svg.text(x(share) + 6, top + LINE / 2 + 4, percent, class_="label"))
    label = f"Importance of {formatting.count(len(shown), 'parameter')}, the largest first"
    return svg.drawing(charts.WIDTH, height, label, *parts)

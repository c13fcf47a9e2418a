"""SVG drawings, scales and ticks, independent of trials.

Ranges are computed from halves, because the difference of two large floats can overflow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from podium_views.template import printable


def element(tag: str, /, *children: Markup, **attributes: str | float) -> Markup:
    """Return `<tag ...>children</tag>`.

    Attribute names lose a last `_` (`class_`), and other `_` become `-`.
    """
    # plain strings, because a drawing has thousands of elements and Markup.format is ten times as slow
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value(one))}"' for key, one in attributes.items())
    return Markup(f"<{tag}{written}>{''.join(map(escape, children))}</{tag}>")


def value(given: str | float) -> str:
    """Return the value of an attribute: a short number, or text without control characters."""
    if isinstance(given, str):
        return str(printable(given))
    return f"{given:.2f}".rstrip("0").rstrip(".") or "0"


def text(x: float, y: float, content: str, **attributes: str | float) -> Markup:
    """Return a text at a point."""
    return element("text", escape(printable(content)), x=x, y=y, **attributes)


def title(content: str) -> Markup:
    """Return a title, which browsers show on hover and screen readers read."""
    return element("title", escape(printable(content)))


def drawing(width: float, height: float, label: str, *children: Markup) -> Markup:
    """Return a drawing that scales with the page and has a label for screen readers."""
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {value(width)} {value(height)}",
        role="img",
        aria_label=label,
        preserveAspectRatio="xMidYMid meet",
    )


def path(points: Sequence[tuple[float, float]], **attributes: str | float) -> Markup:
    """Return a line through the points."""
    return element("path", d="M" + "L".join(f"{value(x)} {value(y)}" for x, y in points), **attributes)


@dataclass(frozen=True, slots=True)
class Scale:
    """Map from [low, high] of the data to [begin, end] of the drawing."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, given: float) -> float:
        low, high, at = self.low, self.high, given
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(max(given, self.low * 1e-3))
        if high / 2 == low / 2:
            return (self.begin + self.end) / 2
        share = min(max((at / 2 - low / 2) / (high / 2 - low / 2), 0.0), 1.0)  # outliers are drawn at the edge
        return self.begin + share * (self.end - self.begin)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round values of the scale."""
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high, count)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers within [low, high]."""
    if not high > low:
        return [low]
    rough = (high / 2 - low / 2) / (max(count, 1) / 2)
    power = 10.0 ** math.floor(math.log10(rough))
    gap = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / gap - 1e-9)
    return [round(index * gap, 12) for index in range(first, math.floor(high / gap + 1e-9) + 1)]


def time_ticks(span: float, count: int = 8) -> list[float]:
    """Return the seconds of about `count` marks with a customary gap: 10 s, 30 s, a minute, an hour."""
    gaps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
    gap = next((gap for gap in gaps if span / gap <= count), 86400 * math.ceil(span / 86400 / count))
    return [float(index * gap) for index in range(int(span // gap) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return the powers of ten in the range; with fewer than two, also their multiples by 2 and 5."""
    powers = range(math.floor(math.log10(low)), min(math.ceil(math.log10(high)), sys.float_info.max_10_exp) + 1)

    def within(factors: tuple[int, ...]) -> list[float]:
        marks = [factor * 10.0**power for power in powers for factor in factors]
        return [mark for mark in marks if low * 0.999 <= mark <= high * 1.001 and math.isfinite(mark)]

    tens = within((1,))
    return tens if len(tens) >= 2 else within((1, 2, 5))


def value_range(values: Sequence[float], extra: Sequence[float] = ()) -> tuple[float, float]:
    """Return the range to draw: all values, without outliers that would flatten the others."""
    ordered = sorted(values)
    if not ordered:
        return (0.0, 1.0)
    low, high = ordered[0], ordered[-1]
    quarter, most = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    spread = most - quarter
    if spread > 0:
        low, high = max(low, quarter - 5 * spread), min(high, most + 5 * spread)
    low, high = min([low, *extra]), max([high, *extra])
    margin = (high / 2 - low / 2) * 0.08 or abs(high) * 0.1 or 1.0
    return (max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max))

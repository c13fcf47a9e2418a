"""Samples of a page in Prometheus' text format: only lines of wanted metrics are parsed, in bounded number. Pure.

The names and labels are those that selectors can name (`logs.selectors`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podium_core.logs.selectors import Selector, labels_of

MAX_LINES = 64  # of wanted metrics on one page
MAX_LINE = 1024  # bytes
SHOWN_NAMES = 8
_BLANKS = r"[ \t]*"
_LABEL = rf'[a-zA-Z_][a-zA-Z0-9_]*{_BLANKS}={_BLANKS}"(?:[^"\\\n]|\\[\\"n])*"'
_LABELS = rf"\{{{_BLANKS}(?P<labels>(?:{_LABEL}(?:{_BLANKS},{_BLANKS}{_LABEL})*{_BLANKS},?)?){_BLANKS}\}}"
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[iI]nf|NaN|nan)"
_SAMPLE = re.compile(  # a value may be followed by its time
    rf"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*){_BLANKS}(?:{_LABELS})?{_BLANKS}(?P<value>{_NUMBER})"
    rf"(?:[ \t]+{_NUMBER})?{_BLANKS}"
)
_NAME = re.compile(rb"(?m)^[a-zA-Z_:][a-zA-Z0-9_:]{0,127}(?=[{ \t])")


@dataclass(frozen=True, slots=True)
class PageSample:
    """One sample of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(page: bytes, names: Iterable[str]) -> list[PageSample]:
    """Return the samples of the metrics with these names; a line that cannot be parsed is left out."""
    wanted = rb"|".join(re.escape(name.encode()) for name in sorted(names))
    lines = re.finditer(rb"(?m)^(?:%b)(?=[{ \t])[^\n]*$" % wanted, page)
    found: list[PageSample] = []
    for number, match in enumerate(lines):
        if number >= MAX_LINES:
            break
        if len(match[0]) <= MAX_LINE:
            found += _parsed(match[0].decode(errors="replace"))
    return found


def _parsed(line: str) -> list[PageSample]:
    match = _SAMPLE.fullmatch(line)
    labels = None if match is None else labels_of(match["labels"] or "")
    if match is None or labels is None:
        return []
    value = float(match["value"])
    too_large = math.isinf(value) and match["value"][-1].isdecimal()
    return [] if too_large else [PageSample(match["name"], labels, value)]


def value_of(selector: Selector, found: Iterable[PageSample]) -> tuple[float | None, str]:
    """Return the value that a selector selects, or why there is none."""
    wanted = dict(selector.labels)
    chosen = [one for one in found if one.name == selector.name and wanted.items() <= one.labels.items()]
    if len(chosen) == 1:
        return chosen[0].value, ""
    if chosen:
        labels = " and ".join(str(dict(one.labels)) for one in chosen[:2])
        return None, f"{selector.name} has {len(chosen)} samples ({labels}): select one by its labels"
    return None, f"the page has no sample {selector.name}{wanted or ''}"


def names_on(page: bytes) -> str:
    """Return the first names of metrics on a page, as a message shows them."""
    names: dict[bytes, None] = {}
    for match in _NAME.finditer(page):
        names[match[0]] = None
        if len(names) > SHOWN_NAMES:
            break
    shown = ", ".join(name.decode() for name in list(names)[:SHOWN_NAMES])
    return f"{shown}, ..." if len(names) > SHOWN_NAMES else shown

"""Selectors of Prometheus metrics as users write them: a name, and labels where needed, `accuracy{split="val"}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LABELS = 16
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
_SELECTOR = re.compile(rf"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{(?P<labels>(?:{_LABEL}(?:,{_LABEL})*,?)?)\}})?")
_ONE_LABEL = re.compile(r'(?P<label>[a-zA-Z0-9_]+)[ \t]*=[ \t]*"(?P<value>(?:[^"\\\n]|\\[\\"n])*)"')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric's name, and the labels that a sample must have."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


def parse_selector(text: str) -> Selector | None:
    """Parse a selector; return None for any other text."""
    match = _SELECTOR.fullmatch(text)
    if match is None:
        return None
    labels = labels_of(match["labels"] or "")
    return Selector(match["name"], tuple(sorted(labels.items()))) if labels is not None else None


def labels_of(text: str) -> dict[str, str] | None:
    """Return the labels of a text that holds nothing else; None if there are too many, or one twice."""
    found = list(_ONE_LABEL.finditer(text))
    labels = {one["label"]: re.sub(r'\\[\\"n]', lambda e: _ESCAPES[e[0]], one["value"]) for one in found}
    return labels if len(labels) == len(found) <= MAX_LABELS else None

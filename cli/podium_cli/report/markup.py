"""HTML and SVG elements as a type: text enters only through `words`, so forgetting to escape fails in mypy."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NewType

Markup = NewType("Markup", str)
NONE = Markup("")
VOID = frozenset({"meta", "br"})


def words(content: str) -> Markup:
    """Text that anyone may have written, made harmless; control characters are dropped (some are no legal HTML)."""
    return Markup(escape("".join(char for char in content if char.isprintable() or char == "\n"), quote=True))


def element(tag: str, /, *children: Markup, **attributes: str | float) -> Markup:
    """`<tag ...>children</tag>`; attribute names lose a last `_` (class_) and turn other `_` into `-`."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{value(one)}"' for key, one in attributes.items())
    if tag in VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{''.join(children)}</{tag}>")


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("".join(parts))


def value(given: str | float) -> Markup:
    """An attribute's value: numbers short, text escaped."""
    if isinstance(given, str):
        return words(given)
    return Markup(f"{given:.2f}".rstrip("0").rstrip(".") or "0")

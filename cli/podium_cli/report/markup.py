"""HTML and SVG elements as a type: text enters only through `escaped`, so mypy rejects text that is not escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NewType

Markup = NewType("Markup", str)
NONE = Markup("")
VOID = frozenset({"meta", "br"})


def escaped(content: str) -> Markup:
    """Escape text from an untrusted source and drop control characters, some of which are invalid in HTML."""
    return Markup(escape("".join(char for char in content if char.isprintable() or char == "\n"), quote=True))


def element(tag: str, /, *children: Markup, **attributes: str | float) -> Markup:
    """Return `<tag ...>children</tag>`.

    Attribute names lose a last `_` (`class_`), and other `_` become `-`.
    """
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{value(one)}"' for key, one in attributes.items())
    if tag in VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{''.join(children)}</{tag}>")


def join(parts: Iterable[Markup]) -> Markup:
    """Return the parts one after the other."""
    return Markup("".join(parts))


def value(given: str | float) -> Markup:
    """Return the value of an attribute: a short number, or escaped text."""
    if isinstance(given, str):
        return escaped(given)
    return Markup(f"{given:.2f}".rstrip("0").rstrip(".") or "0")

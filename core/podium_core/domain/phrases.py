"""Phrases that the messages of several packages share."""

from __future__ import annotations

LONGEST_MESSAGE = 1000  # characters of a message about an input


def count(things: int, name: str, plural: str = "") -> str:
    """Return a number with its noun: 1 GPU, 2 GPUs."""
    return f"{things} {name if things == 1 else plural or f'{name}s'}"


def one_line(text: str) -> str:
    """Return a message as one printable line, although it may quote an input: names, fields and paths."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text[: LONGEST_MESSAGE + 1])
    return plain if len(text) <= LONGEST_MESSAGE else f"{plain[: LONGEST_MESSAGE - 3]}..."

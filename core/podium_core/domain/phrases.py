"""Phrases that the messages of several packages share."""

from __future__ import annotations


def count(things: int, name: str, plural: str = "") -> str:
    """Return a number with its noun: 1 GPU, 2 GPUs."""
    return f"{things} {name if things == 1 else plural or f'{name}s'}"

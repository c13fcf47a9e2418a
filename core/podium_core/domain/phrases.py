"""Words that sentences of every room have in common."""

from __future__ import annotations


def count(things: int, name: str, plural: str = "") -> str:
    """1 GPU, 2 GPUs."""
    return f"{things} {name if things == 1 else plural or f'{name}s'}"

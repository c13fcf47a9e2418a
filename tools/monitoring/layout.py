"""Positions of panels: rows with a title, each filled from the left, without gaps or overlaps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitoring.panels import Panel

WIDTH = 24  # columns of Grafana's grid
HEADER = 1  # height of a row's title


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels, `across` in each line, each `height` units high."""

    title: str
    panels: Sequence[Panel]
    across: int
    height: int = 8


def place(rows: Sequence[Row]) -> list[Panel]:
    """Return all panels with identifiers, from 1 on, and positions."""
    placed: list[Panel] = []
    top = 0
    for row in rows:
        title = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        placed.append({"id": len(placed) + 1, **title, "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": HEADER}})
        top += HEADER
        width = WIDTH // row.across
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, row.across)
            where = {"x": column * width, "y": top + line * row.height, "w": width, "h": row.height}
            placed.append({"id": len(placed) + 1, **panel, "gridPos": where})
        top += -(-len(row.panels) // row.across) * row.height
    return placed

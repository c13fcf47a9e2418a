"""Figure that a notebook shows as the value of a cell, without pyplot. This module needs matplotlib."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class PngFigure(Figure):
    """A figure that a notebook shows as a PNG, without pyplot and its backends."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()

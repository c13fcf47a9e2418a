"""A table loses no cell on a terminal that is narrower than the table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from podium_cli import output

CELLS = ("best_so_far", "12 h 19 m", "0.0733")


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "best_so_far  12 h 19 m  0.0733"),
        (29, "best_so_far 12 h 19 m 0.0733"),  # closer together, and it fits
        (10, "best_so_far 12 h 19 m 0.0733"),  # the terminal wraps it
        (None, "best_so_far  12 h 19 m  0.0733"),  # a pipe
    ],
)
def test_no_cell_is_cut(width: int | None, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, printed = Table(box=None, pad_edge=False), io.StringIO()
    for name in ("POLICY", "BEST DONE", "REGRET"):
        table.add_column(name, no_wrap=True)
    table.add_row(*CELLS)

    def console(**given: object) -> Console:
        return Console(
            **{"file": printed, "force_terminal": width is not None, "width": width, "color_system": None} | given
        )

    monkeypatch.setattr(output, "Console", console)
    output.show(table)
    assert printed.getvalue().splitlines()[1].rstrip() == line

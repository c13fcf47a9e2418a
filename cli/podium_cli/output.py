"""Where a command's answer goes: a table to the terminal or into a pipe, a page into a file. Used by commands."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

from podium_cli.exit_codes import CliError, Exit

WIDEST = 10_000  # columns: no table is


def show(table: RenderableType) -> None:
    """A table none of whose columns wraps is never cut: where it is wider than the terminal its columns are closer
    together, and what is too wide then the terminal wraps, as it does kubectl's. A pipe has no width.
    """
    console = Console()
    if not console.is_terminal:
        Console(width=WIDEST, highlight=False).print(table)
        return
    if isinstance(table, Table) and all(column.no_wrap for column in table.columns):
        if whole_width(table) > console.width:
            table.padding = (0, 1, 0, 0)
        console.width = max(console.width, whole_width(table))
    console.print(table)


def whole_width(table: Table) -> int:
    """Columns of a terminal in which nothing of it is cut."""
    wide = Console(width=WIDEST)
    return Measurement.get(wide, wide.options, table).maximum


def write(path: Path, content: str, option: str = "--output") -> None:
    """Into the file that `option` named."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        message = f"{path}: {error.strerror}; name another file with {option}"
        raise CliError(Exit.FAILED, "FileNotWritten", message) from error

"""Output of a command: tables to a terminal or a pipe, pages to a file."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

from podium_cli.exit_codes import CliError, Exit

MAX_WIDTH = 10_000  # columns; wider than any table


def show(table: RenderableType) -> None:
    """Print a table without cutting its cells.

    A table in which no column wraps moves its columns closer together if it is wider than the terminal. If it is still
    too wide, the terminal wraps its lines, as with kubectl. A pipe has no width.
    """
    console = Console()
    if not console.is_terminal:
        Console(width=MAX_WIDTH, highlight=False).print(table)
        return
    if isinstance(table, Table) and all(column.no_wrap for column in table.columns):
        if full_width(table) > console.width:
            table.padding = (0, 1, 0, 0)
        console.width = max(console.width, full_width(table))
    console.print(table)


def full_width(table: Table) -> int:
    """Return the number of terminal columns that the table needs without a cut cell."""
    wide = Console(width=MAX_WIDTH)
    return Measurement.get(wide, wide.options, table).maximum


def write(path: Path, content: str, option: str = "--output") -> None:
    """Write `content` to the file that the user named with `option`."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        message = f"{path}: {error.strerror}; name another file with {option}"
        raise CliError(Exit.FAILED, "FileNotWritten", message) from error

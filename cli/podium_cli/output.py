"""Where a command's answer goes: a table to the terminal or into a pipe, a page into a file. Used by commands."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console, RenderableType

from podium_cli.exits import CliError, Exit


def show(table: RenderableType) -> None:
    """As wide as it is: a terminal wraps, a pipe must not lose a column."""
    console = Console()
    if console.is_terminal:
        console.print(table)
    else:
        Console(width=10_000, highlight=False).print(table)


def write(path: Path, content: str, option: str = "--output") -> None:
    """Into the file that `option` named."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        message = f"{path}: {error.strerror}; name another file with {option}"
        raise CliError(Exit.FAILED, "FileNotWritten", message) from error

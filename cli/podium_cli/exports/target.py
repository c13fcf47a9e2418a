"""Where an export goes: a file that is replaced in one step, or a folder that belongs to one search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from podium_cli.exit_codes import CliError, Exit
from podium_cli.exports.search import ExportedSearch, ExportedTrial

MARKER = ".podium-export.json"  # no trial has a folder of this name
MAX_MARKER = 1 << 16  # bytes


class Target:
    """An export that is being written.

    `values` and `trials` count what it holds, `omitted` what it cannot hold.
    """

    def __init__(self) -> None:
        self.trials = 0
        self.values = 0
        self.omitted_trials = 0  # without a value
        self.omitted_values = 0  # between whole steps

    def add(self, trial: ExportedTrial) -> None:
        """Write one trial."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is left; nothing is added later."""

    def discard(self) -> None:
        """Remove what is incomplete after an error."""


def claim_file(path: Path, force: bool) -> None:
    """Check that a file may be written. Raises CliError if it exists and `force` is not given."""
    if path.is_dir():
        raise CliError(Exit.USAGE, "FileExists", f"--output: {path} is a folder; name a file")
    if path.exists() and not force:
        text = f"--output: {path} exists already; name another file, or replace it with --force"
        raise CliError(Exit.USAGE, "FileExists", text)


def claim_folder(path: Path, force: bool, form: str, search: ExportedSearch) -> None:
    """Mark a folder as the export of this search in this format.

    The same search may be exported there again. Raises CliError if the folder holds anything else, and `force` is not
    given.
    """
    mine = {"format": form, "search": search.identity}
    if path.exists() and not path.is_dir():
        raise CliError(Exit.USAGE, "FileExists", f"--output: {path} is a file; name a folder")
    with writing(path):
        content = path.is_dir() and any(path.iterdir())
        if content and not force and _marker(path) != mine:
            text = f"--output: {path} holds files that are not a {form} export of {search.name}; name another folder, "
            raise CliError(Exit.USAGE, "FolderInUse", f"{text}or write beside these files with --force")
        path.mkdir(parents=True, exist_ok=True)
        replace(path / MARKER, json.dumps(mine).encode())


def replace(path: Path, content: bytes) -> None:
    """Write a file in one step, so that a reader sees the old content or the new one."""
    aside = path.with_name(f".{path.name}.new")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a CliError that names the place and the cure."""
    try:
        yield
    except OSError as error:
        text = f"{error.filename or path}: {error.strerror or error}; name another place with --output"
        raise CliError(Exit.FAILED, "FileNotWritten", text) from error


def _marker(path: Path) -> object:
    try:
        with (path / MARKER).open("rb") as file:
            return json.loads(file.read(MAX_MARKER))
    except (OSError, ValueError):
        return None

"""A search as a CSV table, which spreadsheets, pandas and `podium simulate` read."""

from __future__ import annotations

import csv
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from podium_cli.exports.names import text_of
from podium_cli.exports.search import ExportedSearch, ExportedTrial
from podium_cli.exports.tables import Cell, columns, rows
from podium_cli.exports.target import Target, claim_file, writing


class CsvFile(Target):
    """A CSV table that is being written beside its place, and moved there at the end."""

    def __init__(self, path: Path, search: ExportedSearch, *, force: bool) -> None:
        super().__init__()
        claim_file(path, force)
        self._path = path
        self._search = search
        self._aside = path.with_name(f".{path.name}.new")
        with writing(path):
            self._file = self._aside.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(columns(search))

    def add(self, trial: ExportedTrial) -> None:
        """Write the rows of one trial."""
        if not trial.points:
            self.omitted_trials += 1
            return
        with writing(self._path):
            self._writer.writerows([_text(cell) for cell in row] for row in rows(self._search, trial))
        self.trials += 1
        self.values += len(trial.points)

    def close(self) -> None:
        """Move the table to its place."""
        with writing(self._path):
            self._file.close()
            self._aside.replace(self._path)

    def discard(self) -> None:
        """Remove the incomplete table."""
        with suppress(OSError):
            self._file.close()
            self._aside.unlink(missing_ok=True)


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return cell.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return repr(cell) if isinstance(cell, float) else text_of(cell)

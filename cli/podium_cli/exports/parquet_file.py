"""A search as a Parquet table. It needs pyarrow, which the extra `parquet` installs."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from podium_cli.exit_codes import CliError, Exit
from podium_cli.exports.names import clean, text_of
from podium_cli.exports.search import NUMBER, TEXT, WHOLE, ExportedSearch, ExportedTrial
from podium_cli.exports.tables import COLUMNS, Cell, columns, rows
from podium_cli.exports.target import Target, claim_file, writing
from podium_core.domain.snapshot import Scalar
from podium_core.tables.csv_table import shown

GROUP = 50_000  # rows of a group, which are in memory at a time


class ParquetFile(Target):
    """A Parquet table that is being written beside its place, and moved there at the end."""

    def __init__(self, path: Path, search: ExportedSearch, *, force: bool) -> None:
        super().__init__()
        self._arrow, parquet = _library()
        claim_file(path, force)
        self._path = path
        self._search = search
        self._rows: list[tuple[Cell, ...]] = []
        self._aside = path.with_name(f".{path.name}.new")
        self._schema = self._arrow.schema(list(zip(columns(search), self._types(), strict=True)))
        with writing(path):
            self._writer = parquet.ParquetWriter(str(self._aside), self._schema)

    def add(self, trial: ExportedTrial) -> None:
        """Write the rows of one trial."""
        if not trial.points:
            self.omitted_trials += 1
            return
        kinds = self._search.parameters
        for name, value in trial.parameters.items():
            if not _holds(kinds.get(name, TEXT), value):
                message = f"trial {clean(trial.name)}: parameter {clean(name)} is {shown(value)}, not a {kinds[name]}"
                cure = "correct the saved objects, or give --format csv"
                raise CliError(Exit.FAILED, "ParameterTypeMismatch", f"{message}; {cure}")
        for row in rows(self._search, trial):
            fixed, given = row[: len(COLUMNS)], row[len(COLUMNS) :]
            self._rows.append((*fixed, *map(_cell, given, kinds.values())))
        self.trials += 1
        self.values += len(trial.points)
        if len(self._rows) >= GROUP:
            self._flush()

    def close(self) -> None:
        """Move the table to its place."""
        self._flush()
        with writing(self._path):
            self._writer.close()
            self._aside.replace(self._path)

    def discard(self) -> None:
        """Remove the incomplete table."""
        with suppress(OSError):
            self._writer.close()
            self._aside.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._rows:
            cells = zip(*self._rows, strict=True)
            arrays = [self._arrow.array(column, one.type) for column, one in zip(cells, self._schema, strict=True)]
            with writing(self._path):
                self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
            self._rows = []

    def _types(self) -> list[Any]:
        arrow = self._arrow
        text, whole, number = arrow.string(), arrow.int64(), arrow.float64()
        fixed = [text, whole, text, number, number, number, arrow.timestamp("us", tz="UTC")]
        return [*fixed, *({NUMBER: number, WHOLE: whole}.get(kind, text) for kind in self._search.parameters.values())]


def _holds(kind: str, value: Scalar) -> bool:
    """Return whether a column of this kind can hold the value."""
    if kind == TEXT:
        return True
    return not isinstance(value, bool | str) and (kind == NUMBER or float(value).is_integer())


def _cell(value: Cell, kind: str) -> Cell:
    if value is None or isinstance(value, datetime):
        return value
    return text_of(value) if kind == TEXT else float(value) if kind == NUMBER else int(value)


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        text = "--format parquet needs pyarrow: pip install 'kube-podium[parquet]', or give --format csv"
        raise CliError(Exit.USAGE, "ExtraMissing", text) from None
    return pyarrow, pyarrow.parquet

"""Formats of `podium export` for other tools, and the default name of each export."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from podium_cli.exports.csv_file import CsvFile
from podium_cli.exports.mlflow_store import MlflowStore
from podium_cli.exports.names import file_name
from podium_cli.exports.parquet_file import ParquetFile
from podium_cli.exports.search import ExportedSearch
from podium_cli.exports.target import Target
from podium_cli.exports.tensorboard_folder import TensorBoardFolder
from podium_cli.exports.wandb_runs import WandbRuns

CURVES = "curves"  # of Podium: JSON lines
_TARGETS: Mapping[str, tuple[Callable[..., Target], str]] = MappingProxyType(
    {
        "csv": (CsvFile, ".csv"),
        "parquet": (ParquetFile, ".parquet"),
        "tensorboard": (TensorBoardFolder, "-tensorboard"),
        "mlflow": (MlflowStore, "-mlruns"),
        "wandb": (WandbRuns, "-wandb"),
    }
)
FORMATS = (CURVES, *_TARGETS)


def open_target(form: str, output: Path | None, search: ExportedSearch, *, force: bool) -> tuple[Target, Path]:
    """Return the export of a search in this format, ready for its trials, and its place."""
    kind, suffix = _TARGETS[form]
    path = output or Path(f"{file_name(search.name)}{suffix}")
    return kind(path, search, force=force), path

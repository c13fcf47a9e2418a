"""What a child of population-based training gets of its parent's checkpoint, and where it finds it. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

from podium_core.schema.job import HyperParamJob
from podium_core.schema.metrics.config import metrics_config_of
from podium_core.schema.metrics.rules import PATH_SOURCES

INHERITED = "step-0-parent"  # the SDK removes older checkpoints of this form, so the copy goes when it is not needed


def inherited_path(parent_path: str) -> str:
    """Return the path of the copy in the child's folder; `parent_path`: that of the original.

    The path must be known before the copy is made, because it is part of the child's command. The suffix is kept,
    since some frameworks read the format from it. A checkpoint that is the folder itself remains so.
    """
    return "." if parent_path == "." else f"{INHERITED}{PurePosixPath(parent_path).suffix}"


def metrics_in_checkpoint(job: HyperParamJob) -> str | None:
    """Return where trials write metrics in their checkpoint folder, relative to it.

    None: they write them elsewhere. A copy of the folder leaves this path out: its values are the parent's.
    """
    metrics, checkpoint = metrics_config_of(job), job.spec.checkpoint
    if checkpoint is None or metrics.source not in PATH_SOURCES:
        return None
    path = PurePosixPath(metrics.path)
    return str(path.relative_to(checkpoint.path)) if path.is_relative_to(checkpoint.path) else None

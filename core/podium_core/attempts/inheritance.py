"""Where a child of population-based training finds the copy of its parent's checkpoint. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

INHERITED = "step-0-parent"  # the SDK removes older checkpoints of this form, so the copy goes when it is not needed


def inherited_path(parent_path: str) -> str:
    """Return the path of the copy in the child's folder; `parent_path`: that of the original.

    The path must be known before the copy is made, because it is part of the child's command. The suffix is kept,
    since some frameworks read the format from it. A checkpoint that is the folder itself remains so.
    """
    return "." if parent_path == "." else f"{INHERITED}{PurePosixPath(parent_path).suffix}"

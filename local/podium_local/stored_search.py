"""What a folder that holds an earlier search allows: which fields must not change, and how to start from the beginning.

The Python API imports this module in the caller's process, so it imports no searcher.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from podium_local.errors import Kind, LocalError
from podium_local.processes import process_tree
from podium_local.store import RunFolder

IMMUTABLE = ("objective", "objectives", "parameters", "search", "metrics", "gpus")


def discard(path: Path) -> None:
    """Remove what an earlier run stored in this folder. Raises LocalError if a runner has it."""
    folder = RunFolder(path)
    try:
        process_tree.kill_with_variable(process_tree.RUN_VARIABLE, str(folder.path))
        for one in (folder.objects, folder.logs, folder.checkpoints, folder.files):
            shutil.rmtree(one)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}; remove {path} by hand, or name another folder"
        raise LocalError(Kind.FAILED, "FolderUnusable", text) from error
    finally:
        folder.close()

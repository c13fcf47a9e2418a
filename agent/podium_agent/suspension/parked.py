"""What each container that is being moved, or is off its GPUs, held on which: in a file each.

Written by the method `cuda-checkpoint` before its first step, read before it restores, removed after its last. The
driver does not tell what a checkpointed process needs, and a restore without the memory is the end of it
(cuda-checkpoint issue 44). An agent that starts anew finds the files, and by them what the one before left half-done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import RootModel, ValidationError


class _Note(RootModel[dict[str, int]]):
    """Bytes by GPU (uuid)."""


class Parked:
    """`folder` is made when it is first needed. A container is named by the last part of its cgroup's path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted = {file.name for file in folder.iterdir()} if folder.is_dir() else set()

    def has(self, container: str) -> bool:
        """Between the first step out and the last step in there is a note."""
        return container in self._noted

    def note(self, container: str, held: Mapping[str, int]) -> None:
        """Whole or not at all, also if the agent dies over it. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = self._folder.with_name(f"{self._folder.name}.new")
        fresh.write_text(json.dumps(dict(held)))
        os.replace(fresh, self._folder / container)
        self._noted.add(container)

    def read(self, container: str) -> Mapping[str, int]:
        """Bytes by GPU; empty if nothing is noted."""
        if container not in self._noted:
            return {}
        try:
            return _Note.model_validate_json((self._folder / container).read_text()).root
        except (OSError, ValidationError):
            return {}

    def forget(self, container: str) -> None:
        if container in self._noted:
            (self._folder / container).unlink(missing_ok=True)
            self._noted.discard(container)

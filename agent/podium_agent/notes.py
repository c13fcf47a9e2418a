"""Notes on the node's disk that the next agent reads: one small file each, whole or not there.

Used by `passages` and `reservations`. Not synced: a note has to outlive the agent, and what it tells of does not
outlive the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def write(folder: Path, name: str, text: str) -> None:
    """Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = folder / f".{name}"
    aside.write_text(text)
    aside.rename(folder / name)


def places(folder: Path) -> Iterator[Path]:
    """The notes that are there; none where there is no folder. Raises OSError."""
    for place in folder.iterdir() if folder.is_dir() else ():
        if not place.name.startswith("."):
            yield place

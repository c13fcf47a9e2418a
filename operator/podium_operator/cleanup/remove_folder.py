"""What the clean-up pod runs: `python -m podium_operator.cleanup.remove_folder ROOT FOLDER` removes one folder of a
volume.

FOLDER is one name, not a path, and links are removed, never followed: the trials wrote what is in it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def remove(root: Path, folder: str) -> None:
    """Raises ValueError for a FOLDER that is no plain name, OSError where something cannot be removed."""
    if folder != Path(folder).name or folder in ("", ".", ".."):
        raise ValueError(f"{folder!r} is not the name of a folder of {root}: give one name without /")
    path = root / folder
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 2:
        print("usage: python -m podium_operator.cleanup.remove_folder ROOT FOLDER", file=sys.stderr)
        return 2
    try:
        remove(Path(given[0]), given[1])
    except (OSError, ValueError) as error:
        print(f"{given[1]} is not removed: {error}", file=sys.stderr)
        return 1
    print(f"{given[1]} is removed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

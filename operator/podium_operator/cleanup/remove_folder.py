"""Program of the clean-up pod: remove one folder of a volume.

`python -m podium_operator.cleanup.remove_folder ROOT FOLDER`. FOLDER is a name, not a path. Links are removed,
never followed: the trials wrote the content.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def remove(root: Path, folder: str) -> None:
    """Remove a folder.

    Raises ValueError unless FOLDER is a plain name, OSError if something cannot be removed.
    """
    if folder != Path(folder).name or folder in ("", ".", ".."):
        raise ValueError(f"{folder!r} is not the name of a folder of {root}: give one name without /")
    path = root / folder
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Remove the folder that the arguments name; return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 2:
        print("usage: python -m podium_operator.cleanup.remove_folder ROOT FOLDER", file=sys.stderr)
        return 2
    try:
        remove(Path(given[0]), given[1])
    except (OSError, ValueError) as error:
        print(f"{given[1]} was not removed: {error}", file=sys.stderr)
        return 1
    print(f"{given[1]} was removed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

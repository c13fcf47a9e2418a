"""What goes into an image: found, hashed and copied out, so that the same files give the hash and the build context."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

IGNORED_FOLDERS = frozenset({"__pycache__", "build", ".git", ".venv", ".mypy_cache", ".ruff_cache", "node_modules"})
IGNORED_ENDINGS = (".pyc", ".o", ".so.1", ".tmp")


def files_of(root: Path, members: Sequence[str]) -> list[Path]:
    """All files of the named files and folders below `root`, sorted; a member that is missing is an error."""
    found: list[Path] = []
    for member in members:
        path = root / member
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            found += [file for file in path.rglob("*") if file.is_file() and _counts(file.relative_to(root))]
        else:
            raise FileNotFoundError(f"{path} is missing; an image is made from it")
    return sorted(found)


def _counts(relative: Path) -> bool:
    return not IGNORED_FOLDERS & set(relative.parts) and not relative.name.endswith(IGNORED_ENDINGS)


def digest(root: Path, files: Sequence[Path], *extra: str) -> str:
    """Names, contents and the right to execute; not times and not the order found."""
    whole = hashlib.sha256(repr(extra).encode())
    for file in sorted(files):
        executable = bool(file.stat().st_mode & 0o100)
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(repr((str(file.relative_to(root)), executable, content)).encode())
    return whole.hexdigest()


def stage(root: Path, files: Sequence[Path], target: Path) -> None:
    """A build context that holds these files and nothing else."""
    for file in files:
        copy = target / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
        copy.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)

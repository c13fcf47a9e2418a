"""The base images for buildah, from Debian packages: one with Python, one with a compiler."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster import versions
from podium_devcluster.debian import bootstrap
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run, succeeds


@dataclass(frozen=True, slots=True)
class Base:
    name: str
    packages: tuple[str, ...]

    @property
    def tag(self) -> str:
        """Named by what goes in: another list of packages is another image."""
        key = hashlib.sha256(repr((versions.IMAGE_SUITE, self.packages)).encode()).hexdigest()[:12]
        return f"localhost/podium-{self.name}:{versions.IMAGE_SUITE}-{key}"


RUNTIME = Base("base", ("python3", "python3-pip", "python3-venv", "ca-certificates"))
COMPILER = Base("build-base", ("gcc", "libc6-dev", "make"))
# as in the official Python image: `pip install` and `python` just work
_FINISH = """set -e
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
if [ -e /usr/bin/python3 ]; then ln -sf python3 /usr/bin/python; fi"""


def storage(cache: Cache) -> list[str]:
    """buildah's global options. Overlay where the cache's disk can carry it (fast), else plain copies."""
    kind = run(["stat", "-f", "-c", "%T", str(cache.root)], timeout=10).strip()
    driver = "vfs" if kind in ("overlayfs", "tmpfs") else "overlay"
    root = cache.root / "buildah" / driver
    root.mkdir(parents=True, exist_ok=True)
    return ["--root", str(root / "root"), "--runroot", str(root / "run"), "--storage-driver", driver]


def ensure(base: Base, options: list[str], cache: Cache, progress: Progress) -> str:
    """The name of the image, made where it is missing."""
    buildah = ["buildah", *options]
    if succeeds([*buildah, "inspect", "--type", "image", base.tag], timeout=30):
        return base.tag
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

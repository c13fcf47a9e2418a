"""The root file system of the nodes: Debian with containerd, runc and CRIU, shared below an overlay."""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import partial
from pathlib import Path

from podium_devcluster import locks, versions
from podium_devcluster.artifacts.debian import bootstrap
from podium_devcluster.artifacts.preparation import Piece
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run

PACKAGES = (
    "containerd", "runc", "criu", "iproute2", "iptables", "nftables", "conntrack", "procps", "ca-certificates",
    "containernetworking-plugins", "mount", "util-linux",
)  # fmt: skip

TYPICAL_SECONDS = 40.0


def folder(cache: Cache) -> Path:
    """Return the image's folder, named by its inputs: another list of packages makes another folder."""
    key = hashlib.sha256(repr((versions.NODE_SUITE, PACKAGES)).encode()).hexdigest()[:12]
    return cache.rootfs / f"{versions.NODE_SUITE}-{key}"


def ensure(cache: Cache, progress: Progress) -> Path:
    """Return the image's folder; make it if it is missing. A folder with its final name is complete."""
    target = folder(cache)
    if target.is_dir():
        return target
    with locks.held(cache.rootfs / ".lock", timeout=900, waiting=progress.say):
        if target.is_dir():
            return target
        archive = cache.rootfs / f"{target.name}.tar"
        log = cache.root / "log" / "rootfs.log"
        bootstrap(versions.NODE_SUITE, PACKAGES, archive, log, progress, "node root file system (mmdebstrap)")
        temporary = cache.rootfs / f".{os.getpid()}-{target.name}"
        temporary.mkdir()
        try:
            # without device files: the nodes mount the machine's /dev
            run(["tar", "-C", str(temporary), "--exclude=./dev/*", "-xf", str(archive)], timeout=300)
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        archive.unlink()
    return target


def pieces(cache: Cache, progress: Progress) -> list[Piece]:
    """Return what is to be built: nothing where the folder is there."""
    if folder(cache).is_dir():
        return []
    return [
        Piece(
            f"node root file system (Debian {versions.NODE_SUITE})", TYPICAL_SECONDS, partial(ensure, cache, progress)
        )
    ]

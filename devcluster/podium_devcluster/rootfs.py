"""The root file system that all nodes share (read-only, below an overlay): Debian with containerd, runc and CRIU."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from podium_devcluster import locks, versions
from podium_devcluster.debian import bootstrap
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run

PACKAGES = (
    "containerd", "runc", "criu", "iproute2", "iptables", "nftables", "conntrack", "procps", "ca-certificates",
    "containernetworking-plugins", "mount", "util-linux",
)  # fmt: skip


def folder(cache: Cache) -> Path:
    """Named by what goes in: another list of packages is another folder."""
    key = hashlib.sha256(repr((versions.NODE_SUITE, PACKAGES)).encode()).hexdigest()[:12]
    return cache.rootfs / f"{versions.NODE_SUITE}-{key}"


def ensure(cache: Cache, progress: Progress) -> Path:
    """Make it once (about 25 s); a folder that carries its final name is complete."""
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
            # device files are left out: the nodes see the machine's /dev
            run(["tar", "-C", str(temporary), "--exclude=./dev/*", "-xf", str(archive)], timeout=300)
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        archive.unlink()
    return target

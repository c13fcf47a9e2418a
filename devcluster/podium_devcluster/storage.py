"""The size of the cache, and its removal."""

from __future__ import annotations

import shutil
from pathlib import Path

from podium_devcluster import teardown
from podium_devcluster.cluster import Cluster
from podium_devcluster.paths import Cache
from podium_devcluster.shell import run
from podium_devcluster.startup import ClusterError

PARTS = {
    "bin": "programs",
    "rootfs": "root file system of the nodes",
    "images": "images",
    "vm": "disks of virtual nodes",
    "buildah": "layers of image builds",
    "clusters": "logs and nodes' images of clusters",
    "build": "inputs of builds",
}


def size(folder: Path) -> int:
    """Return the bytes that a folder takes on disk; files with several hard links count once."""
    if not folder.exists():
        return 0
    return int(run(["du", "--summarize", "--block-size=1", str(folder)], timeout=120, check=False).split()[0])


def report(cache: Cache) -> str:
    """Return what takes space in the cache, and the command that removes it."""
    if not cache.root.exists():
        return f"The cache {cache.root} is empty."
    # one call for all: du counts a hard link once, with the first folder that contains it
    folders = [str(cache.root / name) for name in PARTS if (cache.root / name).exists()]
    lines = run(["du", "--summarize", "--block-size=1", *folders], timeout=120, check=False).splitlines()
    sizes = {Path(folder).name: int(count) for count, _, folder in (line.partition("\t") for line in lines)}
    parts = ", ".join(f"{PARTS[name]} {_readable(count)}" for name, count in sizes.items() if count >= 5 << 20)
    return (
        f"The cache {cache.root} takes {_readable(size(cache.root))}: {parts}.\n"
        "Later runs start faster with it. To remove it: `podium-devcluster clean` or `make clean-cache`."
    )


def clean(cache: Cache) -> str:
    """Remove the whole cache and return a sentence about it.

    Raises ClusterError while a cluster runs from it.
    """
    for state in sorted((cache.root / "clusters").glob("*")):
        if Cluster(state.name, cache=cache).leftovers():
            raise ClusterError(
                f"cluster {state.name} runs from {cache.root}; run `podium-devcluster down --name {state.name}` first"
            )
    mounts = teardown.mounts_below(cache.root, Path("/proc/self/mounts").read_text())
    if mounts:
        raise ClusterError(f"{', '.join(mounts)} is mounted in the cache; unmount it first")
    freed = size(cache.root)
    shutil.rmtree(cache.root, ignore_errors=True)
    if cache.root.exists():
        raise ClusterError(f"{cache.root} could not be removed completely; run `podium-devcluster clean` as root")
    return f"Removed {cache.root} ({_readable(freed)})."


def _readable(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"

"""Checks of the machine before anything is started.

All problems are reported together, each with its cure.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster.artifacts import binaries, debian, download, gobuild, rootfs
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import cgroups
from podium_devcluster.shell import CommandError, run

COMMANDS = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount", "openssl": "openssl"}
BUILD_DISK, RUN_DISK = 8 << 30, 2 << 30
NODE_MEMORY, PLANE_MEMORY = 2 << 30, 1 << 30
_OVERLAY = (
    'mount -t tmpfs t "$1" && mkdir "$1/l" "$1/u" "$1/w" "$1/m" && '
    'mount -t overlay o -o "lowerdir=$1/l,upperdir=$1/u,workdir=$1/w" "$1/m"'
)


@dataclass(frozen=True, slots=True)
class Problem:
    """What the machine lacks, and what to do."""

    what: str
    cure: str

    def __str__(self) -> str:
        return f"{self.what}: {self.cure}"


class PreflightError(RuntimeError):
    """The machine lacks something; the text lists all problems."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"this machine cannot run the cluster yet:\n{lines}")


def check(cache: Cache, nodes: int, progress: Progress) -> None:
    """Raise PreflightError with all problems; install missing Debian packages where possible."""
    problems: list[Problem] = []
    if sys.platform != "linux":
        raise PreflightError([Problem(f"not Linux but {sys.platform}", "use a Linux machine, or `make kind`")])
    if os.geteuid():
        raise PreflightError([Problem("not root", "run it as root (namespaces, mounts), or `make kind` with Docker")])
    problems += _commands(progress)
    if not problems:
        problems += _namespaces()
    problems += _cgroups(nodes)
    if nodes:
        problems += _nodes(cache)
    problems += _programs(cache, nodes)
    problems += _disk(cache, nodes)
    problems += _memory(nodes)
    if problems:
        raise PreflightError(problems)


def _commands(progress: Progress) -> list[Problem]:
    packages = sorted({package for command, package in COMMANDS.items() if shutil.which(command) is None})
    if not packages:
        return []
    try:
        debian.install_packages(packages, progress)
    except (debian.PackageError, CommandError) as error:
        return [Problem(f"missing programs of {', '.join(packages)}", str(error))]
    return []


def _namespaces() -> list[Problem]:
    try:
        kinds = ["--net", "--mount", "--pid", "--fork", "--uts", "--ipc"]
        run(["unshare", *kinds, "ip", "link", "show", "lo"], timeout=10)
    except CommandError as error:
        return [Problem("new namespaces are refused", f"run with CAP_SYS_ADMIN and CAP_NET_ADMIN ({error})")]
    try:
        script = "ip link add v0 type veth peer name v1 && ip link add b0 type bridge"
        run(["unshare", "--net", "--mount", "/bin/sh", "-c", script], timeout=10)
    except CommandError as error:
        return [Problem("no veth or bridge devices", f"load the kernel modules veth and bridge ({error})")]
    return []


def _cgroups(nodes: int) -> list[Problem]:
    hierarchies = cgroups.detect()
    if hierarchies.tracking is None:
        return [Problem("no control groups below /sys/fs/cgroup", "mount cgroup v2, or v1 with the freezer")]
    if not os.access(hierarchies.tracking, os.W_OK):
        return [Problem(f"{hierarchies.tracking} is read-only", "mount it writable (in a container: --privileged)")]
    missing = hierarchies.missing() if nodes else []
    return [Problem(f"controllers missing: {', '.join(missing)}", "enable them in the kernel")] if missing else []


def _nodes(cache: Cache) -> list[Problem]:
    problems = []
    if "overlay" not in Path("/proc/filesystems").read_text():
        problems.append(Problem("no overlayfs", "load the kernel module overlay"))
    else:
        try:
            run(["unshare", "--mount", "/bin/sh", "-c", _OVERLAY, "sh", "/tmp"], timeout=10)
        except CommandError as error:
            problems.append(Problem("overlayfs cannot be mounted", str(error)))
    cache.root.mkdir(parents=True, exist_ok=True)
    kind = run(["stat", "-f", "-c", "%T", str(cache.root)], timeout=10).strip()
    if kind in ("overlayfs", "tmpfs"):
        cure = "set PODIUM_CACHE to a folder on a disk (overlayfs does not nest, and images need space)"
        problems.append(Problem(f"the cache {cache.root} is on {kind}", cure))
    if not rootfs.folder(cache).is_dir() and not shutil.which("mmdebstrap") and not shutil.which("apt-get"):
        problems.append(Problem("no mmdebstrap and no apt-get to install it", "use Debian or Ubuntu, or `make kind`"))
    return problems


def _programs(cache: Cache, nodes: int) -> list[Problem]:
    missing = binaries.missing(cache, binaries.needed(nodes))
    if not missing or download.allowed() or gobuild.system_go():
        return []
    names = ", ".join(program.name for program in missing)
    cure = "unset PODIUM_DOWNLOAD=0, install Go 1.21 or newer, or set KUBEBUILDER_ASSETS"
    return [Problem(f"missing {names}, downloads are off and Go is not installed", cure)]


def _disk(cache: Cache, nodes: int) -> list[Problem]:
    builds = bool(binaries.missing(cache, binaries.needed(nodes)))
    wanted = BUILD_DISK if builds else RUN_DISK
    folder = cache.root
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free >= wanted:
        return []
    cure = f"free {(wanted - free) >> 20} MB more, or set PODIUM_CACHE to a folder on another disk"
    return [Problem(f"{free >> 20} MB free in {folder}, {wanted >> 20} MB are needed", cure)]


def _memory(nodes: int) -> list[Problem]:
    wanted = NODE_MEMORY if nodes else PLANE_MEMORY
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) << 10
            if free < wanted:
                return [Problem(f"{free >> 20} MB of memory available", f"{wanted >> 20} MB are needed")]
    return []

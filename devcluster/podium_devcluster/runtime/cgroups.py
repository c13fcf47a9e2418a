"""The control groups of one cluster, which hold every process of it.

They are made before anything starts, used to list all processes, and removed at the end. Every process of a cluster is
started below `devcluster-<name>` in one hierarchy (the freezer's on v1). So the kernel knows which processes belong to
the cluster: a recycled pid is never mistaken for one, and orphaned children are included.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
_V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


class CgroupError(RuntimeError):
    """The machine's control groups are not suitable for a cluster."""


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """The mounts of control groups: one root on v2; on v1 one per controller and often `unified` as well."""

    v2: bool
    roots: tuple[Path, ...]
    tracking: Path | None
    """The hierarchy that holds all processes of a cluster, and in which they are thawed before they are killed."""

    def missing(self) -> list[str]:
        """Return the missing controllers that a kubelet or a frozen trial needs."""
        if self.v2:
            available = set((self.roots[0] / "cgroup.controllers").read_text().split())
            return sorted({"cpu", "memory", "pids"} - available)
        names = {option for root in self.roots for option in root.name.split(",")}
        return sorted({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"} - names)


def parse_mounts(text: str) -> Hierarchies:
    """Return the hierarchies from the text of /proc/self/mounts. Pure."""
    v1: list[Path] = []
    v2: list[Path] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4 or not fields[1].startswith("/sys/fs/cgroup"):
            continue
        if fields[2] == "cgroup":
            v1.append(Path(fields[1]))
        elif fields[2] == "cgroup2":
            v2.append(Path(fields[1]))
    if v1:
        freezer = next((root for root in v1 if "freezer" in root.name.split(",")), None)
        return Hierarchies(False, tuple(dict.fromkeys([*v1, *v2])), freezer)
    return Hierarchies(True, tuple(dict.fromkeys(v2)), v2[0] if v2 else None)


def detect() -> Hierarchies:
    """Return the hierarchies of this machine."""
    return parse_mounts(MOUNTS.read_text())


@dataclass(frozen=True, slots=True)
class ClusterCgroups:
    """The control groups of the cluster with this name."""

    cluster: str
    hierarchies: Hierarchies

    @property
    def name(self) -> str:
        """The name of the cluster's top group."""
        return f"devcluster-{self.cluster}"

    @property
    def system(self) -> Path:
        """The group of the cluster's programs; pods have groups beside it."""
        if self.hierarchies.tracking is None:
            raise CgroupError("no cgroup v2 mount and no v1 freezer mount below /sys/fs/cgroup")
        return self.hierarchies.tracking / self.name / "system"

    @property
    def procs_file(self) -> Path:
        """The file to which a process writes 0 to join the cluster."""
        return self.system / "cgroup.procs"

    def kubelet_root(self, node: str) -> str:
        """Return the group below which a node's kubelet makes the groups of its pods."""
        return f"/{self.name}/{node}"

    def create(self, nodes: tuple[str, ...]) -> None:
        """Make the groups of the cluster and of its nodes in all hierarchies."""
        for root in self.hierarchies.roots:
            top = root / self.name
            if self.hierarchies.v2:
                _delegate(root)
            top.mkdir(exist_ok=True)
            if self.hierarchies.v2:
                _delegate(top)
            _init_cpuset(root, top)
            _set_cpu_shares(top, os.nice(0))
            for node in nodes:
                (top / node).mkdir(exist_ok=True)
                _init_cpuset(top, top / node)
        self.system.mkdir(exist_ok=True)

    def pids(self) -> set[int]:
        """Return every process of the cluster, with those of pods, in any hierarchy."""
        return {pid for top in self._tops() for folder in _walk(top) for pid in read_procs(folder)}

    def thaw(self, node: str | None = None) -> None:
        """Thaw all frozen processes, or only those of a node's pods: on v1 a frozen process survives SIGKILL."""
        for top in self._tops():
            for folder in _walk(top if node is None else top / node):
                _write(folder / "freezer.state", "THAWED")
                _write(folder / "cgroup.freeze", "0")

    def remove(self, timeout: float = 10.0) -> list[Path]:
        """Remove the groups, innermost first; return those that still hold processes after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            for top in self._tops():
                for folder in sorted(_walk(top), key=lambda path: len(path.parts), reverse=True):
                    _rmdir(folder)
            remaining = self.remaining()
            if not remaining or time.monotonic() > deadline:
                return remaining
            time.sleep(0.05)

    def remaining(self) -> list[Path]:
        """Return the cluster's groups that exist, one per hierarchy."""
        return list(self._tops())

    def _tops(self) -> Iterator[Path]:
        return (root / self.name for root in self.hierarchies.roots if (root / self.name).is_dir())


def read_procs(folder: Path) -> set[int]:
    """Return the processes of a group, without 0, which stands for processes of another pid namespace."""
    try:
        return {int(pid) for pid in (folder / "cgroup.procs").read_text().split()} - {0}
    except OSError:
        return set()


def _walk(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top):
        yield Path(folder)


def _write(file: Path, value: str) -> None:
    """Write a file of a group if possible: the group may be gone, or the kernel may lack the file."""
    try:
        if file.exists():
            file.write_text(value)
    except OSError:
        return


def _rmdir(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOENT, errno.ENOTEMPTY):
            raise CgroupError(f"cannot remove {folder}: {error}") from error


def _init_cpuset(parent: Path, child: Path) -> None:
    """Copy the CPUs and memory nodes of the parent: on v1 a cpuset without them accepts no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = child / name
        if (parent / name).exists() and file.exists() and not file.read_text().strip():
            _write(file, (parent / name).read_text().strip() or _effective(parent, name))


def _set_cpu_shares(top: Path, nice: int) -> None:
    """Give all pods together the CPU time of one program with this nice level, which the control plane inherits.

    On v1 the control plane is outside the group of the pods, and the kernel ignores the nice levels in a group. So pods
    would starve the control plane of a cluster that was started with a low priority.
    """
    _write(top / "cpu.shares", str(round(1024 / 1.25 ** max(0, nice))))


def _effective(parent: Path, name: str) -> str:
    file = parent / name.replace("cpuset.", "cpuset.effective_")
    return file.read_text().strip() if file.exists() else ""


def _delegate(group: Path) -> None:
    """Enable the controllers of a v2 group for its children.

    The root of a namespace refuses while it holds processes (the rule of no internal processes). They are then moved
    to a leaf group, as the images of container engines do.
    """
    available = set((group / "cgroup.controllers").read_text().split())
    wanted = " ".join(f"+{name}" for name in _V2_CONTROLLERS if name in available)
    control = group / "cgroup.subtree_control"
    try:
        control.write_text(wanted)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise CgroupError(
                f"cannot write {wanted!r} to {control}: {error}; run as root of the machine, or use cgroup v1"
            ) from error
        leaf = group / "init"
        leaf.mkdir(exist_ok=True)
        for pid in read_procs(group):
            _write_pid(leaf, pid)
        control.write_text(wanted)


def _write_pid(group: Path, pid: int) -> None:
    try:
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        return  # the process has ended, or is a kernel thread

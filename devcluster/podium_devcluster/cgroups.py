"""The control groups of one cluster: made before anything starts, used to find every process, removed at the end.

Every process that a cluster starts is put below `devcluster-<name>` in one hierarchy (the freezer's on v1). The kernel
answers from there who belongs to the cluster: a recycled pid cannot be mistaken for ours, and a child that lost its
parent is still found.
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
    """The machine's control groups cannot hold a cluster."""


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where control groups are mounted. v2: one root; v1: one a controller (and, often, `unified` beside them)."""

    v2: bool
    roots: tuple[Path, ...]
    tracking: Path | None
    """The hierarchy in which our processes are kept together, and thawed before they are killed."""

    def missing(self) -> list[str]:
        """Controllers without which a kubelet or a frozen trial cannot work."""
        if self.v2:
            have = set((self.roots[0] / "cgroup.controllers").read_text().split())
            return sorted({"cpu", "memory", "pids"} - have)
        names = {option for root in self.roots for option in root.name.split(",")}
        return sorted({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"} - names)


def parse_mounts(text: str) -> Hierarchies:
    """From /proc/self/mounts. Pure."""
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
    return parse_mounts(MOUNTS.read_text())


@dataclass(frozen=True, slots=True)
class ClusterCgroups:
    cluster: str
    hierarchies: Hierarchies

    @property
    def name(self) -> str:
        return f"devcluster-{self.cluster}"

    @property
    def system(self) -> Path:
        """The group that holds our own processes (pods have theirs beside it)."""
        if self.hierarchies.tracking is None:
            raise CgroupError("no cgroup v2 mount and no v1 freezer mount below /sys/fs/cgroup")
        return self.hierarchies.tracking / self.name / "system"

    @property
    def procs_file(self) -> Path:
        return self.system / "cgroup.procs"

    def kubelet_root(self, node: str) -> str:
        return f"/{self.name}/{node}"

    def create(self, nodes: tuple[str, ...]) -> None:
        for root in self.hierarchies.roots:
            top = root / self.name
            if self.hierarchies.v2:
                _delegate(root)
            top.mkdir(exist_ok=True)
            if self.hierarchies.v2:
                _delegate(top)
            _init_cpuset(root, top)
            for node in nodes:
                (top / node).mkdir(exist_ok=True)
                _init_cpuset(top, top / node)
        self.system.mkdir(exist_ok=True)

    def pids(self) -> set[int]:
        """Every process of the cluster, pods included, in any hierarchy."""
        found: set[int] = set()
        for top in self._tops():
            for folder in _walk(top):
                found |= read_procs(folder)
        return found

    def thaw(self, node: str | None = None) -> None:
        """A frozen process (v1) does not even die of SIGKILL. `node`: its pods only."""
        for top in self._tops():
            for folder in _walk(top if node is None else top / node):
                _write(folder / "freezer.state", "THAWED")
                _write(folder / "cgroup.freeze", "0")

    def remove(self, timeout: float = 10.0) -> list[Path]:
        """Remove the groups, innermost first; returns what is left (its processes are not quite gone)."""
        deadline = time.monotonic() + timeout
        while True:
            for top in self._tops():
                for folder in sorted(_walk(top), key=lambda path: len(path.parts), reverse=True):
                    _rmdir(folder)
            left = list(self._tops())
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)

    def left(self) -> list[Path]:
        return list(self._tops())

    def _tops(self) -> Iterator[Path]:
        return (root / self.name for root in self.hierarchies.roots if (root / self.name).is_dir())


def read_procs(folder: Path) -> set[int]:
    """0 stands for a process outside our own pid namespace: not ours to signal."""
    try:
        return {int(pid) for pid in (folder / "cgroup.procs").read_text().split()} - {0}
    except OSError:
        return set()


def _walk(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top):
        yield Path(folder)


def _write(file: Path, value: str) -> None:
    """Best effort: the group may be gone, or this kernel may not have the file."""
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
    """v1 only: a cpuset without CPUs and memory nodes takes no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = child / name
        if (parent / name).exists() and file.exists() and not file.read_text().strip():
            _write(file, (parent / name).read_text().strip() or _effective(parent, name))


def _effective(parent: Path, name: str) -> str:
    file = parent / name.replace("cpuset.", "cpuset.effective_")
    return file.read_text().strip() if file.exists() else ""


def _delegate(group: Path) -> None:
    """v2: let the children of `group` use its controllers. A namespace's root that still holds processes refuses
    (no internal processes): then those move to a leaf of their own, as container engines' own images do."""
    have = set((group / "cgroup.controllers").read_text().split())
    wanted = " ".join(f"+{name}" for name in _V2_CONTROLLERS if name in have)
    control = group / "cgroup.subtree_control"
    try:
        control.write_text(wanted)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise CgroupError(f"cannot write {wanted!r} to {control}: {error}; run as real root, or use v1") from error
        leaf = group / "init"
        leaf.mkdir(exist_ok=True)
        for pid in read_procs(group):
            _write_pid(leaf, pid)
        control.write_text(wanted)


def _write_pid(group: Path, pid: int) -> None:
    try:
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        return  # it ended meanwhile, or is a kernel thread

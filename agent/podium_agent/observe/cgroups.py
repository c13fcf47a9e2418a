"""Processes and freezers of containers in the cgroup file systems, versions 1 and 2.

The observer uses it to find containers, and the suspension methods to freeze them. `cgroup_paths` names containers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from podium_agent.observe.cgroup_paths import CRUN_SUBGROUP, container_id, memberships_of, parse_path, peer_of
from podium_suspension.target import FreezerState

_SIGTERM_BIT = 1 << 14
# processes of the sandbox and the gate: they do not show that the trial itself still runs
_NOT_THE_TRIALS = ("pause", "podium-gate")


@dataclass(frozen=True, slots=True)
class Freezer:
    """The freezer of one cgroup; `unified`: cgroup v2 (cgroup.freeze), else v1 (freezer.state)."""

    path: Path
    unified: bool

    @property
    def name(self) -> str:
        """The part of the path that carries the container's id; notes about the container have this name."""
        parent = self.path.parent.name
        return parent if self.path.name == CRUN_SUBGROUP and container_id(parent) else self.path.name

    def ask(self, frozen: bool) -> None:
        """Request the state; a cgroup that is gone is not an error."""
        try:
            if self.unified:
                (self.path / "cgroup.freeze").write_text("1" if frozen else "0")
            else:
                (self.path / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
        except FileNotFoundError:
            pass
        except OSError as error:
            if not self.path.exists():
                return
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def frost(self) -> FreezerState:
        """Return the state that the kernel reports; GONE also if the cgroup exists without a process.

        Raises OSError if the kernel does not answer (without a free file descriptor, for example): that proves no end.
        """
        try:
            if self.unified:
                events = dict(line.split() for line in (self.path / "cgroup.events").read_text().splitlines())
                if events.get("populated") == "0":
                    return FreezerState.GONE
                if events.get("frozen") == "1":
                    return FreezerState.FROZEN
                asked = (self.path / "cgroup.freeze").read_text().strip() == "1"
                return FreezerState.FREEZING if asked else FreezerState.THAWED
            state = (self.path / "freezer.state").read_text().strip()
            if not _populated(self.path):
                return FreezerState.GONE
        except OSError as error:
            if not _removed(error):
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            return FreezerState.GONE
        return {"FROZEN": FreezerState.FROZEN, "FREEZING": FreezerState.FREEZING}.get(state, FreezerState.THAWED)

    def processes(self) -> frozenset[int]:
        """Return all processes in the cgroup and below it; raises OSError as `frost` does."""
        try:
            return frozenset(_processes(self.path))
        except OSError as error:
            if not _removed(error):
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            return frozenset()


@dataclass(frozen=True, slots=True)
class Container:
    """A container on this node: its freezer and its first process."""

    id: str
    pid: int
    freezer: Freezer


def find_containers(proc: Path, cgroup_root: Path, ids: frozenset[str]) -> dict[str, Container]:
    """Search all processes for these container ids; the first process of a container has its lowest pid.

    Raises OSError if the kernel does not answer (without a free file descriptor, for example).
    """
    containers: dict[str, Container] = {}
    if not ids:
        return containers
    for name in sorted((name for name in os.listdir(proc) if name.isdigit()), key=int):
        memberships = memberships_of(proc, int(name))
        for _, _, path in memberships:
            found = parse_path(path)
            if found is not None and found.id in ids and found.id not in containers:
                freezer = _freezer(cgroup_root, memberships, found.id)
                if freezer is not None:
                    containers[found.id] = Container(found.id, int(name), freezer)
                break
    return containers


def find_remaining_containers(
    proc: Path, cgroup_root: Path, pod_uids: frozenset[str]
) -> dict[str, tuple[Container, ...]]:
    """Return the containers of these pods that still run, whatever the API reports.

    Other pods are left out. Raises OSError if the kernel does not answer: a pod left out would seem to have ended.
    """
    ids: dict[str, str] = {}
    for name in (name for name in os.listdir(proc) if name.isdigit()) if pod_uids else ():
        peer = peer_of(proc, int(name))
        if peer is not None and peer.pod_uid in pod_uids and _command(proc, name) not in _NOT_THE_TRIALS:
            ids[peer.container] = peer.pod_uid
    left: dict[str, tuple[Container, ...]] = {}
    for container in find_containers(proc, cgroup_root, frozenset(ids)).values():
        pod_uid = ids[container.id]
        left[pod_uid] = (*left.get(pod_uid, ()), container)
    return left


def _command(proc: Path, pid: str) -> str:
    try:
        return (proc / pid / "comm").read_text().strip()
    except (OSError, ValueError):
        return ""


def handles_sigterm(proc: Path, pid: int) -> bool:
    """Return whether SIGTERM has an effect: pid 1 of a pid namespace ignores signals without a handler."""
    try:
        status = status_of(proc, pid)
        caught = bool(int(status["SigCgt"].strip(), 16) & _SIGTERM_BIT)
        ignored = bool(int(status["SigIgn"].strip(), 16) & _SIGTERM_BIT)
        first_in_namespace = status["NSpid"].split()[-1] == "1"
    except (OSError, KeyError, ValueError, IndexError):
        return True  # unknown: assume that it handles SIGTERM
    return caught or not (ignored or first_in_namespace)


def sigterm_pending(proc: Path, pid: int) -> bool:
    """Return whether a SIGTERM was sent and not delivered yet, because the process is frozen for example."""
    try:
        status = status_of(proc, pid)
        return any(int(status[pending].strip(), 16) & _SIGTERM_BIT for pending in ("ShdPnd", "SigPnd"))
    except (OSError, KeyError, ValueError):
        return False


def status_of(proc: Path, pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status; raises OSError."""
    lines = (proc / str(pid) / "status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _populated(path: Path) -> bool:
    """Return whether a process is in the cgroup or below it; cgroup v1 has no `populated`."""
    return next(_processes(path), None) is not None


def _processes(path: Path, without: str = "") -> Iterator[int]:
    """Yield the processes of the cgroup, then of each cgroup below it, except the one named `without`.

    A cgroup of threads answers EOPNOTSUPP; the cgroup above it lists its processes.
    """
    yield from map(int, (path / "cgroup.procs").read_text(errors="replace").split())
    with os.scandir(path) as children:
        below = [Path(one.path) for one in children if one.is_dir(follow_symlinks=False) and one.name != without]
    for child in below:
        try:
            yield from _processes(child)
        except OSError as error:
            if not _removed(error) and error.errno != errno.EOPNOTSUPP:
                raise  # a removed child does not affect its siblings


def _removed(error: OSError) -> bool:
    """Return whether the cgroup was removed before or between two reads.

    An open file of it answers ENODEV.
    """
    return error.errno in (errno.ENOENT, errno.ENODEV)


def _freezer(root: Path, memberships: list[tuple[str, str, str]], container: str) -> Freezer | None:
    """Return the container's v1 freezer if that hierarchy is mounted, else the unified one.

    The process may be in a cgroup below it, made by the container.
    """
    for controllers, _, path in memberships:
        if "freezer" in controllers.split(","):
            place = _place(root / "freezer", path, container)
            if place is not None and (place / "freezer.state").exists():
                return Freezer(place, unified=False)
    for controllers, hierarchy, path in memberships:
        if hierarchy == "0" and controllers == "":
            for mount in (root, root / "unified"):
                place = _place(mount, path, container)
                if place is not None and (place / "cgroup.freeze").exists():
                    return Freezer(_crun_subgroup(place) or place, unified=True)
    return None


def _place(mount: Path, path: str, container: str) -> Path | None:
    found = parse_path(path)
    return mount / found.path.lstrip("/") if found is not None and found.id == container else None


def _crun_subgroup(scope: Path) -> Path | None:
    """Return the cgroup in a scope that crun made for the container, or None if it does not have all processes.

    crun refuses to enter a container if this cgroup is frozen. If the scope is, crun freezes in it and hangs.
    """
    subgroup = scope / CRUN_SUBGROUP
    if scope.suffix != ".scope" or not (subgroup / "cgroup.freeze").exists():
        return None
    try:
        return subgroup if next(_processes(scope, without=CRUN_SUBGROUP), None) is None else None
    except OSError as error:
        if not _removed(error):
            raise
        return None

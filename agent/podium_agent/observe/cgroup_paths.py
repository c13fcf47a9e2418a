"""Paths of containers in the cgroup file systems, and the processes in them. The gate server identifies peers by it.

Below the pod's part, one part of the path carries the container's id:

| runtime | driver cgroupfs | driver systemd |
| --- | --- | --- |
| containerd with runc (also k3s, RKE2, kind) | `ID` | `cri-containerd-ID.scope` |
| containerd with crun, cgroup v2 | `ID` | `cri-containerd-ID.scope/container` |
| CRI-O (also OpenShift) | `crio-ID` | `crio-ID.scope`, with crun and cgroup v2 `crio-ID.scope/container` |
| Docker by cri-dockerd | `ID` | `docker-ID.scope` |

A kubelet and a containerd with different drivers have one part for both, `kubepods-podUID.slice:cri-containerd:ID`.
CRI-O's monitor has a cgroup of its own, `crio-conmon-ID.scope`, in the pod or outside it. It is never the container.

A container may make cgroups below its own, named as it likes (systemd or Docker in a pod). A node may be a container
itself (kind, k3d). So the outermost pod counts, and in it the outermost id.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_POD = re.compile(
    r"(?:^|-)pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?:\.slice|:|$)"
)
_CONTAINER = re.compile(r"(?:^|[-:])([0-9a-f]{64})(?:\.scope)?$")
_MONITOR = "conmon"
CRUN_SUBGROUP = "container"  # crun(1), annotation run.oci.systemd.subgroup: its default with cgroup v2


@dataclass(frozen=True, slots=True)
class ContainerPath:
    """A container as a path names it; `path` ends with the part that carries the id."""

    pod_uid: str
    id: str
    path: str


@dataclass(frozen=True, slots=True)
class Peer:
    """Pod and container of a process, as its cgroup names them."""

    pod_uid: str
    container: str


@lru_cache(maxsize=4096)  # a process has the same path in most hierarchies of cgroup v1
def parse_path(path: str) -> ContainerPath | None:
    """Return the container that a path of /proc/PID/cgroup belongs to, or None if there is none."""
    pod_uid = ""
    parts = path.split("/")
    for number, part in enumerate(parts, start=1):
        if not pod_uid and (pod := _POD.search(part)):
            pod_uid = pod.group(1).replace("_", "-")
        if pod_uid and (container := container_id(part)):
            return ContainerPath(pod_uid, container, "/".join(parts[:number]))
    return None


def container_id(part: str) -> str | None:
    """Return the id that one part of a path carries, or None; a monitor's cgroup carries none."""
    match = _CONTAINER.search(part)
    return match.group(1) if match and _MONITOR not in part else None


def memberships_of(proc: Path, pid: int) -> list[tuple[str, str, str]]:
    """Return (controllers, hierarchy, path) of each line of /proc/PID/cgroup.

    Empty if the process is gone. Raises OSError if the kernel does not answer: that proves no end.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESRCH):
            raise
        return []
    parts = [line.split(":", 2) for line in lines]
    return [(part[1], part[0], part[2]) for part in parts if len(part) == 3]


def peer_of(proc: Path, pid: int) -> Peer | None:
    """Return the pod and container of a process, or None if it is in no pod or has ended. Raises OSError."""
    for _, _, path in memberships_of(proc, pid):
        found = parse_path(path)
        if found is not None:
            return Peer(found.pod_uid, found.id)
    return None


def cgroup_names(proc: Path) -> frozenset[str]:
    """Return the parts of the paths of all cgroups with processes."""
    pids = (int(name) for name in os.listdir(proc) if name.isdigit())
    return frozenset(part for pid in pids for _, _, path in memberships_of(proc, pid) for part in path.split("/"))

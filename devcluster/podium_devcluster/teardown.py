"""End a cluster for certain, however it came to be: processes, namespaces, mounts, control groups, state.

Nothing here relies on what a former run wrote down: what belongs to the cluster is asked of the kernel.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from podium_devcluster import network
from podium_devcluster.cgroups import ClusterCgroups
from podium_devcluster.paths import ClusterPaths
from podium_devcluster.processes import Processes, is_same, state_of

KILL_SECONDS = 20.0


class LeftoverError(RuntimeError):
    """Something survived."""


def pids(cgroups: ClusterCgroups, processes: Processes) -> set[int]:
    """By control group, and those recorded ones that are still the same process."""
    recorded = {r.pid for r in processes.records().values() if is_same(r, state_of(r.pid))}
    alive = {pid for pid in cgroups.pids() if (state := state_of(pid)) is not None and state.state not in "ZX"}
    return (recorded | alive) - {os.getpid()}


def mounts_below(folder: Path, text: str) -> list[str]:
    """Mount points at or below `folder`, from /proc/self/mounts. Pure."""
    points = [line.split()[1].replace("\\040", " ") for line in text.splitlines() if len(line.split()) > 1]
    return [point for point in points if Path(point) == folder or folder in Path(point).parents]


def foreign(paths: ClusterPaths, cgroups: ClusterCgroups) -> str:
    """The state folder of a living cluster of this name that another cache owns; "" when there is none."""
    try:
        owner = paths.owner.read_text().strip()
    except OSError:
        return ""
    return owner if owner != str(paths.root) and cgroups.pids() else ""


def claim(paths: ClusterPaths) -> None:
    paths.owner.parent.mkdir(parents=True, exist_ok=True)
    paths.owner.write_text(str(paths.root))


def leftovers(paths: ClusterPaths, cgroups: ClusterCgroups, processes: Processes) -> list[str]:
    """Everything of this cluster that is on the machine outside its state folder."""
    found = [f"process {pid}" for pid in sorted(pids(cgroups, processes))]
    found += [f"network namespace {name}" for name in network.existing(paths.name)]
    found += [f"mount {point}" for point in mounts_below(paths.root, Path("/proc/self/mounts").read_text())]
    return found + [f"control group {group}" for group in cgroups.left()]


def end_processes(cgroups: ClusterCgroups, processes: Processes) -> int:
    """SIGKILL to all at once: their data is thrown away. Frozen ones are thawed first, again and again."""
    deadline = time.monotonic() + KILL_SECONDS
    ended: set[int] = set()
    while left := pids(cgroups, processes):
        ended |= left
        cgroups.thaw()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise LeftoverError(f"processes {sorted(left)} do not end on SIGKILL (stuck in the kernel?)")
        time.sleep(0.03)
    return len(ended)


def clear(paths: ClusterPaths, cgroups: ClusterCgroups, processes: Processes, purge: bool) -> int:
    """Returns how many processes had to be ended. `purge` also forgets logs, certificates and the nodes' images."""
    ended = end_processes(cgroups, processes)
    network.remove(paths.name)
    stuck = cgroups.remove()
    left = leftovers(paths, cgroups, processes)
    if stuck or left:
        raise LeftoverError("still there: " + ", ".join(left or map(str, stuck)))
    paths.owner.unlink(missing_ok=True)
    _forget(paths, purge)
    return ended


def _forget(paths: ClusterPaths, purge: bool) -> None:
    """No mount is left below the state folder (just checked), so deleting stays inside it."""
    if purge:
        shutil.rmtree(paths.root, ignore_errors=True)
        return
    shutil.rmtree(paths.run, ignore_errors=True)
    shutil.rmtree(paths.etcd, ignore_errors=True)
    paths.spec.unlink(missing_ok=True)
    paths.kubeconfig.unlink(missing_ok=True)
    for node in (paths.root / "nodes").glob("*"):
        for folder in ("upper", "work", "merged", "kubelet", "config"):
            shutil.rmtree(node / folder, ignore_errors=True)

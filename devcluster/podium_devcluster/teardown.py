"""End a cluster reliably: processes, namespaces, mounts, control groups and state.

What belongs to a cluster is read from the kernel, not from files of an earlier run, which may have been killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from podium_devcluster.paths import ClusterPaths
from podium_devcluster.runtime import network
from podium_devcluster.runtime.cgroups import ClusterCgroups
from podium_devcluster.runtime.processes import Processes, is_same, state_of

KILL_SECONDS = 20.0


class LeftoverError(RuntimeError):
    """Parts of the cluster could not be removed."""


def pids(cgroups: ClusterCgroups, processes: Processes) -> set[int]:
    """Return the cluster's processes: those in its control groups, and recorded ones that still run."""
    recorded = {r.pid for r in processes.records().values() if is_same(r, state_of(r.pid))}
    alive = {pid for pid in cgroups.pids() if (state := state_of(pid)) is not None and state.state not in "ZX"}
    return (recorded | alive) - {os.getpid()}


def mounts_below(folder: Path, text: str) -> list[str]:
    """Return the mount points at or below `folder` from the text of /proc/self/mounts. Pure."""
    points = [line.split()[1].replace("\\040", " ") for line in text.splitlines() if len(line.split()) > 1]
    return [point for point in points if Path(point) == folder or folder in Path(point).parents]


def other_owner(paths: ClusterPaths, cgroups: ClusterCgroups) -> str:
    """Return the state folder of a running cluster of this name in another cache, or ""."""
    try:
        owner = paths.owner.read_text().strip()
    except OSError:
        return ""
    return owner if owner != str(paths.root) and cgroups.pids() else ""


def claim(paths: ClusterPaths) -> None:
    """Record that this state folder owns the cluster's name on the machine."""
    paths.owner.parent.mkdir(parents=True, exist_ok=True)
    paths.owner.write_text(str(paths.root))


def leftovers(paths: ClusterPaths, cgroups: ClusterCgroups, processes: Processes) -> list[str]:
    """Return everything of this cluster that the machine holds outside its state folder."""
    parts = [f"process {pid}" for pid in sorted(pids(cgroups, processes))]
    parts += [f"network namespace {name}" for name in network.existing(paths.name)]
    parts += [f"mount {point}" for point in mounts_below(paths.root, Path("/proc/self/mounts").read_text())]
    return parts + [f"control group {group}" for group in cgroups.remaining()]


def end_processes(cgroups: ClusterCgroups, processes: Processes) -> int:
    """Kill all processes and return their number.

    Their data is discarded, so SIGKILL is enough; frozen ones are thawed.
    """
    deadline = time.monotonic() + KILL_SECONDS
    ended: set[int] = set()
    while remaining := pids(cgroups, processes):
        ended |= remaining
        cgroups.thaw()
        for pid in remaining:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise LeftoverError(f"processes {sorted(remaining)} do not end on SIGKILL; see their stacks in /proc")
        time.sleep(0.03)
    return len(ended)


def clear(paths: ClusterPaths, cgroups: ClusterCgroups, processes: Processes, purge: bool) -> int:
    """End the cluster and return the number of killed processes.

    `purge` also removes logs, certificates and images.
    """
    ended = end_processes(cgroups, processes)
    network.remove(paths.name)
    stuck = cgroups.remove()
    remaining = leftovers(paths, cgroups, processes)
    if stuck or remaining:
        raise LeftoverError("could not be removed: " + ", ".join(remaining or map(str, stuck)))
    paths.owner.unlink(missing_ok=True)
    _remove_state(paths, purge)
    return ended


def _remove_state(paths: ClusterPaths, purge: bool) -> None:
    """Remove the state folder, or what the next start makes again.

    The caller has checked that it contains no mount.
    """
    if purge:
        shutil.rmtree(paths.root, ignore_errors=True)
        return
    shutil.rmtree(paths.run, ignore_errors=True)
    shutil.rmtree(paths.etcd, ignore_errors=True)
    shutil.rmtree(paths.root / "vm", ignore_errors=True)
    paths.spec.unlink(missing_ok=True)
    paths.kubeconfig.unlink(missing_ok=True)
    for node in (paths.root / "nodes").glob("*"):
        for folder in ("upper", "work", "merged", "kubelet", "config"):
            shutil.rmtree(node / folder, ignore_errors=True)

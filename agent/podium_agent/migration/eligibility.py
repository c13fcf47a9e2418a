"""Decide whether a container can be migrated, before anything is done to it. Pure.

A container that is refused here would fail later or be restored incorrectly: without a folder that remains on the old
node, or without a GPU. Only CRIU can detect some obstacles, such as TCP connections. The checkpoint then fails, and the
container continues to run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from podium_agent.migration import runtimes
from podium_agent.migration.errors import MigrationError
from podium_agent.migration.open_files import OpenFiles

# volumes with the same contents on every node; the contents of other kinds remain on the old node
PORTABLE_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "fc", "iscsi", "nfs", "persistentVolumeClaim", "projected", "secret"}
)
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
GPU_LIBRARIES = ("libcuda.so", "libnvidia-ml.so")
NO_OPEN_FILES = OpenFiles()
IO_URING = "anon_inode:[io_uring]"


@dataclass(frozen=True, slots=True)
class NodeRuntime:
    """A node: its name, its runtime as the node reports it, and its architecture (`amd64`, ...)."""

    node: str
    runtime: str
    architecture: str
    restore_enabled: bool = False


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """The container to migrate and its pod.

    `containers`: names of the containers that run at the same time.
    `volumes`: name and kind of each volume that they mount.
    `image_id`: the image that the container runs, as its status reports it.
    `mounts`: paths of the volumes in the container.
    `open_files`: files that its processes have open.
    `off_gpu`: whether the driver has moved its GPU memory to host memory (`cuda-checkpoint`).
    """

    containers: tuple[str, ...]
    volumes: tuple[tuple[str, str], ...]
    image_id: str
    host_namespaces: bool = False
    mounts: tuple[str, ...] = ()
    open_files: OpenFiles = NO_OPEN_FILES
    off_gpu: bool = False


def ineligible(
    container_facts: ContainerFacts, source: NodeRuntime, target: NodeRuntime | None
) -> MigrationError | None:
    """Return the first reason against a migration; None if there is none. `target` may be undecided."""
    return next((refused for refused in _reasons(container_facts, source, target) if refused is not None), None)


def _reasons(
    container_facts: ContainerFacts, source: NodeRuntime, target: NodeRuntime | None
) -> Iterable[MigrationError | None]:
    runs = runtimes.parse(source.runtime)
    yield runtimes.checkpoint_unsupported(runs)
    if target is not None:
        yield _nodes(source, target, runs)
    yield _pod(container_facts)
    yield _processes(container_facts.open_files.all, container_facts.off_gpu)
    yield _written(container_facts)


def _nodes(source: NodeRuntime, target: NodeRuntime, runs: runtimes.Runtime) -> MigrationError | None:
    other = runtimes.parse(target.runtime)
    if other.name != runs.name:
        message = (
            f"{target.node} runs {other}, {source.node} runs {runs}; choose a node with the same runtime, "
            "which alone can restore the checkpoint"
        )
        return MigrationError("RuntimesDiffer", message)
    if target.architecture != source.architecture:
        message = (
            f"{target.node} is {target.architecture}, {source.node} is {source.architecture}; choose a node of the same"
            " architecture"
        )
        return MigrationError("ArchitecturesDiffer", message)
    return runtimes.restore_unsupported(other, target.restore_enabled)


def _pod(container_facts: ContainerFacts) -> MigrationError | None:
    if len(container_facts.containers) != 1:
        names = ", ".join(container_facts.containers)
        message = (
            f"{len(container_facts.containers)} containers run in this pod ({names}); "
            "only a pod with one container can be migrated"
        )
        return MigrationError("MultipleContainers", message)
    if container_facts.host_namespaces:
        return MigrationError(
            "HostNamespaces", "the pod uses the network, PID or IPC namespace of its node, so it cannot be migrated"
        )
    for name, kind in container_facts.volumes:
        if kind not in PORTABLE_VOLUMES:
            message = f"volume {name} ({kind}) remains on this node; use a persistent volume"
            return MigrationError("NodeLocalVolume", message)
    if "@sha256:" not in container_facts.image_id:
        message = (
            f"the container's image is {container_facts.image_id or 'unknown'}, without the digest by which the "
            "new node pulls it; push the image to a registry"
        )
        return MigrationError("ImageWithoutDigest", message)
    return None


def _processes(open_files: Iterable[str], off_gpu: bool) -> MigrationError | None:
    markers = GPU_DEVICES if off_gpu else GPU_DEVICES + GPU_LIBRARIES
    for path in sorted(open_files):
        if any(marker in path for marker in markers):
            cure = (
                "use app-checkpoint" if off_gpu else "suspend the trial by cuda-checkpoint first, or use app-checkpoint"
            )
            message = f"a process has {path} open, and a container checkpoint does not include GPU state; {cure}"
            return MigrationError("GPUAttached", message)
        if path == IO_URING:
            message = (
                "a process uses io_uring, which CRIU does not support; turn it off (for example UV_USE_IO_URING=0)"
            )
            return MigrationError("IOUringInUse", message)
    return None


def _written(container_facts: ContainerFacts) -> MigrationError | None:
    """Refuse files on volumes that are open for writing.

    The container runs while its archive is written, so such a file may grow, and CRIU requires an unchanged size.
    """
    for path in sorted(container_facts.open_files.written):
        if any(path == mount or path.startswith(mount.rstrip("/") + "/") for mount in container_facts.mounts):
            message = (
                f"a process has {path} open for writing, and the file is on a volume; close the file between two writes"
            )
            return MigrationError("VolumeFileOpen", message)
    return None

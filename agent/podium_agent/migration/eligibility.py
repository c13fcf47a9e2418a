"""Whether a container can be moved, before anything is done to it. Pure: facts in, the first reason against it out.

Used by `move`. What is refused here would fail later, or worse, come back as something else: a folder that stays
behind, a GPU that the process believes to hold. What only CRIU can say (TCP connections, for one) it says itself: the
checkpoint fails then, and the container works on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from podium_agent.migration import runtimes
from podium_agent.migration.open_files import Opened
from podium_agent.migration.refusal import MoveError

# what is the same wherever a pod starts; contents of the others stay on the node
TRAVELS = frozenset(
    {"configMap", "csi", "downwardAPI", "fc", "iscsi", "nfs", "persistentVolumeClaim", "projected", "secret"}
)
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
GPU_LIBRARIES = ("libcuda.so", "libnvidia-ml.so")
NOTHING_OPENED = Opened()
IO_URING = "anon_inode:[io_uring]"


@dataclass(frozen=True, slots=True)
class Place:
    """A node: its name, its runtime as the node says it, and its machine (`amd64`, ...)."""

    node: str
    runtime: str
    architecture: str
    restore_switched_on: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to move. `containers`: those that run beside each other; `volumes`: name and kind of each;
    `image_id`: what its status says it runs from; `mounts`: where its volumes are in it; `opened`: by its processes.
    `off_gpu`: it is suspended and the driver has moved what it held on GPUs to its own memory (`cuda-checkpoint`)."""

    containers: tuple[str, ...]
    volumes: tuple[tuple[str, str], ...]
    image_id: str
    host_namespaces: bool = False
    mounts: tuple[str, ...] = ()
    opened: Opened = NOTHING_OPENED
    off_gpu: bool = False


def why_not(subject: Subject, source: Place, target: Place | None) -> MoveError | None:
    """None if nothing speaks against it. `target` None: where to is not decided yet."""
    return next((refused for refused in _reasons(subject, source, target) if refused is not None), None)


def _reasons(subject: Subject, source: Place, target: Place | None) -> Iterable[MoveError | None]:
    runs = runtimes.parse(source.runtime)
    yield runtimes.why_not_written(runs)
    if target is not None:
        yield _places(source, target, runs)
    yield _pod(subject)
    yield _processes(subject.opened.all, subject.off_gpu)
    yield _written(subject)


def _places(source: Place, target: Place, runs: runtimes.Runtime) -> MoveError | None:
    other = runtimes.parse(target.runtime)
    if other.name != runs.name:
        message = f"{target.node} runs {other}, {source.node} {runs}: a checkpoint is for the runtime that wrote it"
        return MoveError("RuntimesDiffer", message)
    if target.architecture != source.architecture:
        message = (
            f"{target.node} is {target.architecture}, {source.node} {source.architecture}: name a node of the same"
        )
        return MoveError("ArchitecturesDiffer", message)
    return runtimes.why_not_restored(other, target.restore_switched_on)


def _pod(subject: Subject) -> MoveError | None:
    if len(subject.containers) != 1:
        names = ", ".join(subject.containers)
        message = f"a checkpoint is of one container, and {len(subject.containers)} run in this pod ({names})"
        return MoveError("MultipleContainers", message)
    if subject.host_namespaces:
        return MoveError(
            "HostNamespaces", "the pod uses its node's own network, process or IPC namespace: it cannot leave"
        )
    for name, kind in subject.volumes:
        if kind not in TRAVELS:
            message = f"volume {name} ({kind}) stays on this node with what is in it: use a persistent volume"
            return MoveError("NodeLocalVolume", message)
    if "@sha256:" not in subject.image_id:
        message = (
            f"its image is known here as {subject.image_id or 'nothing'}, not by a registry's digest, by which the "
            "other node's runtime pulls it: push it to a registry"
        )
        return MoveError("ImageWithoutDigest", message)
    return None


def _processes(opened: Iterable[str], off_gpu: bool) -> MoveError | None:
    marks = GPU_DEVICES if off_gpu else GPU_DEVICES + GPU_LIBRARIES
    for path in sorted(opened):
        if any(mark in path for mark in marks):
            cure = "use app-checkpoint" if off_gpu else "suspend it by cuda-checkpoint first, or use app-checkpoint"
            message = f"a process of it holds {path}: state of a GPU is in no container checkpoint; {cure}"
            return MoveError("GPUAttached", message)
        if path == IO_URING:
            message = "a process of it uses io_uring, which CRIU does not know; turn it off (UV_USE_IO_URING=0, say)"
            return MoveError("IOUringInUse", message)
    return None


def _written(subject: Subject) -> MoveError | None:
    """It works on while its archive is written: such a file grows, and CRIU brings back none of another size."""
    for path in sorted(subject.opened.written):
        if any(path == mount or path.startswith(mount.rstrip("/") + "/") for mount in subject.mounts):
            message = (
                f"a process of it holds {path} open for writing, which is on a volume: close it between two writes"
            )
            return MoveError("VolumeFileOpen", message)
    return None

"""Files and devices of the node, seen through its root folder.

A link of the node may be absolute. The kernel would follow it from the agent's own root, so it is followed here.

A privileged container gets the devices that its node has when the container is made. GPU Operator and the installers of
clouds load the driver minutes after the node has joined the cluster, so the agent adds missing device nodes.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections import deque
from pathlib import Path

log = logging.getLogger(__name__)
MOST_LINKS = 40  # as the kernel
# with the devices of the node, and of GPU Operator's driver container
DEVICE_FOLDERS = ("dev", "run/nvidia/driver/dev")
MOST_DEVICES = 256


def resolve(root: Path, path: str) -> Path | None:
    """Return the regular file below `root` to which `path` of the node leads, or None.

    No link leads out of `root`.
    """
    parts, at, links = deque(_parts(path)), root, 0
    while parts:
        part = parts.popleft()
        if part == "..":
            at = at.parent if at != root else at
            continue
        at /= part
        try:
            target = os.readlink(at)
        except OSError as error:
            if error.errno == errno.EINVAL:
                continue  # not a link
            return None
        links += 1
        if links > MOST_LINKS:
            return None
        parts.extendleft(reversed(_parts(target)))
        at = root if target.startswith("/") else at.parent
    return at if os.path.isfile(at) else None


def add_device_nodes(node: Path, devices: Path) -> tuple[str, ...]:
    """Create each NVIDIA device of the node that `devices` lacks; return their names.

    A node that cannot be created is logged: NVML then reports that no GPU answers.
    """
    added: list[str] = []
    for folder in DEVICE_FOLDERS:
        for name, number in _nvidia_devices(node / folder).items():
            if (devices / name).exists():
                continue
            try:
                os.mknod(devices / name, stat.S_IFCHR | 0o666, number)
            except OSError as error:
                log.warning("device node %s cannot be created: %s; restart the agent", devices / name, error)
                continue
            added.append(name)
    if added:
        log.info("device nodes added: %s", ", ".join(added))
    return tuple(added)


def _nvidia_devices(folder: Path) -> dict[str, int]:
    """Return the device number of each NVIDIA character device in a folder."""
    found: dict[str, int] = {}
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("nvidia"))
    except OSError:
        return found
    for name in names[:MOST_DEVICES]:
        try:
            status = os.lstat(folder / name)
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode):
            found[name] = status.st_rdev
    return found


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]

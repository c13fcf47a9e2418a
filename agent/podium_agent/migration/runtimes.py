"""Which container runtimes can write a checkpoint, and which can restore one as a pod. Pure tables and one parser.

containerd is removing the restore from an image: since 2.2.7 and 2.3.4 it is off unless
`enable_experimental_restore_via_create` is set, and 2.4 does not have it.
Sources: containerd's RELEASES.md and commits 928c03c68 and 91be73ba6, CRI-O's configuration reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from podium_agent.migration.errors import MigrationError

Version = tuple[int, int, int]

WRITES: dict[str, Version] = {"containerd": (2, 0, 0), "cri-o": (1, 25, 0)}
RESTORES: dict[str, Version] = {"containerd": (2, 1, 0), "cri-o": (1, 25, 0)}
# since this patch of a minor version, only if the administrator switched it on
SWITCHED_OFF: dict[tuple[str, int, int], int] = {("containerd", 2, 2): 7, ("containerd", 2, 3): 4}
REMOVED: dict[str, Version] = {"containerd": (2, 4, 0)}
SWITCH = "enable_experimental_restore_via_create"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A node's runtime, from `status.nodeInfo.containerRuntimeVersion` such as "containerd://2.1.9"."""

    name: str
    version: Version

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


def parse(text: str) -> Runtime:
    """Parse a runtime and its version; a pre-release counts as its release. Raises MigrationError."""
    name, _, rest = text.partition("://")
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", rest)
    if match is None:
        message = f"Podium does not know whether the node's runtime {text!r} can checkpoint; use containerd or CRI-O"
        raise MigrationError("RuntimeUnknown", message)
    major, minor, patch = match.groups(default="0")
    return Runtime(name, (int(major), int(minor), int(patch)))


def checkpoint_unsupported(runtime: Runtime) -> MigrationError | None:
    """Return why the runtime cannot write checkpoints; None if it can."""
    return _too_old(runtime, WRITES, "write checkpoints")


def restore_unsupported(runtime: Runtime, switched_on: bool) -> MigrationError | None:
    """Return why the runtime cannot start a pod from a checkpoint; None if it can.

    `switched_on`: whether containerd's option is set on this node, which only the administrator knows.
    """
    refused = _too_old(runtime, RESTORES, "start a pod from a checkpoint")
    if refused is not None:
        return refused
    removed = REMOVED.get(runtime.name)
    if removed is not None and runtime.version >= removed:
        message = (
            f"{runtime} cannot start a pod from a checkpoint any more; use containerd 2.1 to 2.3, or app-checkpoint"
        )
        return MigrationError("RestoreUnsupported", message)
    major, minor, patch = runtime.version
    off = SWITCHED_OFF.get((runtime.name, major, minor))
    if off is not None and patch >= off and not switched_on:
        message = (
            f"{runtime} does not start pods from checkpoints by default; set {SWITCH} = true in its configuration "
            "and PODIUM_RESTORE_ENABLED=true"
        )
        return MigrationError("RestoreDisabled", message)
    return None


def _too_old(runtime: Runtime, minimum_versions: dict[str, Version], task: str) -> MigrationError | None:
    minimum = minimum_versions.get(runtime.name)
    if minimum is None:
        return MigrationError(
            "RuntimeUnknown", f"Podium does not know whether {runtime} can {task}; use containerd or CRI-O"
        )
    if runtime.version < minimum:
        wanted = ".".join(map(str, minimum))
        return MigrationError("RuntimeTooOld", f"{runtime} cannot {task}; install {wanted} or newer")
    return None

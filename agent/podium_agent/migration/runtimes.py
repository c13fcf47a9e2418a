"""Which container runtimes write a checkpoint, and which bring one back as a pod. Pure tables and one parser.

Used by `judgement`. Sources: containerd's RELEASES.md and commits 928c03c68 and 91be73ba6, CRI-O's configuration
reference, gathered in shared/research/checkpoint.md (2.3). Restoring from an image is on its way out of containerd: off
unless `enable_experimental_restore_via_create` is set from 2.2.7 and 2.3.4 on, gone in 2.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from podium_agent.migration.refusal import MoveError

Version = tuple[int, int, int]

WRITES: dict[str, Version] = {"containerd": (2, 0, 0), "cri-o": (1, 25, 0)}
RESTORES: dict[str, Version] = {"containerd": (2, 1, 0), "cri-o": (1, 25, 0)}
# from this patch of a minor version on, only where the administrator switched it on
SWITCHED_OFF: dict[tuple[str, int, int], int] = {("containerd", 2, 2): 7, ("containerd", 2, 3): 4}
GONE: dict[str, Version] = {"containerd": (2, 4, 0)}
SWITCH = "enable_experimental_restore_via_create"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A node's runtime as `status.nodeInfo.containerRuntimeVersion` says it: "containerd://2.1.9"."""

    name: str
    version: Version

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


def parse(said: str) -> Runtime:
    """Raises MoveError for a runtime that says no version. A pre-release counts as its release."""
    name, _, rest = said.partition("://")
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", rest)
    if found is None:
        message = (
            f"the node's runtime calls itself {said!r}: it is not known to write checkpoints; use containerd or CRI-O"
        )
        raise MoveError("RuntimeUnknown", message)
    major, minor, patch = found.groups(default="0")
    return Runtime(name, (int(major), int(minor), int(patch)))


def why_not_written(runtime: Runtime) -> MoveError | None:
    return _too_old(runtime, WRITES, "write checkpoints")


def why_not_restored(runtime: Runtime, switched_on: bool) -> MoveError | None:
    """`switched_on`: the administrator says that containerd's switch is set on this node; it cannot be seen."""
    refused = _too_old(runtime, RESTORES, "start a pod from a checkpoint")
    if refused is not None:
        return refused
    gone = GONE.get(runtime.name)
    if gone is not None and runtime.version >= gone:
        message = (
            f"{runtime} cannot start a pod from a checkpoint any more: use containerd 2.1 to 2.3, or app-checkpoint"
        )
        return MoveError("RestoreUnsupported", message)
    major, minor, patch = runtime.version
    off = SWITCHED_OFF.get((runtime.name, major, minor))
    if off is not None and patch >= off and not switched_on:
        message = f"{runtime} starts no pod from a checkpoint unless told: set {SWITCH} = true, and tell Podium so"
        return MoveError("RestoreDisabled", message)
    return None


def _too_old(runtime: Runtime, floors: dict[str, Version], what: str) -> MoveError | None:
    floor = floors.get(runtime.name)
    if floor is None:
        return MoveError("RuntimeUnknown", f"{runtime} is not known to {what}: use containerd or CRI-O")
    if runtime.version < floor:
        wanted = ".".join(map(str, floor))
        return MoveError("RuntimeTooOld", f"{runtime} cannot {what}: install {wanted} or newer")
    return None

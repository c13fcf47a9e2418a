"""Known folders of the NVIDIA driver's libraries on a node, and the choice among those that have them. Pure.

The order decides only if several folders have the library and none of them matches the loaded kernel module.
Sources: NVIDIA container toolkit (`internal/lookup/library.go`), the install scripts of GKE, AKS and Bottlerocket, and
the pages docs/how-to/install-on-*.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
OPERATOR = "the driver container of NVIDIA's GPU Operator"
DISTRIBUTION = "a package of the distribution, or NVIDIA's installer"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of the node, and what puts the driver's libraries there."""

    folder: str
    owner: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place that has the library.

    `path` opens it. `version` is the driver's; it is empty if the name of the file does not contain it.
    """

    place: Place
    path: str
    version: str = ""


# {machine} is x86_64 or aarch64
_TABLE = (
    Place("/run/nvidia/driver/usr/lib/{machine}-linux-gnu", OPERATOR),
    Place("/run/nvidia/driver/usr/lib64", OPERATOR),
    Place("/home/kubernetes/bin/nvidia/lib64", "the driver installer of GKE"),
    Place("/var/lib/nvidia/lib64", "the driver installer of Container-Optimized OS"),
    Place("/{machine}-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla", "Bottlerocket"),
    Place("/{machine}-bottlerocket-linux-gnu/sys-root/usr/lib", "Bottlerocket"),
    Place("/usr/local/glibc/usr/lib", "the NVIDIA extension of Talos"),
    Place("/run/opengl-driver/lib", "NixOS"),
    Place("/usr/lib/{machine}-linux-gnu", DISTRIBUTION),
    Place("/usr/lib/{machine}-linux-gnu/nvidia/current", "the package nvidia-driver of Debian"),
    Place("/usr/lib64", DISTRIBUTION),
    Place("/usr/lib", DISTRIBUTION),
    Place("/usr/local/nvidia/lib64", "an installer that mounts the driver there"),
    Place("/usr/lib/wsl/lib", "Windows Subsystem for Linux"),
)
MACHINES = ("x86_64", "aarch64")


def places(machine: str) -> tuple[Place, ...]:
    """Return the folders to search on a node of this machine type, in order."""
    return tuple(Place(place.folder.format(machine=machine), place.owner) for place in _TABLE)


def choose(candidates: Sequence[Candidate], kernel_module: str) -> tuple[Candidate, ...]:
    """Return the candidates in the order in which to load them.

    Those of the kernel module's version come first, because the driver refuses libraries of other versions.
    """
    return tuple(sorted(candidates, key=lambda one: not (kernel_module and one.version == kernel_module)))


def library_version(file: str) -> str:
    """Return the driver's version in the name of a library's file, or an empty string."""
    match = re.search(r"\.so\.(\d+\.\d[\d.]*)$", file)
    return match[1] if match else ""


def kernel_module_version(text: str) -> str:
    """Return the version in the text of /proc/driver/nvidia/version, or an empty string."""
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+\.\d[\d.]*)", text)
    return match[1] if match else ""


def describe_found(candidate: Candidate) -> str:
    """Return the folder of the node and what put the libraries there."""
    return f"{candidate.place.folder} ({candidate.place.owner})"


def describe_search(searched: Sequence[Place]) -> str:
    """Return the searched folders, grouped by what would put the libraries there."""
    owners: dict[str, list[str]] = {}
    for place in searched:
        owners.setdefault(place.owner, []).append(place.folder)
    groups = "; ".join(f"{', '.join(folders)} ({owner})" for owner, folders in owners.items())
    return f"none; searched: {groups}"


def missing_message(kernel_module: str) -> str:
    """Return why no library can be loaded, and the cure."""
    known = f"the agent found {LIBRARY} neither in its container nor in a folder of the node that it knows"
    if kernel_module:
        return (
            f"{known}, though the kernel has the driver ({kernel_module}): set agent.driver.libraryPath to the folder "
            "of the node with the driver's libraries"
        )
    return f"{known}, and the kernel has no NVIDIA driver: install the driver on this node, or agent.nodeSelector"


def mismatch_message(found: str, version: str, kernel_module: str) -> str:
    """Return why the loaded library cannot be used, and the cure; empty if it can be."""
    if not version or not kernel_module or version == kernel_module:
        return ""
    return (
        f"the library of {found} is {version}, and the kernel module is {kernel_module}: restart the agent after an "
        "upgrade of the driver, or set agent.driver.libraryPath to the folder of that version"
    )

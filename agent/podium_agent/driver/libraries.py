"""Load the NVIDIA driver's libraries into the agent, from its container or from its node.

The agent's container has the libraries if its container runtime adds them (a runtime class) or if
`agent.driver.libraryPath` is set. Otherwise the agent loads them from the node: `/proc/1/root` is the node's file
system as it is now, because the agent shares the node's process IDs. So a driver that GPU Operator installs later is
found without a restart, and no folder of the node is mounted. `pynvml` and `cuda-bindings` load their library by name,
and the loader then gives them the one that the process has already.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from podium_agent.driver.node_files import add_device_nodes, resolve
from podium_agent.driver.places import (
    LIBRARY,
    Candidate,
    Place,
    choose,
    describe_found,
    describe_search,
    kernel_module_version,
    library_version,
    mismatch_message,
    missing_message,
    places,
)

log = logging.getLogger(__name__)
CUDA = "libcuda.so.1"
CONTAINER = "the agent's container"
CHART = "agent.driver.libraryPath"


class LibrariesMissingError(Exception):
    """The libraries cannot be loaded; the message names the cure."""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """Where the agent looks for the driver.

    `node` is the root folder of the node. `explicit` is the folder of `agent.driver.libraryPath`, None to search.
    `devices` is the /dev of the agent's container.
    """

    proc: Path = Path("/proc")
    node: Path = Path("/proc/1/root")
    explicit: Path | None = None
    devices: Path = Path("/dev")


class DriverLibraries:
    """The driver's libraries of this process; `found` says where they are, or what was searched.

    A process loads them once. Threads may share an instance.
    """

    def __init__(self, files: DriverFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._loaded: Candidate | None = None
        self.found = ""

    def prepare(self) -> None:
        """Load the libraries and add missing device nodes; raise LibrariesMissingError with the cure."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
                self._tell(describe_found(self._loaded))
            add_device_nodes(self._files.node, self._files.devices)

    def mismatch(self) -> str:
        """Return why the loaded library cannot work with the kernel module, or an empty string."""
        if self._loaded is None:
            return ""
        return mismatch_message(self.found, self._loaded.version, self._kernel_module())

    def _load(self) -> Candidate:
        if self._files.explicit is not None:
            return self._load_explicit(self._files.explicit)
        with suppress(OSError):
            ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
            path = _loaded_path(self._files.proc)
            return Candidate(Place(str(Path(path).parent), CONTAINER), path, library_version(path))
        return self._load_from_node()

    def _load_explicit(self, folder: Path) -> Candidate:
        path = folder / LIBRARY
        try:
            _load_folder(path)
        except OSError as error:
            self._tell(f"none; searched: {folder} ({CHART})")
            raise LibrariesMissingError(
                f"{error}; {CHART} is {folder}: set it to the folder of the node with {LIBRARY}, or to nothing, so "
                "that the agent searches"
            ) from error
        return Candidate(Place(str(folder), CHART), str(path), library_version(os.path.realpath(path)))

    def _load_from_node(self) -> Candidate:
        searched, module = places(platform.machine()), self._kernel_module()
        try:
            os.stat(self._files.node)
        except OSError as error:
            self._tell(f"none; {self._files.node} cannot be read")
            raise LibrariesMissingError(
                f"{error}: the agent cannot see the files of its node; its pod needs hostPID and privileged"
            ) from error
        candidates, refusals = [], []
        for place in searched:
            path = resolve(self._files.node, f"{place.folder}/{LIBRARY}")
            if path is not None:
                candidates.append(Candidate(place, str(path), library_version(path.name)))
        for candidate in choose(candidates, module):
            try:
                _load_folder(Path(candidate.path), resolve(self._files.node, f"{candidate.place.folder}/{CUDA}"))
                return candidate
            except OSError as error:
                refusals.append(f"{candidate.place.folder}: {error}")
        self._tell(describe_search(searched))
        message = missing_message(module)
        raise LibrariesMissingError(f"{message} ({'; '.join(refusals)})" if refusals else message)

    def _kernel_module(self) -> str:
        try:
            return kernel_module_version((self._files.proc / "driver/nvidia/version").read_text(errors="replace"))
        except OSError:
            return ""

    def _tell(self, found: str) -> None:
        if found != self.found:
            log.log(
                logging.WARNING if found.startswith("none") else logging.INFO, "NVIDIA driver's libraries: %s", found
            )
        self.found = found


def _load_folder(path: Path, cuda: Path | None = None) -> None:
    """Load NVML, and libcuda if the folder has it: a node may have no CUDA, but then no NVML is of use either."""
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    with suppress(OSError):  # `cuda-checkpoint` reports the reason
        ctypes.CDLL(str(cuda or path.with_name(CUDA)), mode=ctypes.RTLD_GLOBAL)


def _loaded_path(proc: Path) -> str:
    """Return the file of the library that the loader chose, or the library's name."""
    with suppress(OSError):
        for line in (proc / "self/maps").read_text(errors="replace").splitlines():
            if match := re.search(r"(/\S*libnvidia-ml\.so\S*)", line):
                return match[1]
    return LIBRARY

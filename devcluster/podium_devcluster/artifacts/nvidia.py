"""NVIDIA's device plugin, GPU feature discovery and container toolkit, and a DRA driver, built from Go modules.

The DRA driver is Podium's own test equipment. It publishes GPUs as NVIDIA's driver does, of which there is no module.

Each module in `devcluster/gomodules` requires one version, and its go.sum has the hashes of all that is compiled. The
programs are in a folder of the cache's `bin`, which nodes mount. The folder is named by the modules' files, so a folder
with the right name is complete and current.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podium_devcluster import locks
from podium_devcluster.artifacts import binaries, gobuild
from podium_devcluster.artifacts.debian import install_packages
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress


@dataclass(frozen=True, slots=True)
class NvidiaProgram:
    """A program of NVIDIA: its package, and the typical seconds of a build after those before it.

    `own`: the package lies beside its go.mod.
    """

    name: str
    module: str
    seconds: float
    own: bool = False

    @property
    def package(self) -> str:
        """The Go package."""
        return "." if self.own else f"github.com/NVIDIA/{self.module}/cmd/{self.name}"

    @property
    def flags(self) -> str:
        """The linker flags."""
        version = f" -X github.com/NVIDIA/{self.module}/internal/info.version=v{self.version}"
        return "-s -w" + ("" if self.own else version)

    @property
    def pinned(self) -> gobuild.PinnedModule:
        """The module that requires it."""
        return gobuild.PinnedModule.named(self.module)

    @property
    def version(self) -> str:
        """The version that go.mod requires."""
        return self.pinned.version_of(
            "k8s.io/dynamic-resource-allocation" if self.own else f"github.com/NVIDIA/{self.module}"
        )


PROGRAMS = (
    NvidiaProgram("nvidia-ctk", "nvidia-container-toolkit", 48.0),
    NvidiaProgram("nvidia-cdi-hook", "nvidia-container-toolkit", 3.0),
    NvidiaProgram("nvidia-container-runtime", "nvidia-container-toolkit", 5.0),
    NvidiaProgram("nvidia-device-plugin", "k8s-device-plugin", 94.0),
)
"""The toolkit and the device plugin. Seconds measured on two cores in this order, with downloads of modules."""
FEATURE_DISCOVERY = (NvidiaProgram("gpu-feature-discovery", "k8s-device-plugin", 250.0),)
DRA_DRIVER = (NvidiaProgram("podium-dra-driver", "dra-driver", 130.0, own=True),)


def folder_name(programs: Sequence[NvidiaProgram] = PROGRAMS) -> str:
    """Return the name of the programs' folder in the cache's `bin`."""
    names = [(program.name, program.package) for program in programs]
    files = [file for program in programs for file in program.pinned.files]
    key = hashlib.sha256(repr((names, files)).encode())
    return f"nvidia-{key.hexdigest()[:12]}"


def ensure(cache: Cache, progress: Progress, programs: Sequence[NvidiaProgram] = PROGRAMS) -> Path:
    """Return the folder with the programs; build those that are missing."""
    target = cache.bin / folder_name(programs)
    if target.is_dir():
        return target
    install_packages(["gcc", "libc6-dev"], progress, only_if=shutil.which("gcc") is None)  # the programs use cgo
    with locks.held(cache.root / "nvidia.lock", timeout=3600, waiting=progress.say):
        if not target.is_dir():
            started = target.with_name(f".{target.name}")  # keeps what an interrupted run has built
            started.mkdir(parents=True, exist_ok=True)
            missing = [program for program in programs if not (started / program.name).exists()]
            build_all([_piece(program, started, cache, progress) for program in missing], cache, progress)
            started.rename(target)
            if not binaries.missing(cache, binaries.STANDARD):
                gobuild.remove_inputs(cache)
    return target


def _piece(program: NvidiaProgram, folder: Path, cache: Cache, progress: Progress) -> Piece:
    make = partial(_build, program, folder, cache, progress)
    return Piece(f"{program.name} {program.version}", program.seconds, make)


def _build(program: NvidiaProgram, folder: Path, cache: Cache, progress: Progress) -> None:
    temporary = folder / f".{os.getpid()}-{program.name}"
    try:
        program.pinned.build(program.package, program.flags, temporary, cache, progress, cgo=True)
        temporary.replace(folder / program.name)
    finally:
        temporary.unlink(missing_ok=True)

"""Kueue's controller, built from its Go module, with the manifests that the module contains.

`devcluster/gomodules/kueue` requires one version. Program and manifests are in a folder of the cache that is named by
the hash of that module, so a folder with the right name is complete and current. The image has the program only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podium_devcluster import locks
from podium_devcluster.artifacts import binaries, gobuild
from podium_devcluster.artifacts.oci import Entry, write_archive
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

MODULE = "sigs.k8s.io/kueue"
PACKAGE = f"{MODULE}/cmd/kueue"
BUILD_SECONDS = 540.0  # of CPU time, measured; downloads of modules take ten seconds more
_PROGRAM, _CONFIG = "manager", "config"


@dataclass(frozen=True, slots=True)
class Kueue:
    """Kueue in one version.

    `config`: the folder of its manifests, which kustomize reads; `archive`: its image.
    """

    version: str
    config: Path
    archive: Path

    @property
    def image(self) -> str:
        """Return the name of the image."""
        return image_name(self.version)


def image_name(version: str) -> str:
    """Return the name of the image of a version."""
    return f"localhost/kueue:v{version}"


def folder_name(module: gobuild.PinnedModule) -> str:
    """Return the name of the folder of program and manifests in the cache."""
    return f"kueue-{hashlib.sha256(repr((PACKAGE, module.files)).encode()).hexdigest()[:12]}"


def ensure(cache: Cache, progress: Progress) -> Kueue:
    """Return Kueue's image and manifests; build what is missing."""
    module = gobuild.PinnedModule.named("kueue")
    version = module.version_of(MODULE)
    folder, archive = cache.bin / folder_name(module), cache.images / f"{folder_name(module)}.tar"
    with locks.held(cache.root / "kueue.lock", timeout=3600, waiting=progress.say):
        if not folder.is_dir():
            make = partial(_build, module, folder, cache, progress)
            build_all([Piece(f"kueue {version}", BUILD_SECONDS, make)], cache, progress)
            if not binaries.missing(cache, binaries.STANDARD):
                gobuild.remove_inputs(cache)
        if not archive.exists():
            entries = [Entry(_PROGRAM, source=folder / _PROGRAM), Entry("tmp", mode=0o1777)]
            write_archive(archive, image_name(version), entries, [f"/{_PROGRAM}"])
    return Kueue(version, folder / _CONFIG, archive)


def _build(module: gobuild.PinnedModule, folder: Path, cache: Cache, progress: Progress) -> None:
    started = folder.with_name(f".{folder.name}-{os.getpid()}")
    try:
        started.mkdir(parents=True)
        module.build(PACKAGE, "-s -w", started / _PROGRAM, cache, progress)
        shutil.copytree(module.source(MODULE, cache, progress) / _CONFIG, started / _CONFIG)
        started.rename(folder)
    finally:
        shutil.rmtree(started, ignore_errors=True)

"""Programs of one Go module, with folders of its source, in the cache; and an image of each program.

A module in `devcluster/gomodules` requires one version. What was built is in a folder of the cache that is named by the
hash of that module, so a folder with the right name is complete and current. An image has its program only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podium_devcluster import locks
from podium_devcluster.artifacts import binaries, gobuild
from podium_devcluster.artifacts.oci import Entry, write_archive
from podium_devcluster.artifacts.preparation import Piece, build_all
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress


@dataclass(frozen=True, slots=True)
class GoModule:
    """What is built and kept of one Go module.

    `name`: its folder in `devcluster/gomodules`; `module`: its path; `programs`: the package of each program, by the
    name of its file; `sources`: folders of the module that are kept; `seconds`: CPU time of a cold build.
    """

    name: str
    module: str
    programs: Mapping[str, str]
    seconds: float
    sources: tuple[str, ...] = ()

    @property
    def pinned(self) -> gobuild.PinnedModule:
        """Return the module that pins version and hashes."""
        return gobuild.PinnedModule.named(self.name)

    @property
    def version(self) -> str:
        """Return the version, without the letter v."""
        return self.pinned.version_of(self.module)

    @property
    def folder_name(self) -> str:
        """Return the name of the folder in the cache."""
        inputs = repr((*self.programs.values(), self.pinned.files))
        return f"{self.name}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"

    def ensure(self, cache: Cache, progress: Progress) -> Path:
        """Return the folder with the programs and the sources; build it if it is missing."""
        folder = cache.bin / self.folder_name
        with locks.held(cache.root / f"{self.name}.lock", timeout=3600, waiting=progress.say):
            if not folder.is_dir():
                make = partial(self._build, folder, cache, progress)
                build_all([Piece(f"{self.name} {self.version}", self.seconds, make)], cache, progress)
                if not binaries.missing(cache, binaries.STANDARD):
                    gobuild.remove_inputs(cache)
        return folder

    def _build(self, folder: Path, cache: Cache, progress: Progress) -> None:
        started = folder.with_name(f".{folder.name}-{os.getpid()}")
        try:
            started.mkdir(parents=True)
            for program, package in self.programs.items():
                self.pinned.build(package, "-s -w", started / program, cache, progress)
            if self.sources:
                downloaded = self.pinned.source(self.module, cache, progress)
                for source in self.sources:
                    shutil.copytree(downloaded / source, started / source)
            started.rename(folder)
        finally:
            shutil.rmtree(started, ignore_errors=True)


def program_image(folder: Path, program: str, image: str, cache: Cache, tools: Sequence[Entry] = ()) -> Path:
    """Return the archive of an image with one program of a module's folder; write it if it is missing.

    `tools`: what the program calls.
    """
    entries = [Entry(program, source=folder / program), *(tools or [Entry("tmp", mode=0o1777)])]
    content = [(one.path, one.target, one.mode, one.source and one.source.read_bytes()) for one in tools]
    version = f"-{hashlib.sha256(repr(content).encode()).hexdigest()[:12]}" if tools else ""
    archive = cache.images / f"{folder.name}-{program}{version}.tar"
    if not archive.exists():
        write_archive(archive, image, entries, [f"/{program}"])
    return archive

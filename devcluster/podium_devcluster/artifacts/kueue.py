"""Kueue's controller, built from its Go module, with the manifests that the module contains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from podium_devcluster.artifacts.gomodule import GoModule, program_image
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

_PROGRAM, _CONFIG = "manager", "config"
MODULE = GoModule(
    "kueue",
    "sigs.k8s.io/kueue",
    {_PROGRAM: "sigs.k8s.io/kueue/cmd/kueue"},
    seconds=540.0,  # measured; downloads of modules take ten seconds more
    sources=(_CONFIG,),
)


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


def ensure(cache: Cache, progress: Progress) -> Kueue:
    """Return Kueue's image and manifests; build what is missing."""
    folder, version = MODULE.ensure(cache, progress), MODULE.version
    return Kueue(version, folder / _CONFIG, program_image(folder, _PROGRAM, image_name(version), cache))

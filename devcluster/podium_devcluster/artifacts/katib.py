"""Katib, built from its Go module, with the manifests and the median stopping service that the module contains.

Katib's suggestion service in Go (goptuna) is built for all algorithms. The median stopping service is Python without
a package of its own: an image gets its source from the module, and its dependencies by hash.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from podium_devcluster import locks, paths
from podium_devcluster.artifacts import builders, images, tiny_images
from podium_devcluster.artifacts.gomodule import GoModule, program_image
from podium_devcluster.artifacts.oci import Entry
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

_KATIB = "github.com/kubeflow/katib"
CONTROLLER, DB_MANAGER = "katib-controller", "katib-db-manager"
COLLECTOR, SUGGESTION, MEDIANSTOP = "file-metrics-collector", "suggestion-goptuna", "earlystopping-medianstop"
_MANIFESTS = "manifests/v1beta1"
_SERVICE = ("cmd/earlystopping/medianstop", "pkg/earlystopping", "pkg/apis/manager/v1beta1/python")
MODULE = GoModule(
    "katib",
    _KATIB,
    {
        CONTROLLER: f"{_KATIB}/cmd/katib-controller/v1beta1",
        DB_MANAGER: f"{_KATIB}/cmd/db-manager/v1beta1",
        COLLECTOR: f"{_KATIB}/cmd/metricscollector/v1beta1/file-metricscollector",
        SUGGESTION: f"{_KATIB}/cmd/suggestion/goptuna/v1beta1",
    },
    seconds=420.0,
    sources=(_MANIFESTS, *_SERVICE),
)


@dataclass(frozen=True, slots=True)
class Katib:
    """Katib in one version.

    `manifests`: the folder that kustomize reads; `images`: names of the images by part; `archives`: the images.
    """

    version: str
    manifests: Path
    images: Mapping[str, str]
    archives: tuple[Path, ...]


def image_name(part: str, version: str) -> str:
    """Return the name of a part's image."""
    return f"localhost/{part}:v{version}"


def ensure(cache: Cache, progress: Progress) -> Katib:
    """Return Katib's images and manifests; build what is missing."""
    folder, version = MODULE.ensure(cache, progress), MODULE.version
    names = {part: image_name(part, version) for part in (*MODULE.programs, MEDIANSTOP)}
    # the collector calls pgrep to end a trial, and its own image has a shell with it
    tools = [*tiny_images.shell(progress), Entry("bin/pgrep", source=_own() / "pgrep.sh")]
    archives = [
        program_image(folder, program, names[program], cache, tools if program == COLLECTOR else ())
        for program in MODULE.programs
    ]
    archives.append(_medianstop(folder, names[MEDIANSTOP], cache, progress))
    return Katib(version, folder / _MANIFESTS, names, tuple(archives))


def _own() -> Path:
    """Return the folder with what Katib's images need beyond its module."""
    return paths.project_dir() / "devcluster" / "katib"


def _medianstop(folder: Path, image: str, cache: Cache, progress: Progress) -> Path:
    """Return the image of the median stopping service; build it if it is missing."""
    own = _own()
    files = images.files_of(own, ("Dockerfile", "requirements.lock"))
    builder = builders.choose(cache, progress)
    key = images.digest(own, files, folder.name, builder.base_key())[:12]
    out = cache.images / f"{MEDIANSTOP}-{key}"
    with locks.held(out.with_suffix(".lock"), timeout=3600, waiting=progress.say):
        for made in (out, out.with_suffix(".tar")):  # a folder of buildah, or an archive of Docker
            if made.exists():
                return made
        with TemporaryDirectory(prefix="podium-context-") as name:
            context = Path(name)
            images.stage(own, files, context)
            for source in _SERVICE:
                shutil.copytree(folder / source, context / source)
            return builder.build(builders.Order(image, context / "Dockerfile", context, "", False), out)

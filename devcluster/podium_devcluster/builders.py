"""Build an image from a Dockerfile: by Docker where an engine answers, by buildah where not.

buildah runs without a daemon and without new namespaces (`--isolation chroot`), from local base images that mmdebstrap
makes: no registry is needed. Both leave an image in the cache: buildah an OCI layout folder (only changed layers are
written), Docker an archive.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from podium_devcluster import bases, layout, locks, pipconfig
from podium_devcluster.debian import install_packages
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run, succeeds
from podium_devcluster.streaming import run_logged

BUILD_SECONDS = 1800.0
CACHED_LAYERS = 300
# as in the Dockerfile
DOCKER_BASES = {
    "PODIUM_BASE_IMAGE": "docker.io/library/python:3.13-slim-trixie",
    "PODIUM_BUILD_BASE_IMAGE": "docker.io/library/gcc:14-trixie",
}


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be built."""

    image: str
    dockerfile: Path
    context: Path
    target: str
    needs_compiler: bool


class Builder(Protocol):
    def base_key(self) -> str:
        """Changes when the base images do: part of what an image is made from."""

    def build(self, order: Order, out: Path) -> Path:
        """Build; returns the folder or archive that holds the image."""


def choose(cache: Cache, progress: Progress) -> Builder:
    """Docker, where it also has or can pull the base images; PODIUM_BUILDER=buildah says no."""
    if os.environ.get("PODIUM_BUILDER", "") == "buildah" or not succeeds(["docker", "info"], timeout=10):
        return Buildah(cache, progress)
    for variable, default in DOCKER_BASES.items():
        image = os.environ.get(variable, "") or default
        if not succeeds(["docker", "image", "inspect", image], timeout=10):
            with progress.step(f"docker pull {image}") as step:
                if not succeeds(["docker", "pull", "--quiet", image], timeout=300):
                    step.note("no registry in reach; buildah builds from Debian packages")
                    return Buildah(cache, progress)
    return Docker(cache, progress)


@dataclass(frozen=True, slots=True)
class Docker:
    cache: Cache
    progress: Progress

    def base_key(self) -> str:
        return f"docker:{self._base('PODIUM_BASE_IMAGE')}:{self._base('PODIUM_BUILD_BASE_IMAGE')}"

    def _base(self, variable: str) -> str:
        return os.environ.get(variable, "") or DOCKER_BASES[variable]

    def build(self, order: Order, out: Path) -> Path:
        argv = ["docker", "build", "--tag", order.image, "--file", str(order.dockerfile)]
        argv += ["--target", order.target] if order.target else []
        argv += ["--build-arg", f"BASE={self._base('PODIUM_BASE_IMAGE')}"]
        if order.needs_compiler:
            argv += ["--build-arg", f"BUILD_BASE={self._base('PODIUM_BUILD_BASE_IMAGE')}"]
        environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
        log = self.cache.root / "log" / f"image-{out.name}.log"
        archive = out.with_suffix(".tar")
        with self.progress.step(f"image {order.image} (docker)") as step:
            run_logged([*argv, str(order.context)], log=log, step=step, timeout=BUILD_SECONDS, env=environment)
            step.detail("docker save")
            run(["docker", "save", "--output", f"{archive}.tmp", order.image], timeout=600)
        Path(f"{archive}.tmp").replace(archive)
        return archive


@dataclass(frozen=True, slots=True)
class Buildah:
    cache: Cache
    progress: Progress

    def base_key(self) -> str:
        return f"buildah:{bases.RUNTIME.tag}:{bases.COMPILER.tag}"

    def build(self, order: Order, out: Path) -> Path:
        install_packages(["buildah"], self.progress, only_if=shutil.which("buildah") is None)
        with locks.held(self.cache.root / "buildah.lock", timeout=3600, waiting=self.progress.say):
            storage = bases.storage(self.cache)
            base = bases.ensure(bases.RUNTIME, storage, self.cache, self.progress)
            arguments = ["--build-arg", f"BASE={base}"]
            if order.needs_compiler:
                compiler = bases.ensure(bases.COMPILER, storage, self.cache, self.progress)
                arguments += ["--build-arg", f"BUILD_BASE={compiler}"]
            arguments += ["--target", order.target] if order.target else []
            with self.progress.step(f"image {order.image} (buildah)") as step, tempfile.TemporaryDirectory() as folder:
                for source, target in pipconfig.mounts(Path(folder)).volumes:
                    arguments += ["--volume", f"{source}:{target}:ro"]
                argv = ["buildah", *storage, "build", "--isolation", "chroot", "--layers", "--pull-never", *arguments]
                argv += ["--tag", order.image, "--file", str(order.dockerfile), str(order.context)]
                log = self.cache.root / "log" / f"image-{out.name}.log"
                run_logged(argv, log=log, step=step, timeout=BUILD_SECONDS)
                step.detail("writing it out")
                plain = out.with_name(f".{out.name}-{os.getpid()}")
                try:
                    # the transport `oci:` compresses every layer anew (6 s of processor time); `dir:` leaves them
                    push = ["push", "--disable-compression", "--format", "oci", order.image, f"dir:{plain}"]
                    run(["buildah", *storage, *push], timeout=600)
                    layout.adopt(plain, out, order.image)
                finally:
                    shutil.rmtree(plain, ignore_errors=True)
                step.note(f"{layout.size(out) >> 20} MB")
            _forget_dangling(storage)
        return out


def _forget_dangling(storage: list[str]) -> None:
    """Every change of code leaves some layers in buildah's cache; after many it starts anew. Never worth a failure."""
    try:
        kept = run(["buildah", *storage, "images", "--all", "--quiet"], timeout=60).split()
        if len(kept) > CACHED_LAYERS:
            run(["buildah", *storage, "rmi", "--prune"], timeout=300)
    except CommandError:
        return

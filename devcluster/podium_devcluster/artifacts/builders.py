"""Build an image from a Dockerfile, with Docker where an engine answers and with buildah elsewhere.

buildah runs without a daemon and without new namespaces (`--isolation chroot`), from local base images that mmdebstrap
makes, so it needs no registry. Both leave an image in the cache: buildah an OCI layout folder, in which only changed
layers are written, and Docker an archive.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from podium_devcluster import locks, paths
from podium_devcluster.artifacts import bases, layout
from podium_devcluster.artifacts.debian import install_packages
from podium_devcluster.artifacts.preparation import Piece
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import CommandError, run, run_logged, succeeds

BUILD_SECONDS = 1800.0
CACHED_LAYERS = 300
CERTIFICATES = Path("/etc/ssl/certs")
# variables that name Docker's base images, and the Dockerfile's arguments with the defaults
DOCKER_BASES = {"PODIUM_BASE_IMAGE": "BASE", "PODIUM_BUILD_BASE_IMAGE": "BUILD_BASE"}
_NOT_FOR_THE_BUILD = frozenset({"cert", "client-cert", "target", "prefix", "user", "require-virtualenv"})


@dataclass(frozen=True, slots=True)
class Order:
    """An image to be built."""

    image: str
    dockerfile: Path
    context: Path
    target: str
    needs_compiler: bool


class Builder(Protocol):
    """A program that builds images."""

    def base_key(self) -> str:
        """Return a text that changes with the base images: a part of an image's inputs."""

    def base_pieces(self, needs_compiler: bool) -> list[Piece]:
        """Return the base images that are to be made first."""

    def build(self, order: Order, out: Path) -> Path:
        """Build an image and return the folder or archive that holds it."""


def choose(cache: Cache, progress: Progress) -> Builder:
    """Return Docker if it has or can pull the base images, else buildah.

    PODIUM_BUILDER=buildah forbids Docker.
    """
    if os.environ.get("PODIUM_BUILDER", "") == "buildah" or not succeeds(["docker", "info"], timeout=10):
        return Buildah(cache, progress)
    for variable in DOCKER_BASES:
        image = docker_base(variable)
        if not succeeds(["docker", "image", "inspect", image], timeout=10):
            with progress.step(f"docker pull {image}") as step:
                if not succeeds(["docker", "pull", "--quiet", image], timeout=300):
                    step.skip("the registry cannot be reached; buildah builds from Debian packages instead")
                    return Buildah(cache, progress)
    return Docker(cache, progress)


def docker_base(variable: str) -> str:
    """Return the base image that an environment variable names, or the Dockerfile's default."""
    default = re.compile(rf"^ARG {DOCKER_BASES[variable]}=(\S+)$", re.MULTILINE)
    return os.environ.get(variable, "") or default.findall((paths.project_dir() / "Dockerfile").read_text())[0]


@dataclass(frozen=True, slots=True)
class Docker:
    """Builds with a Docker engine."""

    cache: Cache
    progress: Progress

    def base_key(self) -> str:
        """Return the names of the base images."""
        return f"docker:{docker_base('PODIUM_BASE_IMAGE')}:{docker_base('PODIUM_BUILD_BASE_IMAGE')}"

    def base_pieces(self, needs_compiler: bool) -> list[Piece]:
        """Return nothing: the engine has pulled its base images."""
        return []

    def build(self, order: Order, out: Path) -> Path:
        """Build with BuildKit and save the image as an archive."""
        argv = ["docker", "build", "--tag", order.image, "--file", str(order.dockerfile)]
        argv += ["--target", order.target] if order.target else []
        argv += ["--build-arg", f"BASE={docker_base('PODIUM_BASE_IMAGE')}"]
        if order.needs_compiler:
            argv += ["--build-arg", f"BUILD_BASE={docker_base('PODIUM_BUILD_BASE_IMAGE')}"]
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
    """Builds with buildah, from base images of Debian packages."""

    cache: Cache
    progress: Progress

    def base_key(self) -> str:
        """Return the names of the base images, which contain the hash of their packages."""
        return f"buildah:{bases.RUNTIME.tag}:{bases.COMPILER.tag}"

    def base_pieces(self, needs_compiler: bool) -> list[Piece]:
        """Return the missing base images."""
        wanted = (bases.RUNTIME, bases.COMPILER) if needs_compiler else (bases.RUNTIME,)
        return [
            Piece(f"base image {base.name}", base.seconds, partial(self._base, base))
            for base in wanted
            if not bases.exists(base, self.cache)
        ]

    def _base(self, base: bases.Base) -> str:
        install_packages(["buildah"], self.progress, only_if=shutil.which("buildah") is None)
        with locks.held(self.cache.root / "buildah.lock", timeout=3600, waiting=self.progress.say):
            return bases.ensure(base, self.cache, self.progress)

    def build(self, order: Order, out: Path) -> Path:
        """Build in a chroot and write the image out as an OCI layout."""
        arguments = ["--build-arg", f"BASE={self._base(bases.RUNTIME)}"]
        if order.needs_compiler:
            arguments += ["--build-arg", f"BUILD_BASE={self._base(bases.COMPILER)}"]
        arguments += ["--target", order.target] if order.target else []
        buildah = ["buildah", *bases.storage(self.cache)]
        with (
            locks.held(self.cache.root / "buildah.lock", timeout=3600, waiting=self.progress.say),
            self.progress.step(f"image {order.image} (buildah)") as step,
            tempfile.TemporaryDirectory() as folder,
        ):
            for source, target in pip_mounts(Path(folder)):
                arguments += ["--volume", f"{source}:{target}:ro"]
            argv = [*buildah, "build", "--isolation", "chroot", "--layers", "--pull-never", *arguments]
            argv += ["--tag", order.image, "--file", str(order.dockerfile), str(order.context)]
            log = self.cache.root / "log" / f"image-{out.name}.log"
            run_logged(argv, log=log, step=step, timeout=BUILD_SECONDS)
            step.detail("writing the image")
            plain = out.with_name(f".{out.name}-{os.getpid()}")
            try:
                # the transport `oci:` would compress every layer again (6 s of CPU time); `dir:` does not
                push = ["push", "--disable-compression", "--format", "oci", order.image, f"dir:{plain}"]
                run([*buildah, *push], timeout=600)
                layout.adopt(plain, out, order.image)
                blobs = sorted(out.parent.glob("*/blobs/sha256/*"))
                layout.share_blobs(blobs, blobs)
            finally:
                shutil.rmtree(plain, ignore_errors=True)
            step.note(f"{layout.size(out) >> 20} MB")
            _prune_layers(buildah)
        return out


def _prune_layers(buildah: list[str]) -> None:
    """Remove unused layers when there are many: each change of code leaves some.

    A failure is not worth reporting.
    """
    try:
        layers = run([*buildah, "images", "--all", "--quiet"], timeout=60).split()
        if len(layers) > CACHED_LAYERS:
            run([*buildah, "rmi", "--prune"], timeout=300)
    except CommandError:
        return


# ---- the machine's pip settings, mounted during a build and not written into the image ------------------------------


def parse_pip_settings(listing: str) -> dict[str, str]:
    """Return the settings in `pip config list` (lines like global.timeout='60'); the environment's win.

    Pure.
    """
    options: dict[str, str] = {}
    for line in sorted(listing.splitlines(), key=lambda text: text.startswith(":env:")):
        name, equals, value = line.partition("=")
        key = name.rpartition(".")[2]
        if equals and key not in _NOT_FOR_THE_BUILD:
            try:
                options[key] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                options[key] = value
    return options


def pip_conf(options: dict[str, str]) -> str:
    """Return a pip.conf; further lines of a value are indented. Pure."""
    lines = [f"{key} = {value.strip()}".replace("\n", "\n    ") for key, value in sorted(options.items())]
    return "\n".join(["[global]", *lines]) + "\n"


def pip_mounts(folder: Path) -> list[tuple[Path, str]]:
    """Return the mounts of a build as (source, target).

    They are the machine's certificates, a pip.conf with its settings, and the local wheel folders that it names.
    """
    volumes: list[tuple[Path, str]] = []
    if CERTIFICATES.is_dir():
        volumes.append((CERTIFICATES, str(CERTIFICATES)))
    options = parse_pip_settings(run([sys.executable, "-m", "pip", "config", "list"], timeout=60, check=False))
    if options:
        file = folder / "pip.conf"
        file.write_text(pip_conf(options))
        volumes.append((file, "/etc/pip.conf"))
    for entry in options.get("find-links", "").split():
        local = Path(entry.removeprefix("file://"))
        if local.is_absolute() and local.is_dir():
            volumes.append((local, str(local)))
    return volumes

"""The image of a release: an OCI archive, for the platforms that this machine's builder can build.

Docker with buildx builds all platforms that it can emulate. buildah, without an engine, builds on bases that consist of
this machine's Debian packages, so only for this machine's platform.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium_devcluster import locks, paths
from podium_devcluster.artifacts import builders, images
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress
from podium_devcluster.shell import run_logged, succeeds
from releasing import oci_archive

PLATFORMS = ("linux/amd64", "linux/arm64")
MACHINES = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
BUILD_SECONDS = 5400.0  # an emulated processor compiles slowly
BUILDAH_REASON = "buildah builds for this machine only; Docker with buildx and QEMU builds other platforms"


@dataclass(frozen=True, slots=True)
class Image:
    """The built image. `missing`: the reason for each platform that was not built."""

    archive: Path
    contents: oci_archive.Contents
    builder: str
    missing: dict[str, str]


@dataclass(frozen=True, slots=True)
class Order:
    """What to build: the name with the tag, the annotations of the manifest, and the time of all files."""

    name: str
    platforms: tuple[str, ...]
    annotations: dict[str, str]
    epoch: int


def local_platform(machine: str = platform.machine()) -> str:
    """Return this machine's platform. Raises ValueError for a processor that no image is built for."""
    if machine not in MACHINES:
        raise ValueError(f"no image is built on {machine}; use a machine with {' or '.join(MACHINES)}")
    return MACHINES[machine]


def buildx_platforms(inspection: str) -> tuple[str, ...]:
    """Return the platforms in the output of `docker buildx inspect`: those of all nodes. Pure."""
    lines = re.findall(r"^\s*Platforms:\s*(.+)$", inspection, re.MULTILINE)
    return tuple(dict.fromkeys(word.strip().rstrip("*") for line in lines for word in line.split(",")))


def divide(wanted: Sequence[str], possible: Sequence[str], reason: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the platforms that can be built, and the reason for each of the others. Pure."""
    return tuple(one for one in wanted if one in possible), {one: reason for one in wanted if one not in possible}


def build(order: Order, out: Path, cache: Cache, progress: Progress) -> Image:
    """Build the image for the platforms that can be built here, at least one. Raises ValueError for none."""
    inspection = _buildx() if shutil.which("docker") else ""
    if inspection:
        builder, possible = "docker buildx", buildx_platforms(inspection)
        reason = f"the buildx builder has {', '.join(possible) or 'no platform'}; install QEMU's binfmt handlers"
    else:
        builder, possible, reason = "buildah", (local_platform(),), BUILDAH_REASON
    able, missing = divide(order.platforms, possible, reason)
    if not able:
        raise ValueError(f"no image can be built: {'; '.join(f'{one}: {why}' for one, why in missing.items())}")
    if builder == "buildah":
        _build_with_buildah(order, out, cache, progress)
    else:
        _build_with_buildx(order, able, out, cache, progress)
    return Image(out, oci_archive.read(out), builder, missing)


def _buildx() -> str:
    """Return what the builder says of itself, or nothing if no engine answers or it has no buildx."""
    if not succeeds(["docker", "info"], timeout=10):
        return ""
    command = ["docker", "buildx", "inspect", "--bootstrap"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout if done.returncode == 0 else ""


def _build_with_buildah(order: Order, out: Path, cache: Cache, progress: Progress) -> None:
    cache.images.mkdir(parents=True, exist_ok=True)
    workshop = images.Workshop(cache, progress, builders.Buildah(cache, progress), paths.project_dir())
    layout = workshop.ensure(images.PODIUM)
    store = cache.images / "compressed"
    with (
        locks.held(store.with_suffix(".lock"), timeout=BUILD_SECONDS, waiting=progress.say),
        progress.step("compress the layers of the image"),
    ):
        oci_archive.write(layout, out, order.name, order.annotations, store)


def buildx_command(order: Order, able: Sequence[str], context: Path, out: Path) -> list[str]:
    """Return the command that builds with buildx. Pure.

    The files get the time of the commit. The release has its own statement of provenance and bills of materials.
    """
    annotations = [f"--annotation=manifest:{key}={value}" for key, value in sorted(order.annotations.items())]
    return [
        *("docker", "buildx", "build", f"--platform={','.join(able)}", f"--target={images.PODIUM.target}"),
        *("--provenance=false", "--sbom=false", f"--build-arg=SOURCE_DATE_EPOCH={order.epoch}", *annotations),
        f"--output=type=oci,dest={out},name={order.name},rewrite-timestamp=true,compression=gzip",
        str(context),
    ]


def _build_with_buildx(order: Order, able: Sequence[str], out: Path, cache: Cache, progress: Progress) -> None:
    root = paths.project_dir()
    with tempfile.TemporaryDirectory(prefix="podium-context-") as folder:
        images.stage(root, images.files_of(root, images.PODIUM.members), Path(folder))
        command = buildx_command(order, able, Path(folder), out)
        with progress.step(f"image {order.name} for {', '.join(able)} (docker buildx)") as step:
            run_logged(command, log=cache.root / "log/release-image.log", step=step, timeout=BUILD_SECONDS)

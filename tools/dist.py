"""Build what a release publishes: `python tools/dist.py FOLDER [--rootfs ROOT]`; `make dist`.

FOLDER receives the wheel, the source archive, the chart, the bills of materials (`sbom.py`) and SHA256SUMS. Two builds
of one commit with the same versions of Python and Helm are equal byte for byte: all times are SOURCE_DATE_EPOCH
(default: the time of the commit), and files are sorted.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import sbom

from podium_devcluster.artifacts import binaries
from podium_devcluster.paths import Cache
from podium_devcluster.progress import Progress

CHECKSUMS = "SHA256SUMS"
BUILD_SECONDS = 600


def find_helm() -> Path:
    """Return the machine's helm, or the dev cluster's, which is downloaded or built if it is missing."""
    found = shutil.which("helm")
    if found is not None:
        return Path(found)
    cache = Cache.default()
    binaries.ensure(cache, (binaries.HELM,), Progress())
    return binaries.HELM.path(cache)


def build_python(root: Path, folder: Path, epoch: int) -> None:
    """Build the wheel and the source archive."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder.resolve())]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(command, cwd=root, env=environment, check=True, timeout=BUILD_SECONDS, stdout=subprocess.DEVNULL)


def package_chart(helm: Path, chart: Path, version: str, folder: Path, epoch: int) -> Path:
    """Package a chart with Podium's version as its own and as the image's tag; return the archive."""
    command = [str(helm), "package", str(chart), f"--version={version}", f"--app-version={version}"]
    subprocess.run([*command, f"--destination={folder}"], check=True, timeout=BUILD_SECONDS, stdout=subprocess.DEVNULL)
    archive = folder / f"podium-{version}.tgz"
    archive.write_bytes(normalised(archive.read_bytes(), epoch))
    return archive


def normalised(archive: bytes, epoch: int) -> bytes:
    """Return a tar.gz with the same files, sorted, of one owner and time: helm writes the current time."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as source,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda one: one.name):
            if not member.isfile():
                raise ValueError(f"{member.name} is not a plain file; a chart holds nothing else")
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mtime, entry.mode = member.size, epoch, 0o644
            target.addfile(entry, source.extractfile(member))
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=0)


def write_checksums(folder: Path) -> Path:
    """Write SHA256SUMS of all files of a folder, sorted by name, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(lines))
    return folder / CHECKSUMS


def main() -> int:
    """Build into the folder that the arguments name; return the exit code."""
    parser = argparse.ArgumentParser(description="Build wheel, source archive, chart, bills of materials, checksums.")
    parser.add_argument("folder", type=Path, help="a folder that is empty or does not exist")
    parser.add_argument("--rootfs", type=Path, help="root folder of an unpacked image of Podium")
    options = parser.parse_args()
    folder: Path = options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty; SHA256SUMS would list files of another build. Empty it")
        epoch = sbom.source_date()
        build_python(sbom.ROOT, folder, epoch)
        package_chart(find_helm(), sbom.ROOT / "charts/podium", sbom.project_version(), folder, epoch)
        sbom.write(folder, epoch, options.rootfs)
        print(write_checksums(folder).read_text(), end="")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Checkpoint archives that the runtime writes for the kubelet: read and remove them. The functions block.

An archive contains all memory of the processes, including secrets. The runtime creates it with mode 0600, Podium checks
that and removes the archive once the image is in the registry. The layout is that of checkpointctl (`config.dump`,
`spec.dump`, `status.dump`, `checkpoint/` with CRIU's images, `rootfs-diff.tar`, `container.log`).
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from podium_agent.migration.errors import MigrationError
from podium_agent.migration.kubelet import ContainerRef

NEEDED = ("config.dump", "spec.dump", "status.dump")
MEMORY = "checkpoint/"
METADATA_BYTES = 4 * 2**20
CHUNK = 4 * 2**20


class ConfigDump(BaseModel):
    """Content of `config.dump`: the container's image. The runtime of the new node pulls `base_ref`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    base_name: str = Field(alias="rootfsImageName", min_length=1)
    base_ref: str = Field(alias="rootfsImageRef", min_length=1)


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive on disk; `digest` is that of the tar file and of the image layer made of it."""

    path: Path
    bytes: int
    digest: str
    base_name: str
    base_ref: str


def read_archive(path: Path) -> Archive:
    """Read an archive; raise MigrationError if it is incomplete or others may read it."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise MigrationError("InvalidArchive", f"{path} is not a regular file")
        if stat.S_IMODE(status.st_mode) & 0o077:
            mode = f"{stat.S_IMODE(status.st_mode):04o}"
            raise MigrationError(
                "ArchiveModeInsecure", f"{path} contains the memory of a trial, but its mode is {mode} instead of 0600"
            )
        config = _config(path)
        return Archive(path, status.st_size, _digest(path), config.base_name, config.base_ref)
    except (OSError, tarfile.TarError) as error:
        raise MigrationError("InvalidArchive", f"{path} cannot be read as a checkpoint: {error}") from error


def remove_archives(folder: Path, container: ContainerRef) -> None:
    """Remove every archive of this container, also if the kubelet had not answered in time."""
    pattern = re.compile(
        rf"checkpoint-{re.escape(container.pod)}_{re.escape(container.namespace)}-{re.escape(container.name)}"
        r"-\d{4}-\d\d-\d\dT[^/]*\.tar"
    )
    for path in folder.glob("checkpoint-*.tar"):
        if pattern.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _config(path: Path) -> ConfigDump:
    with tarfile.open(path, "r:") as archive:
        names, memory, config = set(), 0, b""
        for member in archive:
            name = member.name.removeprefix("./")
            names.add(name)
            memory += member.size if name.startswith(MEMORY) else 0
            if name == "config.dump" and member.size <= METADATA_BYTES:
                file = archive.extractfile(member)
                config = file.read() if file else b""
    missing = [name for name in NEEDED if name not in names]
    if missing or not memory:
        absent = ", ".join(missing) or "the memory of the processes (checkpoint/)"
        raise MigrationError(
            "InvalidArchive", f"{path} does not contain {absent}; the runtime wrote an incomplete checkpoint"
        )
    try:
        return ConfigDump.model_validate(json.loads(config))
    except (ValueError, ValidationError) as error:
        raise MigrationError("InvalidArchive", f"{path}: config.dump does not name the container's image") from error


def _digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
    return f"sha256:{total.hexdigest()}"

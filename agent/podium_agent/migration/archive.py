"""The archive that the runtime wrote for the kubelet: what it is of, and its end. Blocking; used by `move`.

It holds all memory of the processes, every secret in it too: the runtime makes it 0600, Podium checks that, and removes
it as soon as the image is in the registry. Layout: checkpointctl's (`config.dump`, `spec.dump`, `status.dump`,
`checkpoint/` with CRIU's images, `rootfs-diff.tar`, `container.log`).
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

from podium_agent.migration.kubelet import Container
from podium_agent.migration.refusal import MoveError

NEEDED = ("config.dump", "spec.dump", "status.dump")
MEMORY = "checkpoint/"
METADATA_BYTES = 4 * 2**20
CHUNK = 4 * 2**20


class ConfigDump(BaseModel):
    """`config.dump`: what the container ran from. `base_ref` is what the other node's runtime asks for."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    base_name: str = Field(alias="rootfsImageName", min_length=1)
    base_ref: str = Field(alias="rootfsImageRef", min_length=1)


@dataclass(frozen=True, slots=True)
class Archive:
    """`digest` is of the tar as it lies there, `sha256:...`; an image layer of it has the same digest."""

    path: Path
    bytes: int
    digest: str
    base_name: str
    base_ref: str


def read(path: Path) -> Archive:
    """Raises MoveError for one that others may read, or from which no container could be brought back."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise MoveError("InvalidArchive", f"{path} is no plain file")
        if stat.S_IMODE(found.st_mode) & 0o077:
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            raise MoveError(
                "ArchiveModeInsecure", f"{path} holds the memory of a trial and its mode is {mode}, not 0600"
            )
        config = _config(path)
        return Archive(path, found.st_size, _digest(path), config.base_name, config.base_ref)
    except (OSError, tarfile.TarError) as error:
        raise MoveError("InvalidArchive", f"{path} cannot be read as a checkpoint: {error}") from error


def sweep(folder: Path, container: Container) -> None:
    """Removes every archive of this container: also one whose kubelet gave no answer in time."""
    ours = re.compile(
        rf"checkpoint-{re.escape(container.pod)}_{re.escape(container.namespace)}-{re.escape(container.name)}"
        r"-\d{4}-\d\d-\d\dT[^/]*\.tar"
    )
    for path in folder.glob("checkpoint-*.tar"):
        if ours.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _config(path: Path) -> ConfigDump:
    with tarfile.open(path, "r:") as archive:
        found, memory, config = set(), 0, b""
        for member in archive:
            name = member.name.removeprefix("./")
            found.add(name)
            memory += member.size if name.startswith(MEMORY) else 0
            if name == "config.dump" and member.size <= METADATA_BYTES:
                file = archive.extractfile(member)
                config = file.read() if file else b""
    missing = [name for name in NEEDED if name not in found]
    if missing or not memory:
        lacks = ", ".join(missing) or "the processes' memory (checkpoint/)"
        raise MoveError("InvalidArchive", f"{path} lacks {lacks}: the runtime wrote no whole checkpoint")
    try:
        return ConfigDump.model_validate(json.loads(config))
    except (ValueError, ValidationError) as error:
        raise MoveError("InvalidArchive", f"{path}: config.dump does not say what image it ran from") from error


def _digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
    return f"sha256:{total.hexdigest()}"

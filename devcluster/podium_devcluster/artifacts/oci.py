"""OCI archives without an image tool: write one with a single layer, and read its name."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME_ANNOTATION = "io.containerd.image.name"
REF_ANNOTATION = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a layer: a file (from `source`), a link (to `target`) or an empty folder."""

    path: str
    source: Path | None = None
    target: str | None = None
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """The name of an image and the digest of its manifest."""

    name: str
    digest: str


def write_archive(
    out: Path, name: str, entries: Sequence[Entry], entrypoint: Sequence[str], labels: Mapping[str, str] | None = None
) -> None:
    """Write an image with one layer. Equal inputs give equal bytes: no times and no owners are stored."""
    blobs: dict[str, bytes] = {}

    def put(data: bytes, media: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": f"sha256:{digest}", "size": len(data)}

    layer = put(_layer(entries), "layer.v1.tar")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin:/usr/bin"], "Labels": dict(labels or {})},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put(json.dumps(config).encode(), "config.v1+json"),
        "layers": [layer],
    }
    descriptor = put(json.dumps(manifest).encode(), "manifest.v1+json")
    descriptor["annotations"] = {NAME_ANNOTATION: name, REF_ANNOTATION: name.rpartition(":")[2]}
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(out.name + ".tmp")
    with tarfile.open(temporary, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [descriptor]}).encode())
        for digest, data in blobs.items():
            _add(archive, f"blobs/sha256/{digest}", data)
    temporary.replace(out)


def read_archive(file: Path) -> ArchivedImage | None:
    """Return name and manifest digest, or None for an archive without OCI layout (an old `docker save`)."""
    with tarfile.open(file) as archive:
        try:
            member = archive.extractfile("index.json")
        except KeyError:
            return None
        index = json.load(member) if member else {}
    for manifest in index.get("manifests", []):
        notes = manifest.get("annotations", {})
        name = notes.get(NAME_ANNOTATION) or notes.get(REF_ANNOTATION, "")
        if "/" in name:
            return ArchivedImage(name, manifest["digest"])
    return None


def _layer(entries: Sequence[Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mode = entry.mode
            if entry.source is not None:
                data = entry.source.read_bytes()
                info.size = len(data)
                layer.addfile(info, io.BytesIO(data))
            elif entry.target is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
                layer.addfile(info)
            else:
                info.type = tarfile.DIRTYPE
                layer.addfile(info)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    info = tarfile.TarInfo(path)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))

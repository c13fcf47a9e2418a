"""OCI layout folders: an image as blobs on disk. A changed image shares its old layers, here and in the nodes."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from podium_devcluster.oci import NAME_ANNOTATION, REF_ANNOTATION, ArchivedImage


def read(folder: Path) -> ArchivedImage:
    descriptor = _descriptor(folder)
    return ArchivedImage(descriptor["annotations"][REF_ANNOTATION], descriptor["digest"])


def _descriptor(folder: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((folder / "index.json").read_text())
    descriptor: dict[str, Any] = index["manifests"][-1]
    return descriptor


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")


def blobs(folder: Path) -> list[str]:
    """Digests of all that the image consists of, its manifest first."""
    digest = _descriptor(folder)["digest"]
    manifest = json.loads(_blob(folder, digest).read_text())
    return [digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def size(folder: Path) -> int:
    return sum(_blob(folder, digest).stat().st_size for digest in blobs(folder))


def prune(folder: Path, image: str) -> None:
    """Forget former builds: the newest entry of the index stays, and its blobs."""
    index = json.loads((folder / "index.json").read_text())
    named = [m for m in index["manifests"] if m.get("annotations", {}).get(REF_ANNOTATION) == image]
    index["manifests"] = named[-1:]
    (folder / "index.json").write_text(json.dumps(index))
    kept = {_blob(folder, digest) for digest in blobs(folder)}
    for blob in (folder / "blobs" / "sha256").iterdir():
        if blob not in kept:
            blob.unlink()


def write_archive(folder: Path, out: Path, without: Collection[str] = ()) -> None:
    """An archive for `ctr images import` or `kind load`; blobs that the receiver holds may be left out."""
    descriptor = _descriptor(folder)
    name = descriptor["annotations"][REF_ANNOTATION]
    descriptor["annotations"] = {NAME_ANNOTATION: name, REF_ANNOTATION: name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [descriptor]}
    temporary = out.with_name(out.name + ".tmp")
    with tarfile.open(temporary, "w") as archive:
        for path, data in (
            ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
            ("index.json", json.dumps(index).encode()),
        ):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        first, *others = blobs(folder)
        # the manifest always goes: the import finds the rest through it
        for digest in [first, *(one for one in others if one not in without)]:
            archive.add(_blob(folder, digest), f"blobs/{digest.replace(':', '/')}")
    temporary.replace(out)

"""OCI layout folders: an image as blobs on disk. A changed image shares its old layers, here and in the nodes."""

from __future__ import annotations

import hashlib
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


def adopt(plain: Path, folder: Path, image: str) -> None:
    """Turn a folder of the `dir:` transport (manifest.json, blobs by their hash) into a layout; former blobs go."""
    store = folder / "blobs" / "sha256"
    store.mkdir(parents=True, exist_ok=True)
    manifest = (plain / "manifest.json").read_bytes()
    digest = hashlib.sha256(manifest).hexdigest()
    parts = json.loads(manifest)
    kept = {part["digest"].removeprefix("sha256:") for part in (parts["config"], *parts["layers"])}
    for name in kept:
        (plain / name).replace(store / name)
    (store / digest).write_bytes(manifest)
    for blob in store.iterdir():
        if blob.name not in kept | {digest}:
            blob.unlink()
    descriptor = {
        "mediaType": parts["mediaType"],
        "digest": f"sha256:{digest}",
        "size": len(manifest),
        "annotations": {REF_ANNOTATION: image},
    }
    temporary = folder / "index.json.tmp"
    temporary.write_text(json.dumps({"schemaVersion": 2, "manifests": [descriptor]}))
    temporary.replace(folder / "index.json")


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

"""OCI layout folders: an image as blobs on disk.

Images share the files of equal layers, in the cache and in the nodes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from podium_devcluster.artifacts.oci import NAME_ANNOTATION, REF_ANNOTATION, ArchivedImage


def read(folder: Path) -> ArchivedImage:
    """Return the name and the manifest digest of the image in a layout folder."""
    descriptor = _descriptor(folder)
    return ArchivedImage(descriptor["annotations"][REF_ANNOTATION], descriptor["digest"])


def _descriptor(folder: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((folder / "index.json").read_text())
    descriptor: dict[str, Any] = index["manifests"][-1]
    return descriptor


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")


def blobs(folder: Path) -> list[str]:
    """Return the digests of the image's manifest, configuration and layers, the manifest first."""
    digest = _descriptor(folder)["digest"]
    manifest = json.loads(_blob(folder, digest).read_text())
    return [digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def size(folder: Path) -> int:
    """Return the size of the image in bytes."""
    return sum(_blob(folder, digest).stat().st_size for digest in blobs(folder))


def adopt(plain: Path, folder: Path, image: str) -> None:
    """Move a folder of buildah's `dir:` transport into a layout and remove the layout's old blobs.

    The folder contains manifest.json and blobs that are named by their hash.
    """
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


def share_blobs(copies: Iterable[Path], originals: Iterable[Path]) -> None:
    """Replace copies of blobs by hard links to the originals with equal names.

    This is safe because a blob is never changed: its name is its hash.
    """
    by_name = {original.name: original for original in originals}
    for blob in copies:
        original = by_name.get(blob.name)
        if original is None or blob.name.startswith("."):
            continue
        try:
            if original.samefile(blob) or original.stat().st_size != blob.stat().st_size:
                continue
            temporary = blob.with_name(f".{os.getpid()}-{blob.name}")
            os.link(original, temporary)
            temporary.replace(blob)
        except OSError:
            continue  # another process has removed the original, or it is on another file system


def write_archive(folder: Path, out: Path, without: Collection[str] = ()) -> None:
    """Write an archive for `ctr images import` or `kind load`, without the blobs that the receiver has."""
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
        # always with the manifest: it leads the import to the rest
        for digest in [first, *(one for one in others if one not in without)]:
            archive.add(_blob(folder, digest), f"blobs/{digest.replace(':', '/')}")
    temporary.replace(out)

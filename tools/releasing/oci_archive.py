"""OCI archives: write one with compressed layers, and read its digest, its platforms and some of its files.

A registry keeps the digest if the archive is copied without changes (`skopeo copy --preserve-digests`).
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from podium_devcluster.artifacts.oci import NAME_ANNOTATION, REF_ANNOTATION

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MAX_DOCUMENT = 4 << 20  # bytes of an index, manifest or configuration
MAX_FILE = 64 << 20  # bytes of a file that is read from a layer
LEVEL = 6
_REMOVED, _EMPTIED = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive holds.

    `digest`: of the manifest, or of the index of several; registries and charts name the image by it. `manifests`:
    the digest of each platform's manifest, by platform (`linux/amd64`).
    """

    digest: str
    manifests: Mapping[str, str]


# ---- writing -------------------------------------------------------------------------------------------------------


def write(layout: Path, out: Path, name: str, annotations: Mapping[str, str], store: Path) -> None:
    """Write the image of a layout folder as an archive with compressed layers.

    Equal layouts give equal bytes. `name`: the image's name with its tag. `store` keeps the compressed layers for the
    next archive.
    """
    (descriptor,) = _descriptors(layout / "index.json")
    manifest = json.loads(_blob(layout, descriptor["digest"]).read_bytes())
    files: dict[str, Path] = {_path(manifest["config"]["digest"]): _blob(layout, manifest["config"]["digest"])}
    layers = []
    for layer in manifest["layers"]:
        file, packed = _compressed(layout, layer, store)
        layers.append(packed)
        files[_path(packed["digest"])] = file
    for old in {*store.glob("*.gz")} - {*files.values()}:
        old.unlink()
    manifest |= {"layers": layers, "annotations": manifest.get("annotations", {}) | dict(annotations)}
    text = json.dumps(manifest, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    described = {"mediaType": manifest["mediaType"], "digest": digest, "size": len(text)}
    described["annotations"] = {NAME_ANNOTATION: name, REF_ANNOTATION: name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [described]}
    temporary = out.with_name(f"{out.name}.tmp")
    with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, "oci-layout", io.BytesIO(b'{"imageLayoutVersion":"1.0.0"}'))
        _add(archive, "index.json", io.BytesIO(json.dumps(index, sort_keys=True).encode()))
        _add(archive, _path(digest), io.BytesIO(text))
        for path, file in sorted(files.items()):
            with file.open("rb") as source:
                _add(archive, path, source)
    temporary.replace(out)


def _compressed(layout: Path, layer: Mapping[str, Any], store: Path) -> tuple[Path, dict[str, Any]]:
    """Return the compressed layer in the store, and its descriptor."""
    source = _blob(layout, layer["digest"])
    if layer["mediaType"].endswith("+gzip"):
        return source, dict(layer)
    store.mkdir(parents=True, exist_ok=True)
    packed = store / f"{source.name}.gz"
    if not packed.exists():
        temporary = packed.with_suffix(".tmp")
        with (
            source.open("rb") as plain,
            temporary.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0) as target,
        ):
            shutil.copyfileobj(plain, target, 1 << 20)
        temporary.replace(packed)
    with packed.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = packed.stat().st_size
    return packed, {"mediaType": f"{layer['mediaType']}+gzip", "digest": f"sha256:{digest}", "size": size}


def _add(archive: tarfile.TarFile, path: str, source: IO[bytes]) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = source.seek(0, io.SEEK_END)
    source.seek(0)
    archive.addfile(entry, source)


def _descriptors(index: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(index.read_bytes())["manifests"]
    return found


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _blob(layout: Path, digest: str) -> Path:
    return layout / _path(digest)


# ---- reading -------------------------------------------------------------------------------------------------------


def read(archive: Path) -> Contents:
    """Return digest and platforms. Raises ValueError for an archive that does not hold exactly one image."""
    with tarfile.open(archive) as tar:
        found = _document(tar, "index.json").get("manifests", [])
        if len(found) != 1:
            raise ValueError(f"{archive.name} must hold one image (got {len(found)}); build it again")
        digest = found[0]["digest"]
        document = _document(tar, _path(digest))
        if "manifests" not in document:
            return Contents(digest, {_platform(_document(tar, _path(document["config"]["digest"]))): digest})
        # attestations of a build have the platform unknown/unknown
        platforms = {_platform(one["platform"]): one["digest"] for one in document["manifests"] if "platform" in one}
        return Contents(digest, {name: one for name, one in sorted(platforms.items()) if "unknown" not in name})


def files(archive: Path, manifest: str, patterns: Sequence[str]) -> dict[str, bytes]:
    """Return the regular files of an image whose paths match, as its containers see them.

    `manifest`: the digest of the platform's manifest.
    """
    seen: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for layer in _document(tar, _path(manifest))["layers"]:
            blob = tar.extractfile(_path(layer["digest"]))
            assert blob is not None
            added, removed = _layer(blob, patterns)
            below = tuple(f"{path.rstrip('/')}/" for path in removed)
            seen = {path: data for path, data in seen.items() if not f"{path}/".startswith(below)} | added
    return seen


def _layer(blob: IO[bytes], patterns: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
    """Return the files that a layer adds, and the paths that it removes from the layers below it."""
    added: dict[str, bytes] = {}
    removed: list[str] = []
    with tarfile.open(fileobj=blob, mode="r|*") as layer:
        for member in layer:
            path = PurePosixPath(member.name.removeprefix("./").lstrip("/"))
            if path.name == _EMPTIED:
                removed.append(str(path.parent))
            elif path.name.startswith(_REMOVED):
                removed.append(str(path.with_name(path.name.removeprefix(_REMOVED))))
            elif (
                member.isfile() and ".." not in path.parts and any(fnmatch.fnmatch(str(path), one) for one in patterns)
            ):
                if member.size > MAX_FILE:
                    raise ValueError(f"{path} has {member.size} bytes; at most {MAX_FILE} are read from an image")
                file = layer.extractfile(member)
                assert file is not None
                added[str(path)] = file.read()
    return added, removed


def _document(tar: tarfile.TarFile, path: str) -> dict[str, Any]:
    try:
        member = tar.getmember(path)
    except KeyError:
        raise ValueError(f"the archive of the image has no {path}; build it again") from None
    if member.size > MAX_DOCUMENT:
        raise ValueError(f"{path} of the image has {member.size} bytes; at most {MAX_DOCUMENT} are read")
    file = tar.extractfile(member)
    assert file is not None
    data = file.read()
    if path.startswith("blobs/") and hashlib.sha256(data).hexdigest() != path.rpartition("/")[2]:
        raise ValueError(f"{path} of the image has another hash than its name; build it again")
    document: dict[str, Any] = json.loads(data)
    return document


def _platform(source: Mapping[str, Any]) -> str:
    parts = (source["os"], source["architecture"], source.get("variant", ""))
    # v8 is the only variant of arm64
    return "/".join(part for part in parts if part and part != "v8")

"""The archive of a release's image (tools/releasing): digests, platforms, and the files that the containers see."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

oci_archive = importlib.import_module("releasing.oci_archive")
image = importlib.import_module("releasing.image")

TAR = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
NAME = "registry.example/podium:1.2.3"


def layer(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def put(blobs: dict[str, bytes], data: bytes, media: str) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    blobs[f"blobs/sha256/{digest}"] = data
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}


def manifest(blobs: dict[str, bytes], layers: list[bytes], architecture: str = "amd64") -> dict[str, Any]:
    """Add an image and return its descriptor."""
    config = {"os": "linux", "architecture": architecture}
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": put(blobs, json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [put(blobs, one, TAR) for one in layers],
    }
    return put(blobs, json.dumps(document).encode(), MANIFEST)


def write_folder(folder: Path, blobs: Mapping[str, bytes], descriptors: list[dict[str, Any]]) -> Path:
    for path, data in {**blobs, "index.json": json.dumps({"manifests": descriptors}).encode()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def write_tar(path: Path, blobs: Mapping[str, bytes], descriptors: list[dict[str, Any]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in {**blobs, "index.json": json.dumps({"manifests": descriptors}).encode()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    blobs: dict[str, bytes] = {}
    layers = [
        layer({"etc/kept": b"1", "etc/old": b"1", "opt/gone/a": b"1", "opt/emptied/a": b"1", "opt/gone-too": b"1"}),
        layer({"etc/old": b"2", "opt/.wh.gone": b"", "opt/emptied/b": b"2", "opt/emptied/.wh..wh..opq": b""}),
    ]
    return write_folder(tmp_path / "layout", blobs, [manifest(blobs, layers)])


def test_equal_layouts_give_equal_archives_also_from_stored_layers(layout: Path, tmp_path: Path) -> None:
    written = []
    for number, store in enumerate((tmp_path / "store", tmp_path / "store", tmp_path / "other")):
        out = tmp_path / f"{number}.tar"
        oci_archive.write(layout, out, NAME, {"a": "b"}, store)
        written.append(out.read_bytes())
    assert written[0] == written[1] == written[2]
    assert len(list((tmp_path / "store").iterdir())) == 2
    oci_archive.write(layout, out, NAME, {"a": "c"}, tmp_path / "store")
    assert out.read_bytes() != written[0]


def test_every_digest_of_an_archive_is_the_hash_of_its_blob(layout: Path, tmp_path: Path) -> None:
    out = tmp_path / "image.tar"
    oci_archive.write(layout, out, NAME, {"org.opencontainers.image.version": "1.2.3"}, tmp_path / "store")
    with tarfile.open(out) as tar:
        data = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    for path, content in data.items():
        if path.startswith("blobs/"):
            assert hashlib.sha256(content).hexdigest() == path.rpartition("/")[2]
    (descriptor,) = json.loads(data["index.json"])["manifests"]
    assert descriptor["annotations"]["io.containerd.image.name"] == NAME
    assert descriptor["annotations"]["org.opencontainers.image.ref.name"] == "1.2.3"
    document = json.loads(data[f"blobs/{descriptor['digest'].replace(':', '/')}"])
    assert document["annotations"] == {"org.opencontainers.image.version": "1.2.3"}
    assert document["mediaType"] == descriptor["mediaType"] == MANIFEST
    for one in document["layers"]:
        blob = data[f"blobs/{one['digest'].replace(':', '/')}"]
        assert (one["mediaType"], one["size"]) == (f"{TAR}+gzip", len(blob))
        gzip.decompress(blob)
    assert oci_archive.read(out) == oci_archive.Contents(descriptor["digest"], {"linux/amd64": descriptor["digest"]})


def test_files_are_those_that_the_containers_see(layout: Path, tmp_path: Path) -> None:
    out = tmp_path / "image.tar"
    oci_archive.write(layout, out, NAME, {}, tmp_path / "store")
    digest = oci_archive.read(out).digest
    assert oci_archive.files(out, digest, ["*"]) == {
        "etc/kept": b"1",
        "etc/old": b"2",
        "opt/gone-too": b"1",
        "opt/emptied/b": b"2",
    }
    assert oci_archive.files(out, digest, ["opt/*/b"]) == {"opt/emptied/b": b"2"}


def test_an_image_of_two_platforms_has_the_digest_of_its_index(tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}
    parts = []
    for architecture in ("arm64", "amd64", "unknown"):
        one = manifest(blobs, [layer({"name": architecture.encode()})], architecture)
        system = "unknown" if architecture == "unknown" else "linux"  # an attestation
        variant = {"variant": "v8"} if architecture == "arm64" else {}
        parts.append(one | {"platform": {"os": system, "architecture": architecture, **variant}})
    index = put(blobs, json.dumps({"schemaVersion": 2, "manifests": parts}).encode(), oci_archive.INDEX_TYPE)
    archive = write_tar(tmp_path / "image.tar", blobs, [index])
    found = oci_archive.read(archive)
    assert found.digest == index["digest"]
    assert found.manifests == {"linux/amd64": parts[1]["digest"], "linux/arm64": parts[0]["digest"]}
    assert oci_archive.files(archive, found.manifests["linux/arm64"], ["*"]) == {"name": b"arm64"}


def test_an_archive_that_is_not_one_intact_image_is_refused(tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}
    one = manifest(blobs, [layer({"a": b"a"})])
    with pytest.raises(ValueError, match=r"must hold one image \(got 2\); build it again"):
        oci_archive.read(write_tar(tmp_path / "two.tar", blobs, [one, one]))
    missing = {"digest": f"sha256:{'0' * 64}"}
    with pytest.raises(ValueError, match=r"has no blobs/sha256/0000"):
        oci_archive.read(write_tar(tmp_path / "missing.tar", blobs, [missing]))
    path = f"blobs/{one['digest'].replace(':', '/')}"
    with pytest.raises(ValueError, match="has another hash than its name"):
        oci_archive.read(write_tar(tmp_path / "changed.tar", {**blobs, path: blobs[path] + b" "}, [one]))


def test_platforms_are_divided_into_those_that_can_be_built_and_reasons() -> None:
    inspection = "Name: b\nNodes:\nName: b0\nPlatforms: linux/amd64*, linux/386\nName: b1\nPlatforms: linux/arm64\n"
    assert image.buildx_platforms(inspection) == ("linux/amd64", "linux/386", "linux/arm64")
    assert image.buildx_platforms("Name: default\n") == ()
    assert image.divide(image.PLATFORMS, ("linux/arm64",), "why") == (("linux/arm64",), {"linux/amd64": "why"})


def test_a_processor_without_images_is_refused() -> None:
    assert image.local_platform("aarch64") == "linux/arm64"
    with pytest.raises(ValueError, match="no image is built on riscv64; use a machine with x86_64 or aarch64"):
        image.local_platform("riscv64")


def test_buildx_builds_all_platforms_into_one_archive_with_the_time_of_the_commit() -> None:
    order = image.Order(NAME, image.PLATFORMS, {"org.opencontainers.image.version": "1.2.3"}, 7)
    command = image.buildx_command(order, image.PLATFORMS, Path("/context"), Path("/out.tar"))
    assert command[:3] == ["docker", "buildx", "build"]
    assert {"--platform=linux/amd64,linux/arm64", "--target=podium", "--build-arg=SOURCE_DATE_EPOCH=7"} < set(command)
    (output,) = (word for word in command if word.startswith("--output="))
    assert output.startswith(f"--output=type=oci,dest=/out.tar,name={NAME},")
    assert command[-1] == "/context"

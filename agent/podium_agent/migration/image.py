"""The OCI image that a runtime takes for a checkpoint: the archive as it is, less its log, and an annotation. Pure.

Used by `move`. containerd (2.1 to 2.3) and CRI-O know such an image by an annotation of its manifest and give its files
to CRIU, instead of starting the image's command. The archive is the first layer, byte for byte. A second one of a few
bytes takes its `container.log` away: containerd would put it before the new container's own log, and it goes on beyond
the checkpoint (the container works while the archive is written), so that its last lines would be there twice.
Sources: OCI image-spec 1.1 (manifest, config, "whiteouts" in layer), checkpointctl's annotation
`org.criu.checkpoint.container.name`, CRI-O's `io.kubernetes.cri-o.annotations.checkpoint.name`.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass
from typing import Any

from podium_agent.migration.archive import Archive

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
ANNOTATIONS = ("org.criu.checkpoint.container.name", "io.kubernetes.cri-o.annotations.checkpoint.name")
WHITEOUT = ".wh.container.log"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """The blobs whose bytes and digests count; the other layer is the archive's file."""

    config: bytes
    whiteout: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        return sha256(self.manifest)


def of(archive: Archive, container: str, machine: str = platform.machine()) -> Image:
    """The image of an archive; `container` is the name of the container in its pod, `machine` as uname says it."""
    whiteout = _without_log()
    layers = [(archive.digest, archive.bytes), (sha256(whiteout), len(whiteout))]
    config = _json(
        {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest for digest, _ in layers]},
        }
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": sha256(config), "size": len(config)},
        "layers": [{"mediaType": LAYER, "digest": digest, "size": size} for digest, size in layers],
        "annotations": dict.fromkeys(ANNOTATIONS, container),
    }
    return Image(config, whiteout, _json(manifest))


def _without_log() -> bytes:
    """A layer whose one entry takes a file of the layers below away; the same bytes each time."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(WHITEOUT))
    return layer.getvalue()


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

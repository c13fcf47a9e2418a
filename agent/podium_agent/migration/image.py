"""The OCI image that a runtime recognises as a checkpoint: the unchanged archive without its log, and an annotation.

Pure. containerd (2.1 to 2.3) and CRI-O recognise such an image by an annotation of its manifest. They give its files to
CRIU instead of starting the image's command. The archive is the first layer, byte for byte. A second layer of a few
bytes removes `container.log`: containerd would prepend it to the new container's log. The old container runs while the
archive is written, so the last lines of the log would appear twice.
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
    """The blobs of an image except its first layer, which is the archive's file."""

    config: bytes
    whiteout: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        """Digest of the manifest."""
        return sha256(self.manifest)


def build_image(archive: Archive, container: str, machine: str = platform.machine()) -> Image:
    """Build the image of an archive.

    `container` is the name of the container in its pod, `machine` the architecture as uname reports it.
    """
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
    """Return a layer whose only entry removes the log of the layer below; its bytes are always the same."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(WHITEOUT))
    return layer.getvalue()


def sha256(data: bytes) -> str:
    """Return the digest of the data in OCI notation."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

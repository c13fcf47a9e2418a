"""Load images into the nodes' containerd; images and layers that a node has are not sent again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from podium_devcluster.artifacts import layout
from podium_devcluster.artifacts.oci import ArchivedImage, read_archive
from podium_devcluster.runtime.node import Node

_CTR = ("ctr", "-n", "k8s.io")


def parse_listing(text: str) -> dict[str, str]:
    """Return the digests by name from the output of `ctr images ls`. Pure."""
    images = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[2].startswith("sha256:"):
            images[fields[0]] = fields[2]
    return images


def image_of(source: Path) -> ArchivedImage | None:
    """Return the image in a layout folder or an archive; None for an archive without an OCI layout."""
    return layout.read(source) if source.is_dir() else read_archive(source)


def load(node: Node, sources: Sequence[Path]) -> list[str]:
    """Load archives and layout folders of the cache's `images` folder; return the imported names."""
    held = parse_listing(node.execute([*_CTR, "images", "ls"]))
    imported = []
    for source in sources:
        image = image_of(source)
        if image is not None and held.get(image.name) == image.digest:
            continue
        if source.is_dir():
            _send_missing(node, source)
        else:
            node.execute([*_CTR, "images", "import", f"/images/{source.name}"], timeout=300)
        imported.append(image.name if image else source.name)
    return imported


def _send_missing(node: Node, folder: Path) -> None:
    """Send only the blobs that the node lacks: after a change of code, a few megabytes."""
    present = set(node.execute([*_CTR, "content", "ls", "-q"]).split())
    archive = folder.with_name(f".{folder.name}-{node.paths.name}-{node.name}-{os.getpid()}.tar")
    try:
        layout.write_archive(folder, archive, without=present)
        node.execute([*_CTR, "images", "import", f"/images/{archive.name}"], timeout=300)
    finally:
        archive.unlink(missing_ok=True)


def load_all(nodes: Sequence[Node], sources: Sequence[Path]) -> dict[str, list[str]]:
    """Load images into all nodes at once; return the names of the imported images by node."""
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
        loaded = dict(
            zip((node.name for node in nodes), pool.map(lambda node: load(node, sources), nodes), strict=True)
        )
    _share_blobs(nodes)
    return loaded


def _share_blobs(nodes: Sequence[Node]) -> None:
    """Store each blob once: the nodes link to the files of the cache, or to those of the first node."""
    for node in nodes:
        originals = [blob for other in nodes for blob in _content(other)]
        images = node.cache.images.glob("*/blobs/sha256/*")
        layout.share_blobs(_content(node), [*reversed(originals), *images])  # of equal names the last one counts


def _content(node: Node) -> list[Path]:
    return list((node.state / "containerd/io.containerd.content.v1.content/blobs/sha256").glob("*"))

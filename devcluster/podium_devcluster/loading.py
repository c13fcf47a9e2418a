"""Bring images into the nodes' containerd. What a node holds already, image or layer, is not sent again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from podium_devcluster import layout
from podium_devcluster.node import Node
from podium_devcluster.oci import ArchivedImage, read_archive

_CTR = ("ctr", "-n", "k8s.io")


def parse_listing(text: str) -> dict[str, str]:
    """Name -> digest, from `ctr images ls`. Pure."""
    images = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[2].startswith("sha256:"):
            images[fields[0]] = fields[2]
    return images


def image_of(source: Path) -> ArchivedImage | None:
    return layout.read(source) if source.is_dir() else read_archive(source)


def load(node: Node, sources: Sequence[Path]) -> list[str]:
    """Archives and OCI layout folders in the cache's `images` folder; returns the names that had to be imported."""
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
    """Only the blobs that the node lacks: after a change of code that is a few megabytes."""
    present = set(node.execute([*_CTR, "content", "ls", "-q"]).split())
    archive = folder.with_name(f".{folder.name}-{node.paths.name}-{node.name}-{os.getpid()}.tar")
    try:
        layout.write_archive(folder, archive, without=present)
        node.execute([*_CTR, "images", "import", f"/images/{archive.name}"], timeout=300)
    finally:
        archive.unlink(missing_ok=True)


def load_all(nodes: Sequence[Node], sources: Sequence[Path]) -> dict[str, list[str]]:
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
        loaded = pool.map(lambda node: load(node, sources), nodes)
        return dict(zip((node.name for node in nodes), loaded, strict=True))

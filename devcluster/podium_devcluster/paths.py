"""Where everything lies: the cache shared by all clusters, and the state of one cluster. Called by every module."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

RUN = Path("/run/podium-devcluster")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?")


def cache_dir() -> Path:
    """$PODIUM_CACHE, or ~/.cache/podium."""
    configured = os.environ.get("PODIUM_CACHE", "")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".cache" / "podium"


def project_dir() -> Path:
    """The checkout this package runs from (manifests and image sources lie there): an editable install."""
    return Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Cache:
    root: Path

    @classmethod
    def default(cls) -> Cache:
        return cls(cache_dir())

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def rootfs(self) -> Path:
        return self.root / "rootfs"

    @property
    def build(self) -> Path:
        return self.root / "build"


@dataclass(frozen=True, slots=True)
class ClusterPaths:
    """The state folder of one cluster. Everything in it can be deleted when the cluster is down."""

    name: str
    root: Path

    @classmethod
    def of(cls, name: str, cache: Cache) -> ClusterPaths:
        if not _NAME.fullmatch(name):
            raise ValueError(f"--name {name!r}: use 1 to 24 lower-case letters, digits and dashes, a letter first")
        return cls(name, cache.root / "clusters" / name)

    @property
    def lock(self) -> Path:
        """One for the machine, not one for a cache: namespaces and control groups are the machine's."""
        return RUN / f"{self.name}.lock"

    @property
    def owner(self) -> Path:
        """Names the state folder of the cluster that has this name on this machine now."""
        return RUN / f"{self.name}.owner"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def spec(self) -> Path:
        return self.root / "cluster.json"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def shared(self) -> Path:
        """/shared of every node: what network storage is to a real cluster."""
        return self.root / "shared"

    def node(self, node: str) -> Path:
        return self.root / "nodes" / node

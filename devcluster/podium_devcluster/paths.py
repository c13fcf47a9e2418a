"""Paths of the cache that all clusters share, and of the state of one cluster."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

RUN = Path("/run/podium-devcluster")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?")


def cache_dir() -> Path:
    """Return $PODIUM_CACHE, or ~/.cache/podium."""
    configured = os.environ.get("PODIUM_CACHE", "")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".cache" / "podium"


def project_dir() -> Path:
    """Return the checkout that this package runs from; it contains manifests and image sources."""
    return Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder of everything that is built or downloaded once."""

    root: Path

    @classmethod
    def default(cls) -> Cache:
        """Return the cache that the environment names."""
        return cls(cache_dir())

    @property
    def bin(self) -> Path:
        """Programs."""
        return self.root / "bin"

    @property
    def images(self) -> Path:
        """Images."""
        return self.root / "images"

    @property
    def rootfs(self) -> Path:
        """Root file systems of the nodes."""
        return self.root / "rootfs"

    @property
    def machines(self) -> Path:
        """Disks and kernels of virtual nodes."""
        return self.root / "vm"

    @property
    def build(self) -> Path:
        """Inputs of builds."""
        return self.root / "build"


@dataclass(frozen=True, slots=True)
class ClusterPaths:
    """The state folder of one cluster. It can be deleted when the cluster is down."""

    name: str
    root: Path

    @classmethod
    def of(cls, name: str, cache: Cache) -> ClusterPaths:
        """Return the paths of a cluster. Raises ValueError for a name that cannot name network namespaces."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"--name {name!r}: use 1 to 24 lower-case letters, digits and dashes; the first must be a letter"
            )
        return cls(name, cache.root / "clusters" / name)

    @property
    def lock(self) -> Path:
        """The lock of this name. It is the same for all caches, as namespaces belong to the machine."""
        return RUN / f"{self.name}.lock"

    @property
    def owner(self) -> Path:
        """File with the state folder of the cluster that has this name on the machine now."""
        return RUN / f"{self.name}.owner"

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def spec(self) -> Path:
        """The requested size and settings."""
        return self.root / "cluster.json"

    @property
    def log(self) -> Path:
        """Logs of all programs."""
        return self.root / "log"

    @property
    def audit(self) -> Path:
        """The audit log of the API server: `audit.log`, and older parts beside it."""
        return self.log / "audit"

    @property
    def audit_policy(self) -> Path:
        """What the audit log records."""
        return self.root / "audit-policy.json"

    @property
    def pki(self) -> Path:
        """Certificates."""
        return self.root / "pki"

    @property
    def run(self) -> Path:
        """Records of processes."""
        return self.root / "run"

    @property
    def etcd(self) -> Path:
        """etcd's data."""
        return self.root / "etcd"

    @property
    def shared(self) -> Path:
        """/shared of every node; stands for the network storage of a real cluster."""
        return self.root / "shared"

    def machine(self, node: str) -> Path:
        """Return the folder of a virtual node's disks and sockets; `down` removes it."""
        return self.root / "vm" / node

    def node(self, node: str) -> Path:
        """Return the state folder of one node."""
        return self.root / "nodes" / node

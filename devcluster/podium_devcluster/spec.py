"""The requested size and settings of a cluster, kept in its state folder for later commands."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from podium_devcluster.runtime.network import NodeAddress, addresses
from podium_devcluster.runtime.node_config import KubeletSettings

STARTING, RUNNING = "starting", "running"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What a cluster consists of, the port of its API server, and whether its start is complete.

    `pod_groups`: whether the API server serves PodGroups, an alpha feature.
    """

    nodes: int = 2
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    port: int = 0
    phase: str = STARTING
    pod_groups: bool = False

    @property
    def addresses(self) -> tuple[NodeAddress, ...]:
        """The nodes with their addresses."""
        return addresses(tuple(f"node-{number}" for number in range(1, self.nodes + 1)))

    def difference(self, requested: ClusterSpec) -> str:
        """Return how this cluster differs from the requested one; "" if it does not. Pure."""
        if requested.nodes != self.nodes:
            return f"it has {self.nodes} nodes instead of {requested.nodes}"
        if requested.pod_groups != self.pod_groups:
            return f"it serves {'' if self.pod_groups else 'no '}PodGroups"
        if requested.nodes and requested.kubelet != self.kubelet:
            return f"its kubelets run with {self.kubelet} instead of {requested.kubelet}"
        return ""

    def with_phase(self, phase: str) -> ClusterSpec:
        """Return the same cluster in another phase."""
        return replace(self, phase=phase)


def load(file: Path) -> ClusterSpec | None:
    """Return the stored spec; None if the file is missing or incomplete, as a killed run may leave it."""
    try:
        raw = json.loads(file.read_text())
        return ClusterSpec(**{**raw, "kubelet": KubeletSettings(**raw["kubelet"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def save(file: Path, spec: ClusterSpec) -> None:
    """Store a spec. The file is replaced in one operation."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(spec), indent=1))
    temporary.replace(file)

"""What a cluster was asked to be, kept in its state folder, so that the next command knows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from podium_devcluster.network import NodeAddress, addresses
from podium_devcluster.node_config import KubeletSettings

STARTING, RUNNING = "starting", "running"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    nodes: int = 2
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    port: int = 0
    phase: str = STARTING

    @property
    def addresses(self) -> tuple[NodeAddress, ...]:
        return addresses(tuple(f"node-{number}" for number in range(1, self.nodes + 1)))

    def differs(self, other: ClusterSpec) -> str:
        """What `other` asks for that this one is not; "" when it will do. Pure."""
        if other.nodes != self.nodes:
            return f"it has {self.nodes} nodes, {other.nodes} are asked for"
        if other.nodes and other.kubelet != self.kubelet:
            return f"its kubelets run with {self.kubelet}, {other.kubelet} is asked for"
        return ""

    def with_phase(self, phase: str) -> ClusterSpec:
        return replace(self, phase=phase)


def load(file: Path) -> ClusterSpec | None:
    """None when there is none, or a killed run left half of one."""
    try:
        raw = json.loads(file.read_text())
        return ClusterSpec(**{**raw, "kubelet": KubeletSettings(**raw["kubelet"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def save(file: Path, spec: ClusterSpec) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(spec), indent=1))
    temporary.replace(file)

"""Time at which the holder of each GPU got it, by the operator's clock. The watch caches update it.

The operator measures minimum time slices by its own clock, and the clocks of nodes differ. So it uses only a difference
of two of the agent's times: how long the holder had held the GPU when the report was written (`updatedAt` minus
`since`). A report is observed after it was written. The time slice therefore started at least that long before the
observation, and the earliest start that any report implies is kept. A new operator first reads an old report, so it
underestimates the time slice by the age of that report until the agent's next one. The offset between the clocks never
matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from podium_core.schema.gpunode import GPUNode

NodeGpu = tuple[str, str]  # node, GPU


@dataclass(slots=True)
class HolderTimes:
    """Time slice of each GPU's holder: trial uid, start by the agent's clock and by the operator's."""

    _known: dict[NodeGpu, tuple[str, datetime, float]] = field(default_factory=dict)

    def update(self, nodes: Iterable[GPUNode], now: float) -> Mapping[NodeGpu, float]:
        """Return, by node and GPU, when the holder's time slice started (the operator's clock)."""
        current: dict[NodeGpu, tuple[str, datetime, float]] = {}
        for node in nodes:
            written = node.status.updated_at
            for gpu in node.status.gpus:
                if gpu.holder is None:
                    continue
                node_gpu, uid, since = (node.metadata.name, gpu.uuid), gpu.holder.uid, gpu.holder.since
                began = now - (max(0.0, (written - since).total_seconds()) if written else 0.0)
                before = self._known.get(node_gpu)
                if before is not None and before[:2] == (uid, since):
                    began = min(began, before[2])
                current[node_gpu] = uid, since, began
        self._known = current
        return {node_gpu: began for node_gpu, (_, _, began) in current.items()}

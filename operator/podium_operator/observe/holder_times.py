"""When the holder of each GPU got it, by the operator's clock. Called by `mirror` at each look.

Minimum runs are measured by the operator's clock, and clocks of nodes differ; so of the agent's moments only the
difference of two counts: how long the holder had had the GPU when the report was written (`updatedAt` less `since`). A
report is seen after it was written, so the turn began that long before it was seen, or earlier: the earliest that a
report of this turn says is kept. An operator that begins anew first finds an old report, and so takes the turn to be as
much shorter as that is old until the agent's next report tells; nothing of that goes by how far the clocks are apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from podium_core.schema.gpunode import GPUNode

Place = tuple[str, str]  # node, GPU


@dataclass(slots=True)
class Turns:
    """Of each GPU with a holder: which turn that is (the trial's uid, and its beginning as the agent says), and when it
    began.
    """

    _known: dict[Place, tuple[str, datetime, float]] = field(default_factory=dict)

    def look(self, nodes: Iterable[GPUNode], now: float) -> Mapping[Place, float]:
        """By node and GPU: when the holder's turn began."""
        found: dict[Place, tuple[str, datetime, float]] = {}
        for node in nodes:
            written = node.status.updated_at
            for gpu in node.status.gpus:
                if gpu.holder is None:
                    continue
                place, uid, since = (node.metadata.name, gpu.uuid), gpu.holder.uid, gpu.holder.since
                began = now - (max(0.0, (written - since).total_seconds()) if written else 0.0)
                before = self._known.get(place)
                if before is not None and before[:2] == (uid, since):
                    began = min(began, before[2])
                found[place] = uid, since, began
        self._known = found
        return {place: began for place, (_, _, began) in found.items()}
